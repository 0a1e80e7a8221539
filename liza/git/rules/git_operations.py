"""What keeps git from going on in a worktree, and the next step. Pure.

Operations that are not concluded, such as a merge with conflicts, and files of a person that are in the way when their
branch moves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum

from liza.model.value_classes import Value
from liza.text.undecoded import MAX_NAMES, list_names

_NOUNS = {
    "merge": "a merge",
    "rebase": "a rebase",
    "am": "git am",
    "cherry-pick": "a cherry-pick",
    "revert": "a revert",
    "bisect": "a bisect",
}
_MAX_NAMES = 10
"""How many names of files with conflicts a command lists."""


class GitOperation(Value):
    """An operation in progress. ``name`` is empty for conflicts without one, which ``stash pop``, ``merge --squash``
    and ``checkout -m`` leave.

    ``commits``: what it brings in, or the new base of a rebase. ``needs_change``: ``--continue`` fails without a
    staged change. ``conflicts``: files with conflicts that are not resolved.
    """

    name: str = ""
    commits: tuple[str, ...] = ()
    needs_change: bool = False
    conflicts: tuple[str, ...] = ()

    def describe(self, task: str) -> str:
        """Return what is in progress in the worktree of the task, as the beginning of a sentence."""
        verb = "has" if len(self.conflicts) == 1 else "have"
        conflicts = f"{list_names(self.conflicts, 5)} {verb} conflicts" if self.conflicts else ""
        if not self.name:
            return f"{conflicts} in {task}"
        return f"{_NOUNS[self.name]} is in progress in {task}" + (f": {conflicts}" if conflicts else "")

    def next_step(self, has_changes: bool) -> str:
        """Return the commands that conclude the operation. ``has_changes``: tracked files differ from HEAD."""
        if self.name == "bisect" and not self.conflicts:
            return "git bisect reset"
        finish = {"": 'git commit -m "…"', "bisect": 'git commit -m "…"', "merge": "git commit --no-edit"}.get(
            self.name, f"git {self.name} --continue"
        )
        undo = f"git {self.name} --abort"
        if self.conflicts:
            if self.name in ("", "bisect"):
                undo = self._with_conflicts("git restore --source=HEAD --staged --worktree")
            add = self._with_conflicts("git add")
            return f"resolve {list_names(self.conflicts, 5)}, then: {add} && {finish}; or: {undo}"
        if self.name == "am" and not has_changes:
            by_hand = "make the change of git am --show-current-patch=diff by hand, then: git add -u"
            return f"{by_hand} && {finish}; or: git am --skip; or: {undo}"
        if self.needs_change and not has_changes:
            return f"git {self.name} --skip; or: {undo}"
        return f"git add -u && {finish}; or: {undo}" if has_changes else f"{finish}; or: {undo}"

    def describe_left(self, task: str) -> str:
        """Return what a session left in the worktree of the task, in one line, with the command that begins it
        again."""
        again = " ".join(("git", self.name, *(commit[:12] for commit in self.commits))) if self.commits else ""
        return self.describe(task) + (f"; to begin it again: {again}" if again else "")

    def _with_conflicts(self, command: str) -> str:
        """Return a command with the names of the files that have conflicts."""
        if len(self.conflicts) > _MAX_NAMES or not all(name.isprintable() for name in self.conflicts):
            return f"git diff --name-only --diff-filter=U -z | xargs -0 {command} --"
        return f"{command} {_join(self.conflicts)}"


def _join(names: Sequence[str]) -> str:
    """Return names of files as arguments of a command of git."""
    return ("-- " if any(name.startswith("-") for name in names) else "") + shlex.join(names)


def next_step_for_markers(files: Sequence[str]) -> str:
    """Return the commands after which the files have no conflict markers, or git takes these for their text."""
    # A wildcard replaces each character that must be quoted in .gitattributes.
    patterns = [
        "/" + "".join(char if char.isprintable() and char not in ' "*?[]\\' else "?" for char in file) for file in files
    ]
    commit = 'git commit -m "…"'
    attributes = shlex.join(f"{pattern} conflict-marker-size=32" for pattern in patterns)
    return (
        f"resolve {list_names(files, 5)}, then: git add {_join(files)} && {commit}; or, if they are text on purpose: "
        f"printf '%s\\n' {attributes} >> .gitattributes && git add .gitattributes && {commit}"
    )


def next_step_for_briefs(files: Sequence[str]) -> str:
    """Return the step after which the commits have no brief in the files."""
    lines = "delete the lines from <!-- liza:begin … to <!-- liza:end …"
    return f'{lines} in {list_names(files, 5)}, then: git add {_join(files)} && git commit -m "…"'


class BlockingKind(StrEnum):
    """What is in the way: a changed file of the commit that is checked out, a path that the commit does not have, a
    submodule at another commit, or a submodule with files whose path is needed for something else."""

    CHANGED = "changed"
    OWN = "own"
    MOVED_SUBMODULE = "moved submodule"
    FILLED_SUBMODULE = "filled submodule"


class BlockingFile(Value):
    """A path in a checkout that a move of its branch would change or delete.

    ``flags``: flags of its index entry that hide its changes from git. ``free_name``: an unused name, to which the
    path can be renamed; empty if nothing is at the path.
    """

    name: str
    kind: BlockingKind
    is_in_index: bool = False
    flags: tuple[str, ...] = ()
    free_name: str = ""


def show_command(files: Sequence[BlockingFile], directory: str = "") -> str:
    """Return the command that shows the files; ``directory`` is the checkout if it is not the current directory."""
    hidden = [file.name for file in files if file.flags]
    filled = [_path(file.name, directory) for file in files if file.kind is BlockingKind.FILLED_SUBMODULE]
    rest = [file.name for file in files if not file.flags and file.kind is not BlockingKind.FILLED_SUBMODULE]
    commands = (
        _git(directory, ("ls-files", "-v"), hidden),
        ["ls", "-dl", *filled] if filled else [],
        _git(directory, ("status", "--ignored"), rest),
    )
    return " && ".join(map(shlex.join, filter(None, commands)))


def put_away_command(files: Sequence[BlockingFile], directory: str = "") -> str:
    """Return the command that puts the files away without losing them: into a stash, or under another name."""
    commands: list[list[str]] = []
    own = [file for file in files if file.kind is BlockingKind.OWN][:MAX_NAMES]
    commands.append(_git(directory, ("rm", "-rq", "--cached"), [file.name for file in own if file.is_in_index]))
    commands += [
        ["mv", _path(file.name, directory), _path(file.free_name, directory)] for file in own if file.free_name
    ]
    for file in files:
        if file.kind is BlockingKind.FILLED_SUBMODULE:
            path = _path(file.name, directory)
            commands += [["mv", path, _path(file.free_name, directory)], ["mkdir", path]]
    moved = [file.name for file in files if file.kind is BlockingKind.MOVED_SUBMODULE]
    commands.append(_git(directory, ("reset", "-q"), moved))
    commands.append(_git(directory, ("submodule", "update", "-q"), moved))
    changed = [file for file in files if file.kind is BlockingKind.CHANGED]
    for flag in sorted({flag for file in changed for flag in file.flags}):
        names = [file.name for file in changed if flag in file.flags]
        commands.append(_git(directory, ("update-index", f"--no-{flag}"), names))
    commands.append(_git(directory, ("reset", "-q"), [file.name for file in changed if not file.is_in_index]))
    few = len(changed) <= MAX_NAMES
    stash = _git(directory, ("stash", "push", "-q"), [file.name for file in changed])
    commands.append(stash if few else stash[: stash.index("--")])
    return " && ".join(shlex.join(command) for command in commands if command)


def _git(directory: str, words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a git command on these paths; an empty list without paths."""
    if not names:
        return []
    literal = ["--literal-pathspecs"] if any(name.startswith(":") or set("*?[\\") & {*name} for name in names) else []
    return ["git", *(["-C", directory] if directory else []), *literal, *words, "--", *names]


def _path(name: str, directory: str) -> str:
    name = name.rstrip("/")
    return f"{directory or '.'}/{name}" if directory or name.startswith("-") else name
