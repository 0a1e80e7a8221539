"""Worktrees of the repository that are not Liza's: a person's checkout, or one that another tool made.

They are read and never changed. No program of theirs runs: git is asked for refs and for the index, without filters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from liza.git.git_config import git_dirs, list_worktrees, switch_filters_off
from liza.git.git_refs import HEADS
from liza.git.rules.git_operations import GitOperation
from liza.git.runner import Git
from liza.git.survey import find_main_checkout, find_operation
from liza.model.value_classes import Value


class OtherWorktree(Value):
    """A worktree. ``branch`` is None if HEAD is detached, ``commit`` before the first commit. ``git_dir``: its own git
    directory."""

    path: Path
    git_dir: Path
    commit: str | None
    branch: str | None

    @property
    def operation(self) -> GitOperation | None:
        """The rebase, merge or other operation of git that is not concluded."""
        return find_operation(self.git_dir)


def find_top(directory: Path) -> Path | None:
    """Return the nearest directory, from this one on upwards, that has a ``.git``; None without one."""
    return next((path for path in (directory, *directory.parents) if (path / ".git").exists()), None)


def find_worktree(git: Git, top: Path) -> OtherWorktree | None:
    """Return the worktree of the repository of ``git`` at ``top``; None if it is of another one. Raises GitFailed."""
    common = git_dirs(git)[1]
    for path, commit, branch in _list(git):
        if path.exists() and path.samefile(top):
            records = list_worktrees(common, skip_unreadable=True)
            linked = (record for record, file in records.items() if file == path / ".git")
            return OtherWorktree(top, next(linked, common), commit, branch)
    return None


def _list(git: Git) -> Iterator[tuple[Path, str | None, str | None]]:
    """Yield path, commit and branch of each worktree."""
    output = git.with_config(("core.bare", "false")).out("worktree", "list", "--porcelain", "-z")
    for block in filter(None, output.split("\0\0")):
        values = dict(row.partition(" ")[::2] for row in block.split("\0"))
        commit, branch = values.get("HEAD", ""), values.get("branch")
        yield Path(values["worktree"]), commit if commit.strip("0") else None, branch and branch.removeprefix(HEADS)


def list_uncommitted(git: Git, worktree: OtherWorktree) -> tuple[str, ...]:
    """Return the tracked files of a worktree that differ from its commit, without a write and without a filter.

    Raises GitFailed.
    """
    common = git_dirs(git)[1]
    # By size and time alone: in a copy of a repository every file has another inode.
    stat = (("core.fsmonitor", "false"), ("core.checkStat", "minimal"), ("core.trustctime", "false"))
    # Git compares a file again that is as new as the index, and a filter may be a program of the worktree.
    settings = (*stat, *switch_filters_off(git))
    other = git.with_git_dir(worktree.path, worktree.git_dir, common).with_config(*settings)
    staged = other.names("diff-index", "--cached", "--name-only", "-z", "--ignore-submodules=all", "HEAD", "--")
    unstaged = other.names("diff-files", "--name-only", "-z", "--ignore-submodules=all")
    return tuple(dict.fromkeys((*staged, *unstaged)))


def list_untracked(git: Git, worktree: OtherWorktree) -> tuple[str, ...]:
    """Return the new files of a worktree, without ignored ones; a directory ends with a slash. Raises GitFailed."""
    other = git.with_git_dir(worktree.path, worktree.git_dir, git_dirs(git)[1]).with_config(("core.fsmonitor", "false"))
    return tuple(other.names("ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z"))


def find_main(directory: Path) -> Path | None:
    """Return the main checkout of the repository of a linked worktree; None if the directory is in none.

    Raises GitFailed.
    """
    top = find_top(directory)
    if top is None or (top / ".git").is_dir():
        return None
    git = Git(top)
    return find_main_checkout(git, git_dirs(git)[1])
