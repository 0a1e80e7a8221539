"""Bring the files and the index of a worktree from one commit to another, also after a killed move.

A file is in transition if it has the content of either commit, is missing, or is a beginning of that content: all of
that is in git. Any other file is a person's and is never overwritten.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from liza.repo.runner import Git
from liza.rules.value_classes import Value

_ABSENT_MODE, _LINK_MODE, _SUBMODULE_MODE = "000000", "120000", "160000"


class _Change(Value):
    """A file that differs between two commits: its mode and blob in each."""

    path: str
    old_entry: tuple[str, str]
    new_entry: tuple[str, str]


def is_behind(git: Git, old: str, new: str) -> bool:
    """Return whether the index has an entry of ``old`` that differs in ``new``. Raises GitFailed."""
    index = _read_index(git)
    return any(index.get(change.path) == _index_entry(change.old_entry) for change in _diff_commits(git, old, new))


def find_user_changes(git: Git, index: Path, old: str, new: str) -> tuple[str, ...]:
    """Return the files that a person changed among those that differ between the commits.

    ``index`` is overwritten. Raises GitFailed.
    """
    git_copy = git.with_environment(GIT_INDEX_FILE=str(index))
    changes = _diff_commits(git, old, new)
    return tuple(change.path for change in _find_pending(git_copy, changes) if not _is_in_transition(git, change))


def update_files(git: Git, index: Path, old: str, new: str) -> None:
    """Bring files in transition, and ``index``, from ``old`` to ``new``. A person's changes stay.

    Idempotent. Raises GitFailed.
    """
    git_copy = git.with_environment(GIT_INDEX_FILE=str(index))
    changes = _diff_commits(git, old, new)
    pending = [change for change in _find_pending(git_copy, changes) if _is_in_transition(git, change)]
    for change in pending:
        if change.new_entry[0] == _ABSENT_MODE:
            _remove_file(git.directory, change.path)
    written = [change.path for change in pending if change.new_entry[0] not in (_ABSENT_MODE, _SUBMODULE_MODE)]
    if written:
        names = "".join(f"{name}\0" for name in written)
        git_copy.out("checkout-index", "--force", "--index", "--quiet", "-z", "--stdin", stdin=names)


def _diff_commits(git: Git, old: str, new: str) -> list[_Change]:
    fields = iter(git.names("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new))
    changes = []
    for field in fields:
        mode_old, mode_new, blob_old, blob_new, _ = field.removeprefix(":").split(" ")
        changes.append(_Change(next(fields), (mode_old, blob_old), (mode_new, blob_new)))
    return changes


def _find_pending(git_copy: Git, changes: list[_Change]) -> list[_Change]:
    """Return the changes whose file does not have its new content.

    Writes the new entries into the index, except for files that a person has staged.
    """
    index = _read_index(git_copy)
    unstaged = [
        change
        for change in changes
        if index.get(change.path) in (_index_entry(change.old_entry), _index_entry(change.new_entry))
    ]
    rows = "".join(f"{change.new_entry[0]} {change.new_entry[1]} 0\t{change.path}\0" for change in unstaged)
    if rows:
        git_copy.out("update-index", "-z", "--index-info", stdin=rows)
        git_copy.run("update-index", "-q", "--refresh")
    differ = {*git_copy.names("diff-files", "-z", "--name-only")}
    return [
        change
        for change in unstaged
        if change.path in differ
        or (change.new_entry[0] == _ABSENT_MODE and os.path.lexists(git_copy.directory / change.path))
    ]


def _read_index(git: Git) -> dict[str, tuple[str, str] | None]:
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in rows}


def _index_entry(entry: tuple[str, str]) -> tuple[str, str] | None:
    return None if entry[0] == _ABSENT_MODE else entry


def _is_in_transition(git: Git, change: _Change) -> bool:
    path = git.directory / change.path
    if _SUBMODULE_MODE in (change.old_entry[0], change.new_entry[0]):
        return False
    try:
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except IsADirectoryError:
        # A directory that becomes a file: each file in it is a change of its own.
        return True
    return any(
        _checkout_content(git, change.path, entry).startswith(content)
        for entry in (change.old_entry, change.new_entry)
        if entry[0] != _ABSENT_MODE
    )


def _checkout_content(git: Git, path: str, entry: tuple[str, str]) -> bytes:
    """Return the bytes that a checkout writes for this entry."""
    if entry[0] == _LINK_MODE:
        return git.raw("cat-file", "blob", entry[1])
    return git.raw("cat-file", "--filters", f"--path={path}", entry[1])


def _remove_file(top: Path, name: str) -> None:
    path = top / name
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        path.unlink()
    for parent in path.parents:
        if parent == top:
            return
        with suppress(OSError):
            parent.rmdir()
