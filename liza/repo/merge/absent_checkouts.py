"""Checkouts of a branch that are not there now: git's locked worktrees, on a drive that was taken away.

Liza moves the branch without them. The index in such a checkout then lags behind its branch: a commit there would
revert what was merged meanwhile. So the commit that the checkout was left at is noted in its git directory, the
checkout is brought along by the next merge that finds it there again, and until then it is reported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.merge import checkout_files
from liza.repo.runner import COMMIT, Git
from liza.rules.errors import GitFailed
from liza.system import small_file

LAST_COMMIT_FILE = "liza-left"
"""In the git directory of a checkout that was absent: the commit that it was left at."""


@dataclass(frozen=True)
class AbsentCheckoutRecord:
    """A checkout that was absent when its branch moved: its directory, its git directory, the commit it was left at."""

    directory: Path
    git_dir: Path
    last_commit: str


def record_absent(git: Git, branch: str, commit: str) -> None:
    """Note the commit at which the absent checkouts of a branch were left, before it moves on. Raises GitFailed."""
    for admin, place in _linked_worktrees(git).items():
        if not place.is_dir() and _read_head(admin) == f"ref: refs/heads/{branch}" and _read_last_commit(admin) is None:
            aside = admin / f"{LAST_COMMIT_FILE}.{os.getpid()}"
            aside.write_text(f"{commit}\n")
            aside.replace(admin / LAST_COMMIT_FILE)


def find_lagging(git: Git, branch: str) -> tuple[AbsentCheckoutRecord, ...]:
    """The checkouts of a branch that it was moved without. Raises GitFailed."""
    found = []
    for admin, place in _linked_worktrees(git).items():
        left = _read_last_commit(admin)
        if left is not None and _read_head(admin) == f"ref: refs/heads/{branch}":
            found.append(AbsentCheckoutRecord(place, admin, left))
    return tuple(found)


def remove_record(git: Git, one: AbsentCheckoutRecord) -> None:
    """The checkout was brought along, or needs it no more."""
    (one.git_dir / LAST_COMMIT_FILE).unlink(missing_ok=True)


def is_lagging(git: Git, one: AbsentCheckoutRecord, tip: str) -> bool:
    """Whether the index of a checkout that is there still has what the branch left behind. Raises GitFailed."""
    return checkout_files.is_behind(git.at(one.directory), one.last_commit, tip)


def _linked_worktrees(git: Git) -> dict[Path, Path]:
    """The git directories of linked worktrees, there or not, each with the directory of its checkout."""
    places = git_dirs(git)[1] / "worktrees"
    found = {}
    for admin in sorted(places.iterdir()) if places.is_dir() else ():
        try:
            leads = small_file.read_small_file(admin / "gitdir").decode("utf-8", "surrogateescape").removesuffix("\n")
        except (OSError, GitFailed):
            continue
        if leads:
            found[admin] = Path(os.path.normpath(admin / leads)).parent
    return found


def _read_head(admin: Path) -> str:
    try:
        return small_file.read_small_file(admin / "HEAD").decode(errors="replace").strip()
    except (OSError, GitFailed):
        return ""


def _read_last_commit(admin: Path) -> str | None:
    try:
        left = small_file.read_small_file(admin / LAST_COMMIT_FILE).decode(errors="replace").strip()
    except (OSError, GitFailed):
        return None
    return left if COMMIT.fullmatch(left) else None
