"""git's records of linked worktrees: the directories below ``.git/worktrees``. People's worktrees have records, too."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from pathlib import Path

from liza.model.errors import NotRegularFile
from liza.system import untrusted_files

_MAX_GITFILE = 4096 + 16  # bytes in a file `.git`: PATH_MAX and "gitdir: "


def records_directory(common: Path) -> Path:
    """Return the directory of the records in the git directory that all worktrees share."""
    return common / "worktrees"


def list_worktrees(common: Path, *, skip_unreadable: bool = False) -> dict[Path, Path]:
    """Return the git directory of each linked worktree with the path of its ``.git`` file, existing or not, sorted.

    Records that name no such file are left out. ``skip_unreadable``: so are those that this user may not read, for a
    caller that looks for something in all of them. Otherwise raises OSError.
    """
    directory = records_directory(common)
    records = sorted(directory.iterdir()) if directory.is_dir() else ()
    worktrees = {}
    for record in records:
        with suppress(PermissionError) if skip_unreadable else nullcontext():
            gitfile = recorded_path(record)
            if gitfile is not None:
                worktrees[record] = gitfile
    return worktrees


def recorded_path(git_dir: Path) -> Path | None:
    """Return the path of the ``.git`` file that a worktree record names, existing or not; None if it names none."""
    try:
        # A path is arbitrary bytes, and a record may be incomplete.
        text = os.fsdecode(untrusted_files.read_record(git_dir / "gitdir")).removesuffix("\n")
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    return Path(os.path.normpath(git_dir / text)) if text else None


def read_gitfile(path: Path) -> Path | None:
    """Return the git directory that a file ``.git`` names; None if it names none, or is not a regular file.

    The result is relative to the directory of the file if the file says so. Raises OSError.
    """
    try:
        text = os.fsdecode(untrusted_files.read(path, _MAX_GITFILE)).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    return path.parent / text.removeprefix("gitdir: ") if text.startswith("gitdir: ") else None
