"""Refuse to start git in a git directory that would block it, fill the memory, or lead it into another repository.

Agents can write in ``.git``. At a pipe git waits until its timeout; a device without an end fills the memory. The check
takes one stat per file, 0.2 ms with ten worktrees, and its error names the file and the command that removes it. Other
defects are left to git, which reports them itself.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from liza.repo.worktree_records import records_directory
from liza.rules.errors import GitFailed, NotRegularFile
from liza.system import untrusted_files

# Files that git reads completely, or waits for, whatever the command: those of all worktrees, and of this worktree.
_SHARED_FILES = ("HEAD", "config", "info/attributes", "info/exclude", "packed-refs", "shallow")
_OWN_FILES = ("HEAD", "index")
_RECORD_FILES = ("HEAD", "commondir", "gitdir", "locked")  # files of the other worktrees
RECORD_FREE = {
    *("add", "am", "archive", "cat-file", "check-attr", "check-ignore", "checkout-index", "cherry-pick"),
    *("clean", "commit", "commit-tree", "config", "diff", "diff-files", "diff-tree"),
    *("fast-import", "for-each-ref", "grep", "hash-object", "init", "log", "ls-files"),
    *("ls-tree", "merge-base", "merge-tree", "mktree", "read-tree", "rebase", "reflog"),
    *("reset", "restore", "rev-list", "rev-parse", "show", "show-ref", "status"),
    *("symbolic-ref", "update-index", "update-ref", "version", "write-tree"),
}
"""Commands that do not read the records of other worktrees, without the arguments below. They go on: one bad record
stops no merge. Every other command counts as one that reads them."""
_RECORD_OPTIONS = {"--all", "--indexed-objects", "--reflog"}
_REF = re.compile(r"refs/[^\0^~:]+")
_MAX_GITFILE = 4096 + 16  # bytes in a file `.git`: PATH_MAX and "gitdir: "


def check_git_dir(args: Sequence[str], directory: Path, git_dir: Path | None, common: Path | None) -> None:
    """Raise GitFailed if the git command ``args`` would read an endless file or another repository.

    ``git_dir`` and ``common`` are the git directories that git is given, or None if it finds them from ``directory``.
    """
    if common is not None and common == git_dir and os.path.lexists(common / "commondir"):
        # git would read the refs of another repository, whatever the environment says.
        _refuse(args, common / "commondir", "leads into another repository")
    own = git_dir or _find_git_dir(directory)
    shared = common or _find_common_dir(directory, own)
    for path in _read_files(args, own, shared):
        if _is_endless(path):
            _refuse(args, path, "is a pipe, a device or a socket, not a regular file")


def read_gitfile(path: Path) -> Path | None:
    """Return the git directory that a file ``.git`` names; None if it names none, or is not a regular file.

    The result is relative to the directory of the file if the file says so. Raises OSError.
    """
    try:
        text = os.fsdecode(untrusted_files.read(path, _MAX_GITFILE)).rstrip("\n")
    except (FileNotFoundError, NotADirectoryError, NotRegularFile):
        return None
    return path.parent / text.removeprefix("gitdir: ") if text.startswith("gitdir: ") else None


def _read_files(args: Sequence[str], git_dir: Path | None, common: Path | None) -> Iterator[str]:
    """Yield the paths of the files that git may read. A ref that the arguments name may be a file."""
    if git_dir is not None:
        yield from (f"{git_dir}/{name}" for name in _OWN_FILES)
    if common is None:
        return
    yield from (f"{common}/{name}" for name in _SHARED_FILES)
    yield from (f"{common}/{ref.group()}" for ref in map(_REF.match, args) if ref)
    if not _reads_records(args):
        return
    try:
        records = [entry.path for entry in os.scandir(records_directory(common))]
    except OSError:
        return
    yield from (f"{record}/{name}" for record in records for name in _RECORD_FILES)


def _reads_records(args: Sequence[str]) -> bool:
    """Return whether the git command reads the records of other worktrees."""
    command = next((arg for arg in args if not arg.startswith("-")), "")
    is_free = command in RECORD_FREE and _RECORD_OPTIONS.isdisjoint(args)
    return not is_free or any("worktreepath" in arg for arg in args)


def _is_endless(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - called some 50 times for each git
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _refuse(args: Sequence[str], path: str | Path, reason: str) -> None:
    raise GitFailed(f"git {args[0]} was not run: {path} {reason}", shlex.join(["rm", str(path)]))


def _find_git_dir(directory: Path) -> Path | None:
    """Return the git directory of a worktree, without running git; None if it is unknown."""
    dot_git = directory / ".git"
    return dot_git if dot_git.is_dir() else read_gitfile(dot_git)


def _find_common_dir(directory: Path, git_dir: Path | None) -> Path | None:
    """Return the git directory that all worktrees share, without running git; None if it is unknown."""
    if git_dir is None or git_dir == directory / ".git" or git_dir.parent.name != "worktrees":
        return git_dir  # also of a checkout whose git directory is elsewhere
    return git_dir.parent.parent
