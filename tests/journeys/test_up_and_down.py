"""`liza up` at a terminal, Ctrl+C, going on, `liza down`, and a repository that is as it was before."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.git.rules.note_commits import NOTES_REF
from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import APPROVE, BIN, LIMIT, Crew, begun, git, started

AT_A_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
PLAN = """\
case "$LIZA_RUN" in
planner-*)
    if git rev-parse -q --verify refs/heads/task/first > /dev/null; then
        exec liza handoff "nothing to add" --done
    fi
    liza task add --file - <<YAML
- {id: first, description: Write first, done_when: it is there, scope: first.txt, spec_ref: README.md}
- {id: second, description: Write second, done_when: it is there, scope: s, spec_ref: README.md, depends_on: [first]}
YAML
    liza handoff "two tasks, one after the other" --done ;;
coder-*)
    if [ "$LIZA_TASK" = second ]; then
        echo half > half.txt
        echo "$$" > "$NOTES/at-$LIZA_RUN"
        trap 'echo asked > "$NOTES/asked"; exit 1' TERM
        read line < "$NOTES/gate"
    fi
    echo work > "$LIZA_TASK.txt"
    git add -A
    git commit -q -m work
    liza submit ;;
*)
"""


class Terminal:
    """``liza`` at a pseudo-terminal; what it showed, and a keyboard."""

    def __init__(self, crew: Crew, *words: str) -> None:
        self.crew, self.log = crew, crew.notes / "terminal.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", AT_A_TERMINAL, str(BIN / "liza"), *words],
                cwd=crew.root,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        crew.children.append(self.process)

    def shown(self) -> str:
        """What it showed, without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text().replace("\r\n", "\n"))

    def wait_shown(self, pattern: str) -> None:
        self.crew.wait(lambda _: re.search(pattern, self.shown()), f"{pattern!r} in the terminal")

    def press_ctrl_c(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\x03")
        self.process.stdin.flush()
        return self.process.wait(timeout=LIMIT)


def test_ctrl_c_of_up_leaves_nothing_and_next_up_continues(crew: Crew) -> None:
    crew.gate("gate")
    program = crew.script("agent", PLAN + APPROVE + ";; esac\n")
    up = Terminal(crew, "up", "-v", "--program", program)
    crew.wait_note("at-coder-1.2")
    up.wait_shown(r"  coder-1 +second working as coder-1\.2")
    code = up.press_ctrl_c()

    said = up.shown()
    for line in (
        r"planner-1 {7}2 tasks: first, second \(needs first\)",
        r"coder-1 {9}first working as coder-1\.1, try 1",
        r"coder-1 {9}coder-1\.1 ready after [\d.]+ s \(liza ready\)",
        r"coder-1 {9}first in review at [0-9a-f]{10}",
        r"code-reviewer-1 first review begins",
        r"code-reviewer-1 first approved: read it, ran it",
        r"liza {12}first merged as [0-9a-f]{10}, untested; \d sessions?",
    ):
        assert re.search(rf"(?m)^\d\d:\d\d:\d\d  {line}$", said), (line, said)
    assert "stopping 3 agents…" in said
    again = f"liza up --program {program}"
    # The command has a line of its own where it does not fit.
    last = re.sub(r"\n +", " ", said.rstrip())
    assert last.endswith(f"all stopped; work is in {crew.paths.slots} and on task/*. Go on: {again}")
    assert again in said
    assert "Traceback" not in said
    assert code == 0
    assert (crew.notes / "asked").read_text() == "asked\n"
    crew.wait_ended()
    kept = crew.task("second")
    assert (kept.status, kept.run, kept.handoff_pending) == ("CLAIMED", "coder-1.2", True)
    assert kept.history[-1].event == "stop"
    assert kept.lease_expires == kept.history[-1].time
    assert {agent.status for agent in crew.state().agents.values()} == {"OFFLINE"}

    crew.liza("up", "-d", "--planners", "0", "--program", program)
    assert crew.wait_note("at-coder-1.3")
    again = crew.task("second")
    assert (again.iteration, again.run) == (1, "coder-1.3")
    assert (worktree_of(crew.root, "second") / "half.txt").read_text() == "half\n"
    told = crew.liza("up", "-d", "--planners", "0", "--program", program, code=1)
    assert "already running: coder-1, code-reviewer-1" in told
    crew.open_gate("gate")
    crew.wait_status("second", "MERGED")
    crew.liza("down")
    assert "no supervisor runs" in crew.liza("down")
    crew.wait(lambda _: not crew.living(), "the end of all processes")
    crew.liza("validate")


def world(root: Path) -> dict[str, object]:
    """Everything that a purge has to give back."""
    inside = root / ".git"
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("*") if path.is_file()}
    return {
        "files": files,
        "names": sorted(path.name for path in root.iterdir()),
        "config": (inside / "config").read_bytes(),
        "info": {path.name: path.read_bytes() for path in (inside / "info").iterdir()},
        "hooks": sorted(path.name for path in (inside / "hooks").iterdir()),
        "head": (inside / "HEAD").read_text(),
        "refs": git(root, "for-each-ref", "--format=%(refname)"),
        "worktrees": git(root, "worktree", "list"),
        "status": git(root, "status", "--porcelain"),
        "stash": git(root, "stash", "list"),
    }


def released(crew: Crew) -> None:
    """A task that was taken away from its first coder, with unfinished work in its worktree."""
    crew.add("task-1")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    (worktree_of(crew.root, "task-1") / "task-1.txt").write_text("unfinished\n")
    crew.liza("task", "release", "task-1")


def merged_by_hand(crew: Crew) -> None:
    crew.liza("claim", "task-1", "--agent", "coder-2")
    there = worktree_of(crew.root, "task-1")
    with (there / "task-1.txt").open("a") as file:
        file.write("done\n")
    commit_all(there, "done")
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "fine", "--task", "task-1")
    crew.liza("merge")


def test_a_purge_after_all_merges_restores_the_repository(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    (crew.root / "mine.txt").write_text("not committed\n")
    before = world(crew.root)
    crew.liza("init", "Every file is there", "--no-test")
    crew.add("task-1")
    merged_by_hand(crew)
    crew.git("merge", "-q", "--ff-only", "integration")
    told = crew.liza("down", "--purge")
    assert "kept" not in told, told
    (crew.root / "task-1.txt").unlink()
    after = world(crew.root)
    assert str(after.pop("worktrees")).split()[0] == str(before.pop("worktrees")).split()[0]
    assert str(after.pop("status")).splitlines() == [" D task-1.txt", *str(before.pop("status")).splitlines()]
    crew.git("update-ref", "-d", NOTES_REF)  # what was landed can still be verified
    assert world(crew.root)["refs"] == before.pop("refs")
    assert after.pop("refs")
    assert after == before
    assert [path for path in (crew.root / ".git").rglob("*liza*") if path.is_file()] == []


def test_a_purge_keeps_and_names_unmerged_work(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    before = world(crew.root)
    crew.liza("init", "Every file is there", "--no-test")
    released(crew)
    merged_by_hand(crew)
    assert crew.git("show", "integration:task-1.txt") == "unfinished\ndone"
    merge = crew.git("rev-parse", "integration")
    told = crew.liza("down", "--purge")
    assert re.search(r"^kept .*integration.*: no other ref has their commits$", told, re.MULTILINE)
    assert crew.git("rev-parse", "integration") == merge
    after = world(crew.root)
    kept = [
        "refs/heads/integration",
        "refs/heads/main",
        "refs/liza/blackboard",
        "refs/liza/salvage/task-1/coder-1.1",
        NOTES_REF,
    ]
    assert str(after.pop("refs")).splitlines() == kept
    before.pop("refs")
    assert after == before


def test_up_reports_a_missing_program_at_once(crew: Crew) -> None:
    crew.add("task-1")
    before = crew.paths.state.read_bytes()
    plain = crew.notes / "plain"
    plain.write_text("#!/bin/sh\n")
    assert "no-such-agent" in crew.liza("up", "-d", "--program", f"script:{crew.notes}/no-such-agent", code=5)
    assert "no-such-agent" in crew.prepare("up", "--program", f"script:{crew.notes}/no-such-agent", code=5)
    assert "executable" in crew.prepare("up", "-d", "--program", f"script:{plain}", code=5)
    assert "no-such-program" in crew.prepare("up", "-d", "--program", "no-such-program", code=2)
    assert "coder-3=" in crew.prepare("up", "-d", "--coders", "2", "--program", f"coder-3=script:{plain}", code=2)
    assert "planner=" in crew.prepare("up", "-d", "--planners", "0", "--program", f"planner=script:{plain}", code=2)
    done = subprocess.run(
        [str(BIN / "liza-agent"), "coder-1", "--program", f"script:{crew.notes}/no-such-agent"],
        cwd=crew.root,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 5
    assert "no-such-agent" in done.stderr
    assert crew.paths.state.read_bytes() == before
    crew.wait_ended()


@pytest.mark.campaign
def test_up_detached_fails_with_the_reason_of_ended_supervisors(crew: Crew) -> None:
    program = crew.script("agent", "exit 0\n")
    alone = ("up", "-d", "--planners", "0", "--reviewers", "0", "--program", program)
    (crew.root / ".git" / "liza-move").write_text("nonsense")
    done = crew.run(*alone)
    assert done.returncode == 1
    assert re.search(r"coder-1 +exited at once: .*liza-move cannot be read: .* \(next: rm .*liza-move\)\n", done.stdout)
    (crew.root / ".git" / "liza-move").unlink()
    assert re.search(r"coder-1 +started; liza logs coder-1 -f", crew.liza(*alone))
    assert find_crew(crew.root).is_supervised("coder-1")
    crew.git("branch", "-D", "integration")
    told = crew.liza("up", "-d", "--program", program, code=5)
    assert "the branch integration is gone\n  next: git branch integration" in told


def test_purge_keeps_and_names_specs_of_a_person(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        goal = crew.paths.specs / "goal.md"
        goal.write_text(goal.read_text() + "Invoices are numbered without gaps.\n")
        (crew.root / ".worktrees").mkdir(exist_ok=True)
        (crew.root / ".worktrees" / "mine.txt").write_text("a person's own\n")
        told = crew.liza("down", "--purge")
        assert "kept refs/liza/specs: no other ref has its commits\n" in told
        assert "without gaps" in crew.git("show", "refs/liza/specs:goal.md")
        assert not crew.paths.liza.exists()
        assert (crew.root / ".worktrees" / "mine.txt").read_text() == "a person's own\n"


@pytest.mark.campaign
def test_a_program_is_proved_by_a_temporary_small_task(crew: Crew, tmp_path: Path) -> None:
    works = crew.script("works", 'echo done > proof.txt\ngit add -A\ngit commit -q -m "$PWD"\nliza submit\n')
    gives_up = crew.script("gives-up", "exit 3\n")
    (tmp_path / "temp").mkdir()
    found = {}
    for program, code in ((works, 0), (gives_up, 1)):
        done = crew.run("programs", "check", program, "--json", TMPDIR=str(tmp_path / "temp"))
        assert done.returncode == code, done.stderr
        (found[program],) = json.loads(done.stdout)["programs"]
    good, bad = found.values()
    assert [(one["what"], one["ok"]) for one in good["proofs"]] == [("brief", True), ("commit", True), ("submit", True)]
    assert [one["ok"] for one in bad["proofs"]] == [True, False, False]
    assert "exit 3" in bad["problems"][0]
    assert crew.state().tasks == ()
    assert list((tmp_path / "temp").iterdir()) == []
