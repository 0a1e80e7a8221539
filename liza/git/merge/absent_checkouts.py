"""Checkouts of a branch that are absent: git's locked worktrees, for example on a removed drive.

Liza moves the branch without them. The index of such a checkout is then older than its branch, so a commit there would
revert merged work. Therefore its last commit is recorded in its git directory. The next merge that finds the checkout
again updates it. Until then it is reported.
"""

from __future__ import annotations

from pathlib import Path

from liza.git import worktree_records
from liza.git.git_config import git_dirs
from liza.git.merge import checkout_files
from liza.git.runner import COMMIT, Git
from liza.model.errors import NotRegularFile
from liza.model.value_classes import Value
from liza.system import atomic, untrusted_files

LAST_COMMIT_FILE = "liza-left"
"""File in the git directory of an absent checkout: the commit at which it was left."""


class AbsentCheckoutRecord(Value):
    """A checkout that was absent when its branch moved: its directory, its git directory, its last commit."""

    directory: Path
    git_dir: Path
    last_commit: str


def record_absent(git: Git, branch: str, commit: str) -> None:
    """Record the last commit of the absent checkouts of a branch, before the branch moves. Raises GitFailed."""
    for git_dir, gitfile in _linked_worktrees(git).items():
        if (
            not gitfile.parent.is_dir()
            and _read_head(git_dir) == f"ref: refs/heads/{branch}"
            and _read_last_commit(git_dir) is None
        ):
            atomic.write(git_dir / LAST_COMMIT_FILE, f"{commit}\n".encode(), 0o644)


def find_lagging(git: Git, branch: str) -> tuple[AbsentCheckoutRecord, ...]:
    """Return the checkouts of a branch that were absent when it moved. Raises GitFailed."""
    records = []
    for git_dir, gitfile in _linked_worktrees(git).items():
        last_commit = _read_last_commit(git_dir)
        if last_commit is not None and _read_head(git_dir) == f"ref: refs/heads/{branch}":
            records.append(AbsentCheckoutRecord(gitfile.parent, git_dir, last_commit))
    return tuple(records)


def remove_record(git: Git, record: AbsentCheckoutRecord) -> None:
    """Remove the record: the checkout is up to date."""
    (record.git_dir / LAST_COMMIT_FILE).unlink(missing_ok=True)


def is_lagging(git: Git, record: AbsentCheckoutRecord, tip: str) -> bool:
    """Return whether the index of an existing checkout still has entries of its last commit. Raises GitFailed."""
    return checkout_files.is_behind(git.at(record.directory), record.last_commit, tip)


def _linked_worktrees(git: Git) -> dict[Path, Path]:
    """Return the linked worktrees. git itself skips a record that it may not read: one stops no merge."""
    return worktree_records.list_worktrees(git_dirs(git)[1], skip_unreadable=True)


def _read_head(git_dir: Path) -> str:
    try:
        return untrusted_files.read_record(git_dir / "HEAD").decode(errors="replace").strip()
    except (OSError, NotRegularFile):
        return ""


def _read_last_commit(git_dir: Path) -> str | None:
    try:
        commit = untrusted_files.read_record(git_dir / LAST_COMMIT_FILE).decode(errors="replace").strip()
    except (OSError, NotRegularFile):
        return None
    return commit if COMMIT.fullmatch(commit) else None
