"""Where the worktrees of a crew lie: which directories are proposed, which are refused, and whose a directory is.

Pure: facts come in, a decision with its reason goes out. `liza/repo/slots/slots_directory.py` gathers the facts.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from liza.rules.errors import Refused
from liza.rules.paths import Paths

MARK_FILE = ".liza-worktrees.json"
"""File in a slots directory that names its crew."""
_PROPOSED = 9
"""Names that are tried beside a repository, before the user's state directory is used."""


@dataclass(frozen=True)
class SlotsRecord:
    """The record ``.liza/worktrees.json``: where the slots of this crew lie.

    ``root`` is where the repository was when the record was written. Another root today means that it was moved or
    copied. ``made``: Liza made the directory, so a purge may remove it.
    """

    root: Path
    directory: Path
    id: str
    created_by_liza: bool


@dataclass(frozen=True)
class SlotsMark:
    """The file ``MARK`` of a slots directory: the repository and the id of the crew that it belongs to."""

    root: Path
    id: str


@dataclass(frozen=True)
class DirectoryFacts:
    """What was found at a directory, and around it.

    ``above``: the directory, or the nearest one above it that exists. ``owned``, ``writable``: that one belongs to this
    user, and takes new entries. ``empty``: nothing but a mark lies in it. ``checkout``: the git checkout it lies in.
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
    """Raises Refused for the path of a repository that holds a line break: git writes paths as lines of its records."""
    if "\n" in str(root):
        typed = str(root).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        better = shlex.quote(str(root).replace("\n", "-"))
        raise Refused(f"the path of the repository contains a line break: {str(root)!r}", f"mv $'{typed}' {better}")


def propose_directories(root: Path, state_home: Path) -> Iterator[Path]:
    """Directories for the slots of a repository, the best first: beside it, else below the user's state directory.
    Nothing is beside the root of the file system."""
    for number in range(1, _PROPOSED + 1) if root.name else ():
        yield root.with_name(f"{root.name}.worktrees" + (f"-{number}" if number > 1 else ""))
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    yield state_home / "liza" / "worktrees" / f"{root.name}-{digest}"


def requested_directory(root: Path, directory: Path) -> Path:
    """The place that a person named; ``.worktrees`` of the repository itself means the place inside it."""
    paths = Paths(root)
    return paths.slots if directory == paths.worktrees else directory


def directory_objection(root: Path, facts: DirectoryFacts) -> str | None:
    """Why the slots of ``root`` cannot lie at a directory; None if they can."""
    place = facts.path
    if "\n" in str(place):
        return "its path contains a line break"
    if place != Paths(root).slots:
        if place.is_relative_to(root):
            return "it lies in the repository"
        if root.is_relative_to(place):
            return "the repository lies in it"
        if facts.checkout is not None:
            return f"it lies in the git checkout {facts.checkout}"
    if facts.nearest_existing == place:
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


def is_own_directory(placed: SlotsRecord, mark: SlotsMark | None, other: SlotsRecord | None, place: Path) -> bool:
    """Whether a slots directory at ``place`` belongs to the crew of ``placed``, whose repository was moved or copied.

    ``other`` is the record found in the repository that ``mark`` names. A copied repository has the same id as its
    original; the directory belongs to the one whose record names it and that is still where the mark says.
    """
    if mark is None or mark.id != placed.id:
        return False
    return other is None or other.id != mark.id or other.root != mark.root or other.directory != place


def foreign_reason(
    placed: SlotsRecord | None, place: Path, directory: bool, mark: SlotsMark | None, own: bool
) -> str | None:
    """Why what stands at ``place`` is not this crew's directory of slots; None if it is.

    ``own``: worktrees of this repository lie in it, or nothing does. That shows whose it is where the mark is gone.
    """
    if not directory:
        return "it is not a directory"
    if placed is None or placed.directory != place:
        return None
    if mark is None:
        return None if own else "no worktree of this crew is in it, and something else is"
    return None if mark.id == placed.id else f"it belongs to the crew of {mark.root}"
