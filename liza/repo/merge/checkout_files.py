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

_NONE, _LINK, _MODULE = "000000", "120000", "160000"


@dataclass(frozen=True)
class _Change:
    """A file that two commits have differently: mode and blob at one end, and at the other."""

    path: str
    here: tuple[str, str]
    there: tuple[str, str]


def behind(git: Git, old: str, new: str) -> bool:
    """Whether the index has something as ``old`` has it that ``new`` has differently. Raises GitFailed."""
    index = _index(git)
    return any(index.get(one.path) == _entry(one.here) for one in _changes(git, old, new))


def foreign(git: Git, index: Path, old: str, new: str) -> tuple[str, ...]:
    """The files that a person changed among those in which the two commits differ. ``index`` is written over."""
    aside = git.having(GIT_INDEX_FILE=str(index))
    changes = _changes(git, old, new)
    return tuple(one.path for one in _astray(aside, changes) if not _on_the_way(git, one))


def bring(git: Git, index: Path, old: str, new: str) -> None:
    """Have the files, and ``index``, as ``new`` has them where they were ``old``'s or on the way; a person's stay.

    Repeatable. Raises GitFailed.
    """
    aside = git.having(GIT_INDEX_FILE=str(index))
    changes = _changes(git, old, new)
    wanted = [one for one in _astray(aside, changes) if _on_the_way(git, one)]
    for one in wanted:
        if one.there[0] == _NONE:
            _remove(git.directory, one.path)
    written = [one.path for one in wanted if one.there[0] not in (_NONE, _MODULE)]
    if written:
        names = "".join(f"{name}\0" for name in written)
        aside.out("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin", stdin=names)


def _changes(git: Git, old: str, new: str) -> list[_Change]:
    words = iter(git.names("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new))
    found = []
    for word in words:
        mode_old, mode_new, blob_old, blob_new, _ = word.removeprefix(":").split(" ")
        found.append(_Change(next(words), (mode_old, blob_old), (mode_new, blob_new)))
    return found


def _astray(aside: Git, changes: list[_Change]) -> list[_Change]:
    """The changes whose file is not as the other end has it. The index has that end afterwards, but for a person's."""
    index = _index(aside)
    ours = [one for one in changes if index.get(one.path) in (_entry(one.here), _entry(one.there))]
    rows = "".join(f"{one.there[0]} {one.there[1]} 0\t{one.path}\0" for one in ours)
    if rows:
        aside.out("update-index", "-z", "--index-info", stdin=rows)
        aside.run("update-index", "-q", "--refresh")
    differ = {*aside.names("diff-files", "-z", "--name-only")}
    return [
        one
        for one in ours
        if one.path in differ or (one.there[0] == _NONE and os.path.lexists(aside.directory / one.path))
    ]


def _index(git: Git) -> dict[str, tuple[str, str] | None]:
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in rows}


def _entry(end: tuple[str, str]) -> tuple[str, str] | None:
    return None if end[0] == _NONE else end


def _on_the_way(git: Git, one: _Change) -> bool:
    path = git.directory / one.path
    if _MODULE in (one.here[0], one.there[0]):
        return False
    try:
        found = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except IsADirectoryError:
        # What was a directory becomes a file: its own files are judged one by one.
        return True
    return any(_text(git, one.path, end).startswith(found) for end in (one.here, one.there) if end[0] != _NONE)


def _text(git: Git, path: str, end: tuple[str, str]) -> bytes:
    """What a checkout writes for this end of a change."""
    if end[0] == _LINK:
        return git.raw("cat-file", "blob", end[1])
    return git.raw("cat-file", "--filters", f"--path={path}", end[1])


def _remove(top: Path, name: str) -> None:
    path = top / name
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        path.unlink()
    for parent in path.parents:
        if parent == top:
            return
        with suppress(OSError):
            parent.rmdir()
