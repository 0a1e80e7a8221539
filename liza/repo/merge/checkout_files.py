"""The files and the index of a work tree between two commits: where they stand, and bringing them all to one side.

A file is on the way when it is what either commit has, or absent, or the beginning of what is being written: all of
that is in git. Anything else is a person's, and is neither read as progress nor ever written over.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from liza.repo.runner import Git

_ABSENT_MODE, _LINK_MODE, _SUBMODULE_MODE = "000000", "120000", "160000"


@dataclass(frozen=True)
class _Change:
    """A file that two commits have differently: mode and blob at one end, and at the other."""

    path: str
    old_entry: tuple[str, str]
    new_entry: tuple[str, str]


def is_behind(git: Git, old: str, new: str) -> bool:
    """Whether the index has something as ``old`` has it that ``new`` has differently. Raises GitFailed."""
    index = _read_index(git)
    return any(index.get(one.path) == _index_entry(one.old_entry) for one in _diff_commits(git, old, new))


def find_user_changes(git: Git, index: Path, old: str, new: str) -> tuple[str, ...]:
    """The files that a person changed among those in which the two commits differ. ``index`` is written over."""
    aside = git.with_environment(GIT_INDEX_FILE=str(index))
    changes = _diff_commits(git, old, new)
    return tuple(one.path for one in _find_pending(aside, changes) if not _is_in_transition(git, one))


def update_files(git: Git, index: Path, old: str, new: str) -> None:
    """Have the files, and ``index``, as ``new`` has them where they were ``old``'s or on the way; a person's stay.

    Repeatable. Raises GitFailed.
    """
    aside = git.with_environment(GIT_INDEX_FILE=str(index))
    changes = _diff_commits(git, old, new)
    wanted = [one for one in _find_pending(aside, changes) if _is_in_transition(git, one)]
    for one in wanted:
        if one.new_entry[0] == _ABSENT_MODE:
            _remove_file(git.directory, one.path)
    written = [one.path for one in wanted if one.new_entry[0] not in (_ABSENT_MODE, _SUBMODULE_MODE)]
    if written:
        names = "".join(f"{name}\0" for name in written)
        aside.out("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin", stdin=names)


def _diff_commits(git: Git, old: str, new: str) -> list[_Change]:
    words = iter(git.names("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new))
    found = []
    for word in words:
        mode_old, mode_new, blob_old, blob_new, _ = word.removeprefix(":").split(" ")
        found.append(_Change(next(words), (mode_old, blob_old), (mode_new, blob_new)))
    return found


def _find_pending(aside: Git, changes: list[_Change]) -> list[_Change]:
    """The changes whose file is not as the other end has it. The index has that end afterwards, but for a person's."""
    index = _read_index(aside)
    ours = [one for one in changes if index.get(one.path) in (_index_entry(one.old_entry), _index_entry(one.new_entry))]
    rows = "".join(f"{one.new_entry[0]} {one.new_entry[1]} 0\t{one.path}\0" for one in ours)
    if rows:
        aside.out("update-index", "-z", "--index-info", stdin=rows)
        aside.run("update-index", "-q", "--refresh")
    differ = {*aside.names("diff-files", "-z", "--name-only")}
    return [
        one
        for one in ours
        if one.path in differ or (one.new_entry[0] == _ABSENT_MODE and os.path.lexists(aside.directory / one.path))
    ]


def _read_index(git: Git) -> dict[str, tuple[str, str] | None]:
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in rows}


def _index_entry(end: tuple[str, str]) -> tuple[str, str] | None:
    return None if end[0] == _ABSENT_MODE else end


def _is_in_transition(git: Git, one: _Change) -> bool:
    path = git.directory / one.path
    if _SUBMODULE_MODE in (one.old_entry[0], one.new_entry[0]):
        return False
    try:
        found = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except IsADirectoryError:
        # What was a directory becomes a file: its own files are judged one by one.
        return True
    return any(
        _checkout_content(git, one.path, end).startswith(found)
        for end in (one.old_entry, one.new_entry)
        if end[0] != _ABSENT_MODE
    )


def _checkout_content(git: Git, path: str, end: tuple[str, str]) -> bytes:
    """What a checkout writes for this end of a change."""
    if end[0] == _LINK_MODE:
        return git.raw("cat-file", "blob", end[1])
    return git.raw("cat-file", "--filters", f"--path={path}", end[1])


def _remove_file(top: Path, name: str) -> None:
    path = top / name
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        path.unlink()
    for parent in path.parents:
        if parent == top:
            return
        with suppress(OSError):
            parent.rmdir()
