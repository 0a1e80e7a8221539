"""Operations of git that are not concluded in a worktree, such as a merge with conflicts, and the next step. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from liza.model.value_classes import Value
from liza.text.undecoded import list_names

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
