"""Each refusal names a next step that can be typed as it is, and the steps lead to what the person wanted."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.cli import entry_points
from liza.model.errors import read_last_message
from tests.conftest import variant, worktree_of
from tests.journeys.crews import BIN, project

_WAYS = re.compile(r"[,;] or\b[^:;$]{0,40}: ")
_PARTS = re.compile(r",? then: ")
_PLACEHOLDER = re.compile(r"<[a-z]|\b(CMD|ID|NAME|FILE|PATH|TASK|URL|DIR|BRANCH)\b|\.\.\.")
_COMMANDS = ("liza", "git", "cd", "mv", "rm", "mkdir")
_FINDING = re.compile(r" → (.+)")


class Typed(NamedTuple):
    """Exit status and output of a typed line."""

    code: int
    out: str
    err: str


def _nothing(_: Path) -> None:
    """What a person does by hand in most situations."""


class Situation(NamedTuple):
    """A repository in which ``command`` is refused, typed at its top or in the worktree of its task.

    ``by_hand`` is what only a person can do, such as to edit a file with a conflict. ``value`` is what a person types
    for the "…" of a next step. With ``shows``, the next step prints what a person has to
    choose from, and this text is part of it.
    """

    prepare: Callable[[Path], None]
    command: str
    in_worktree: bool = False
    by_hand: Callable[[Path], None] = _nothing
    shows: str = ""
    value: str = ""


def type_line(line: str, directory: Path) -> Typed:
    """Type a line in a shell. A single command of Liza runs in this process, without the start of an interpreter."""
    words = shlex.split(line)
    if words[0] != "liza" or set("&|;$`>") & set(line):
        env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "GIT_EDITOR": "true"}
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=directory,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=90,
        )
        return Typed(done.returncode, done.stdout, done.stderr)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(directory),
        redirect_stdout(out),
        redirect_stderr(err),
        Path(os.devnull).open() as nothing,
    ):
        patch.setattr(sys, "stdin", nothing)
        patch.setenv("PWD", str(directory))
        code = entry_points.run_command(words[1:])
        out.seek(0)
        err.seek(0)
        return Typed(code, out.read(), err.read())


class Walk:
    """A person who types a command, and after each refusal what it names as the next step.

    Fails where a refusal names no step, a step with a name in capitals, a step that fails without a next one, or a step
    that is being followed already. ``alternative`` selects one of several ways.
    """

    def __init__(self, situation: Situation, root: Path, alternative: int) -> None:
        self.situation, self.root, self.alternative = situation, root, alternative
        self.printed: list[str] = []
        self.followed: list[str] = []

    def follow(self, line: str, directory: Path) -> None:
        """Type a line, and follow next steps until it succeeds, or a step does the same or shows the choice."""
        self._check(line not in self.followed, f"a circle: {line}")
        self.followed.append(line)
        while (done := self._type(line, directory)).code != 0:
            if self._is_shown(done):
                return
            *first, last = self._next_steps(line, done)
            for step in first:
                self._type(step, directory)
                self.situation.by_hand(self.root)
            if first and last == line:
                continue
            if last.startswith("cd "):
                directory = Path(type_line(f"{last} && pwd -P", directory).out.strip())
                continue
            self.situation.by_hand(self.root)
            self.follow(last, directory)
            if _verb(last) == _verb(line) or self._is_shown_last():
                return

    def _type(self, line: str, directory: Path) -> Typed:
        done = type_line(line, directory)
        self.printed.append(f"$ {line}\n{done.out}{done.err}")
        return done

    def _next_steps(self, line: str, done: Typed) -> list[str]:
        _, hint = read_last_message("liza", done.err)
        if not hint and line.startswith("liza doctor"):
            findings = [match[1] for match in _FINDING.finditer(done.out) if match[1] not in self.followed]
            hint = findings[0] if findings else ""
        self._check(hint, "no next step")
        ways = _WAYS.split(hint)
        way = ways[min(self.alternative, len(ways) - 1)]
        way = way.replace('"…"', self.situation.value) if self.situation.value else way
        steps = [step.rpartition(", resolve")[0] or step for step in _PARTS.split(way)]
        steps = [step for step in steps if step.startswith(_COMMANDS)]
        self._check(steps and not any(map(_PLACEHOLDER.search, steps)), f"a placeholder, or no command: {way}")
        return steps

    def _is_shown(self, done: Typed) -> bool:
        return bool(self.situation.shows) and self.situation.shows in done.out + done.err

    def _is_shown_last(self) -> bool:
        return bool(self.situation.shows) and self.situation.shows in self.printed[-1]

    def _check(self, holds: object, problem: str) -> None:
        assert holds, "\n".join([problem, *self.printed])


def _verb(line: str) -> str:
    """The command and its verb of the last command of a line."""
    return " ".join(line.rpartition("&& ")[2].split()[:2])


def worktree(root: Path, task: str = "a") -> Path:
    return worktree_of(root, task).resolve()


def run(directory: Path, *lines: str) -> None:
    """Type lines that succeed."""
    for line in lines:
        done = type_line(line, directory)
        assert done.code == 0, f"{line}\n{done.out}{done.err}"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


INIT = "liza init 'Every file is there' --no-test"


def bare_directory(root: Path) -> None:
    root.mkdir()


def typed(*lines: str, before: Callable[[Path], None] = project) -> Callable[[Path], None]:
    """A project in which a person has typed these lines."""

    def prepare(root: Path) -> None:
        before(root)
        run(root, *lines)

    return prepare


def crew(*lines: str) -> Callable[[Path], None]:
    """A project with a crew, in which a person has typed these lines."""
    return typed(INIT, *lines)


ADD = "liza task add --id {0} --desc d --done w --spec README.md --scope {0}.txt"


def worked(*lines: str, task: str = "a") -> Callable[[Path], None]:
    """A crew whose task has a commit, then these lines typed in its worktree."""

    def prepare(root: Path) -> None:
        crew(ADD.format(task), f"liza claim {task} --agent coder-1")(root)
        there = worktree(root, task)
        write(there / f"{task}.txt", "theirs\n")
        run(there, f"git add {task}.txt", "git commit -q -m work", *lines)

    return prepare


def merged(*lines: str) -> Callable[[Path], None]:
    """A crew whose task is merged, then these lines typed in the checkout."""

    def prepare(root: Path) -> None:
        worked("liza submit")(root)
        run(root, "liza verdict approve ok --task a", "liza merge a --untested", *lines)

    return prepare


def conflicting(start: str) -> Callable[[Path], None]:
    """A worktree in which ``start`` stopped at a conflict with the branch other."""

    def prepare(root: Path) -> None:
        worked()(root)
        run(
            root,
            "git switch -q -c other",
            "echo mine > a.txt",
            "git add a.txt",
            "git commit -q -m mine",
            "git switch -q main",
        )
        type_line(start, worktree(root))

    return prepare


def write_file(root: Path) -> None:
    """Do the work of the task, if it is claimed."""
    if worktree(root).exists():
        write(worktree(root) / "a.txt", "theirs\n")


def resolve_merge(root: Path) -> None:
    """Resolve the conflict of a merge in the checkout."""
    if (root / ".git" / "MERGE_HEAD").exists():
        write(root / "a.txt", "both\n")
        run(root, "git commit -qam both")


def resolve(root: Path) -> None:
    write(worktree(root) / "a.txt", "both\n")


SIDE = ("git switch -q -c {0}", "git commit -q --allow-empty -m x", "git switch -q main")
AHEAD = "git commit -q --allow-empty -m y"
REMOTE_OF_WORKTREE = 'git init -q --bare "$(git rev-parse --git-common-dir)/../../other.git"'
REMOTE = "git init -q --bare ../other.git"
MERGING = (*(line.format("other") for line in SIDE), AHEAD, "git merge --no-commit -q other")
ASIDE = tuple(line.format("integration") for line in SIDE)
CLAIM = "liza claim a --agent coder-1"
NO_USER = ("git config --global --unset user.name", "git config --global --unset user.email")
BAD_LIZA = ("mkdir .liza", "echo 'version: 1' > .liza/state.yaml")
IGNORED = ("echo a.txt >> .git/info/exclude", "echo mine > a.txt")
OWN = ("echo mine > a.txt", "git add a.txt", "git commit -q -m mine")
ORPHAN = ("git switch -q --orphan x", "git commit -q --allow-empty -m x", "git branch -M task/a")
LAND = "liza land --merge --untested"
SYNC = "liza sync --untested"

INIT_SITUATIONS = {
    "outside of a repository": Situation(bare_directory, INIT),
    "before the first commit": Situation(typed("git init -q -b main", before=bare_directory), INIT),
    "without a name": Situation(typed(*NO_USER), INIT),
    "with a detached head": Situation(typed("git switch -q --detach"), INIT),
    "in a merge": Situation(typed(*MERGING), INIT),
    "without a goal": Situation(project, "liza init --no-test"),
    "without a test command": Situation(project, "liza init 'Every file is there'"),
    "with red tests": Situation(project, "liza init g --test false"),
    "with a spec that is not committed": Situation(typed("echo x > 'a b.md'"), "liza init --spec 'a b.md' --no-test"),
    "with integration behind": Situation(typed("git branch integration", AHEAD), INIT),
    "with integration aside": Situation(typed(*ASIDE, AHEAD), INIT),
    "with integration ahead": Situation(typed(*ASIDE), INIT),
    "with a branch below integration": Situation(typed("git branch integration/api"), INIT),
    "with a branch task": Situation(typed("git branch task"), INIT),
    "with a branch epic": Situation(typed("git branch epic"), INIT),
    "with a tracked .liza": Situation(
        typed("mkdir .liza", "echo x > .liza/x", "git add -f .", "git commit -qm x"), INIT
    ),
    "with a .liza of another tool": Situation(typed(*BAD_LIZA), INIT),
    "twice": Situation(crew(), INIT, shows="has a crew already"),
    "with an unknown program": Situation(project, f"{INIT} --program nothing", shows="claude "),
    "with a branch name that cannot be": Situation(project, f"{INIT} --integration-branch ../x"),
    "with a symbolic branch": Situation(typed("git symbolic-ref refs/heads/integration refs/heads/main"), INIT),
}
SUBMIT_SITUATIONS = {
    "outside of a worktree": Situation(worked(), "liza submit"),
    "without a claim": Situation(crew(ADD.format("a")), "liza submit", by_hand=write_file, shows="a asks"),
    "without a commit": Situation(crew(ADD.format("a"), CLAIM), "liza submit", True, write_file, "a asks"),
    "with a changed file": Situation(worked("echo more >> a.txt"), "liza submit", True),
    "with an untracked file": Situation(worked("echo more > b.txt"), "liza submit", True),
    "with a detached head": Situation(worked("git switch -q --detach"), "liza submit", True),
    "with a renamed branch": Situation(worked("git branch -m other"), "liza submit", True),
    "on another branch": Situation(worked("git switch -q -c other"), "liza submit", True),
    "in a merge": Situation(conflicting("git merge -q other"), "liza submit", True, resolve),
    "in a rebase": Situation(conflicting("git rebase -q other"), "liza submit", True, resolve),
    "in a cherry-pick": Situation(conflicting("git cherry-pick other"), "liza submit", True, resolve),
    "in a bisect": Situation(worked("git bisect start -q HEAD HEAD~1"), "liza submit", True),
    "on another history": Situation(worked(*ORPHAN), "liza submit", True),
}
LANDING_SITUATIONS = {
    "land with a file in the way": Situation(merged("echo mine > a.txt"), LAND),
    "land with an ignored file in the way": Situation(merged(*IGNORED), LAND),
    "land in a merge": Situation(merged(*MERGING), LAND),
    "land on a detached head": Situation(merged("git switch -q --detach"), LAND),
    "land with integration checked out": Situation(merged("git switch -q integration"), LAND),
    "land on a branch that has gone on": Situation(merged(AHEAD), LAND),
    "land on a branch that is not there": Situation(merged(), f"{LAND} nothing", shows="* main"),
    "land untested": Situation(merged(), "liza land --merge"),
    "land by request without a remote": Situation(merged(REMOTE), "liza land --pr", value="../other.git"),
    "land after integration was deleted": Situation(merged("git branch -D integration"), LAND),
    "land after integration was moved back": Situation(merged("git branch -f integration main"), LAND),
    "sync with a detached head": Situation(merged("git switch -q --detach"), SYNC),
    "sync on integration": Situation(merged("git switch -q integration"), SYNC),
    "sync of a branch that is not there": Situation(merged(), f"{SYNC} nothing", shows="* main"),
    "sync untested": Situation(merged(AHEAD), "liza sync"),
    "sync of the branch of a task": Situation(worked(), "liza sync task/a", shows="working"),
    "sync with a conflict": Situation(merged(*OWN), SYNC, by_hand=resolve_merge),
    "sync of a branch with a conflict": Situation(
        merged("git switch -q -c mine", *OWN, "git switch -q main"), f"{SYNC} mine", by_hand=resolve_merge
    ),
    "push without a remote": Situation(worked(REMOTE_OF_WORKTREE), "liza push a", value="../other.git"),
    "push of an unknown task": Situation(worked(), "liza push nothing", shows="a  working"),
}
DOCTOR_SITUATIONS = {
    "without a crew": Situation(project, "liza status", shows="no tasks"),
    "doctor in a new crew": Situation(crew(), "liza doctor", shows="every rule holds"),
    "doctor after integration was deleted": Situation(
        merged("git branch -D integration"), "liza doctor", shows="branch     integration at"
    ),
    "doctor after a worktree was deleted": Situation(worked("rm -rf $PWD"), "liza doctor", shows="created again"),
    "doctor outside of a repository": Situation(bare_directory, "liza doctor", shows="every rule holds"),
}
# The others are walked in the campaign: edges follow the hints of init and submit in tables of their own.
USUAL = (
    "init without a goal",
    "init with red tests",
    "init with a spec that is not committed",
    "init twice",
    "submit outside of a worktree",
    "submit without a commit",
    "submit in a rebase",
    "land with an ignored file in the way",
    "land with integration checked out",
    "land on a branch that has gone on",
    "land by request without a remote",
    "land after integration was moved back",
    "sync with a conflict",
    "sync of the branch of a task",
    "push without a remote",
    "doctor after integration was deleted",
)
SITUATIONS = {
    **{f"init {name}": situation for name, situation in INIT_SITUATIONS.items()},
    **{f"submit {name}": situation for name, situation in SUBMIT_SITUATIONS.items()},
    **LANDING_SITUATIONS,
    **DOCTOR_SITUATIONS,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("alternative", [0, variant(1)])
@pytest.mark.parametrize("name", [name if name in USUAL else variant(name) for name in SITUATIONS])
def test_the_next_steps_of_a_refusal_lead_out(tmp_path: Path, name: str, alternative: int) -> None:
    root = tmp_path / "project"
    situation = SITUATIONS[name]
    situation.prepare(root)
    walk = Walk(situation, root, alternative)
    walk.follow(situation.command, worktree(root) if situation.in_worktree else root)
