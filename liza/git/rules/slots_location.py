"""Directory of a crew's worktree slots: proposals, objections, and the check to which crew a directory belongs.

Pure. `liza/git/slots/slots_directory.py` gathers the facts.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from liza.model.errors import Refused
from liza.model.paths import Paths
from liza.model.value_classes import Value

MARK_FILE = ".liza-worktrees.json"
"""File in a slots directory that names its crew."""
_PROPOSED = 9
"""Number of names that are tried beside a repository before the user's state directory is used."""


class SlotsRecord(Value):
    """The record ``.liza/worktrees.json``: the directory of this crew's slots.

    ``root`` is the path of the repository when the record was written; if it differs now, the repository was moved or
    copied. ``created_by_liza``: Liza created the directory, so a purge may remove it.
    """

    root: Path
    directory: Path
    id: str
    created_by_liza: bool


class SlotsMark(Value):
    """The file MARK_FILE of a slots directory: the repository and the id of the crew that the directory belongs to."""

    root: Path
    id: str


class DirectoryFacts(Value):
    """Facts about a possible slots directory.

    ``nearest_existing``: the directory, or the nearest existing one above it. ``owned``, ``writable``: that one belongs
    to this user and accepts new entries. ``empty``: it contains at most a mark. ``checkout``: git checkout around it.
    """

    path: Path
    nearest_existing: Path
    is_directory: bool
    owned: bool
    writable: bool
    empty: bool
    mark: SlotsMark | None
    checkout: Path | None


def refuse_line_break(root: Path) -> None:
    """Raise Refused if the path of a repository contains a line break: git stores paths as lines of text."""
    if "\n" in str(root):
        typed = str(root).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        better = shlex.quote(str(root).replace("\n", "-"))
        raise Refused(f"the path of the repository contains a line break: {str(root)!r}", f"mv $'{typed}' {better}")


def propose_directories(root: Path, state_home: Path) -> Iterator[Path]:
    """Yield possible slots directories, the best first: beside the repository, then below the user's state directory.

    For the root of the file system there is only the latter.
    """
    for number in range(1, _PROPOSED + 1) if root.name else ():
        yield root.with_name(f"{root.name}.worktrees" + (f"-{number}" if number > 1 else ""))
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    yield state_home / "liza" / "worktrees" / f"{root.name}-{digest}"


def requested_directory(root: Path, directory: Path) -> Path:
    """Return the directory that a person named; ``.worktrees`` of the repository means the slots directory in it."""
    paths = Paths(root)
    return paths.slots if directory == paths.slots.parent else directory


def directory_objection(root: Path, facts: DirectoryFacts) -> str | None:
    """Return why the slots of ``root`` cannot be in a directory; None if they can."""
    path = facts.path
    if "\n" in str(path):
        return "its path contains a line break"
    if path != Paths(root).slots:
        if path.is_relative_to(root):
            return "it is inside the repository"
        if root.is_relative_to(path):
            return "the repository is inside it"
        if facts.checkout is not None:
            return f"it is inside the git checkout {facts.checkout}"
    if facts.nearest_existing == path:
        if not facts.is_directory:
            return "it is not a directory"
        if facts.mark is not None and facts.mark.root != root:
            return f"it belongs to the crew of {facts.mark.root}"
        if not facts.empty:
            return "it is not empty"
        if not facts.owned:
            return "it belongs to another user"
    if not facts.writable:
        return f"{facts.nearest_existing} is not writable"
    return None


def is_own_directory(record: SlotsRecord, mark: SlotsMark | None, other: SlotsRecord | None, path: Path) -> bool:
    """Return whether the slots directory ``path`` belongs to the crew of ``record``.

    The repository of that crew was moved or copied. ``other`` is the record in the repository that ``mark`` names. A
    copied repository has the same id as its original; the directory belongs to the one whose record names it and whose
    path is the one in the mark.
    """
    if mark is None or mark.id != record.id:
        return False
    return other is None or other.id != mark.id or other.root != mark.root or other.directory != path


def foreign_reason(
    record: SlotsRecord | None, path: Path, directory: bool, mark: SlotsMark | None, own: bool
) -> str | None:
    """Return why ``path`` is not this crew's slots directory; None if it is.

    ``own``: it contains worktrees of this repository, or nothing. This decides if the mark is missing.
    """
    if not directory:
        return "it is not a directory"
    if record is None or record.directory != path:
        return None
    if mark is None:
        return None if own else "it contains other files and no worktree of this crew"
    return None if mark.id == record.id else f"it belongs to the crew of {mark.root}"
