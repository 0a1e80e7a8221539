"""The directory of a crew's slots: the record of it, the mark in it, making and removing it."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from liza.repo.slots import slot_records
from liza.rules.errors import GitFailed, Refused
from liza.rules.paths import Paths
from liza.rules.project import slots_location
from liza.rules.project.slots_location import MARK_FILE, DirectoryFacts, SlotsMark, SlotsRecord
from liza.system import crash_points, small_file

_UNFINISHED = f".{MARK_FILE}.*"
"""Names of a mark that is being written, or that a killed process left unfinished."""


def read_record(paths: Paths) -> SlotsRecord | None:
    """The record of where the slots are; None if there is none, or if it is not a record. Raises OSError."""
    words = _read_json(paths.slots_record)
    try:
        return SlotsRecord(Path(words["root"]), Path(words["place"]), words["id"], words.get("made") is True)
    except (KeyError, TypeError):
        return None


def write_record(paths: Paths, placed: SlotsRecord) -> None:
    """Write the record with one rename. Raises OSError."""
    words = {"root": str(placed.root), "place": str(placed.directory), "id": placed.id, "made": placed.created_by_liza}
    _write_json(paths.slots_record, words)


def read_mark(place: Path) -> SlotsMark | None:
    """The mark of a directory; None if it has none, or if it is not a mark. Raises OSError."""
    words = _read_json(place / MARK_FILE)
    try:
        return SlotsMark(Path(words["root"]), words["id"])
    except (KeyError, TypeError):
        return None


def find_root(place: Path) -> Path | None:
    """The repository whose slots lie in a directory, by the directory's mark; None if it has none that holds.

    A mark of another user, or one whose repository names another crew by now, is no evidence. Raises OSError.
    """
    mark = read_mark(place)
    if mark is None or not _is_trusted_owner(place / MARK_FILE):
        return None
    placed = read_record(Paths(mark.root))
    return mark.root if placed is None or placed.id == mark.id else None


def choose_directory(root: Path, wanted: Path | None, environ: Mapping[str, str]) -> SlotsRecord:
    """The directory for the slots of a new crew: the one that a person wants, or the first that nothing speaks against.

    Nothing is made. Raises Refused, OSError.
    """
    if wanted is not None:
        place = slots_location.requested_directory(root, wanted.resolve())
        why = slots_location.directory_objection(root, inspect_directory(place))
        if why is not None:
            raise Refused(f"the worktrees cannot be in {place}: {why}", "liza init … --worktrees DIR")
        return new_record(root, place)
    refused = []
    for place in slots_location.propose_directories(root, _state_home(environ)):
        why = slots_location.directory_objection(root, inspect_directory(place.resolve()))
        if why is None:
            return new_record(root, place.resolve())
        refused.append(f"{place}: {why}")
    raise Refused("no directory for the worktrees: " + "; ".join(refused), "liza init … --worktrees DIR")


def new_record(root: Path, place: Path) -> SlotsRecord:
    """The record of a crew that has none yet. Raises OSError."""
    mark = read_mark(place) if place.is_dir() else None
    if mark is not None:
        # Left by an earlier crew of this repository.
        return SlotsRecord(root, place, mark.id, created_by_liza=True)
    return SlotsRecord(root, place, uuid.uuid4().hex, created_by_liza=not place.exists())


def inspect_directory(place: Path) -> DirectoryFacts:
    """What is found at a directory that is wanted for slots. Raises OSError."""
    above = next(one for one in (place, *place.parents) if one.exists())
    return DirectoryFacts(
        path=place,
        nearest_existing=above,
        is_directory=above.is_dir(),
        owned=above.stat().st_uid == os.geteuid(),
        writable=os.access(above, os.W_OK | os.X_OK),
        empty=not _entries(place),
        mark=read_mark(place) if place.is_dir() else None,
        checkout=next((one for one in (place, *place.parents) if (one / ".git").exists()), None),
    )


def ensure_directory(paths: Paths) -> None:
    """Make the directory of the slots, for this user only, with its mark. One that is there is left as it is.

    Raises Refused if it bears the mark of another crew, OSError.
    """
    placed = read_record(paths)
    if placed is None or placed.directory != paths.slots:
        # Without a record nobody chose a place: the slots are inside the repository.
        paths.slots.mkdir(parents=True, exist_ok=True)
        return
    mark = read_mark(placed.directory) if placed.directory.is_dir() else None
    if mark is not None and mark.id != placed.id:
        raise Refused(f"the worktrees directory {placed.directory} belongs to the crew of {mark.root}", "liza doctor")
    if not placed.directory.is_dir():
        placed.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        placed.directory.mkdir(mode=0o700)
        crash_points.point("made", "slots")
    if mark is None or mark.root != placed.root:
        write_mark(placed)


def foreign_error(paths: Paths, common: Path) -> Refused | None:
    """Why the slots cannot be at their place: something else stands there, or they lie elsewhere. None if they can.

    ``common``: the git directory that the worktrees share. Raises OSError.
    """
    place, placed = paths.slots, read_record(paths)
    if not os.path.lexists(place):
        found = None if placed is None or placed.directory != place else _find_renamed(placed)
        told = f"{place} is not there: the worktrees of this crew lie in {found}"
        return None if found is None else Refused(told, shlex.join(["mv", str(found), str(place)]))
    if place.is_symlink():
        return None
    directory = place.is_dir()
    entries = _entries(place)
    own = any(slot_records.is_worktree_of(entry, common) for entry in entries)
    why = slots_location.foreign_reason(
        placed, place, directory, read_mark(place) if directory else None, own or not entries
    )
    if why is None:
        return None
    return Refused(
        f"{place} cannot hold the worktrees: {why}",
        f"mv {shlex.quote(str(place))} {shlex.quote(str(_unused_name(place)))}",
    )


def _find_renamed(placed: SlotsRecord) -> Path | None:
    """Where the slots of a crew are that were renamed alone; None if that is not known. Raises OSError."""
    own = SlotsMark(placed.root, placed.id)
    proposed = slots_location.propose_directories(placed.root, _state_home(os.environ))
    return next((place for place in proposed if place.is_dir() and read_mark(place) == own), None)


def _entries(place: Path) -> list[Path]:
    """What lies in a directory besides the mark, and besides a mark that is being written: one supervisor looks here
    while another one makes the directory. Raises OSError."""
    found = place.iterdir() if place.is_dir() else ()
    return [one for one in found if one.name != MARK_FILE and not one.match(_UNFINISHED)]


def _unused_name(place: Path) -> Path:
    names = (place.with_name(f"{place.name}.saved" + (f"-{number}" if number > 1 else "")) for number in count(1))
    return next(one for one in names if not os.path.lexists(one))


def write_mark(placed: SlotsRecord) -> None:
    """Write the mark of a slots directory that is there. Raises OSError."""
    _write_json(placed.directory / MARK_FILE, {"root": str(placed.root), "id": placed.id})


def remove_directory(paths: Paths) -> None:
    """Remove the directory of the slots, once no slot is in it; what else is in it keeps it. Raises OSError.

    Only a directory that Liza made and that bears this crew's mark is removed.
    """
    placed = read_record(paths)
    mark = None if placed is None or not placed.directory.is_dir() else read_mark(placed.directory)
    if placed is None or mark is None or mark.id != placed.id:
        return
    for one in (placed.directory / MARK_FILE, *placed.directory.glob(_UNFINISHED)):
        one.unlink(missing_ok=True)
    if placed.created_by_liza:
        with suppress(OSError):
            placed.directory.rmdir()


def record_after_move(paths: Paths, placed: SlotsRecord, environ: Mapping[str, str]) -> SlotsRecord:
    """The record of a repository that was moved or copied since ``placed`` was written. Raises Refused, OSError."""
    place = _find_moved(paths, placed, environ)
    if place is not None:
        return replace(placed, root=paths.root, directory=place)
    # It has no slots: none were made yet, they were deleted, or this is a copy of a repository that keeps them.
    if placed.directory == Paths(placed.root).slots:
        return replace(new_record(paths.root, Paths(paths.root).slots), created_by_liza=True)
    proposed = slots_location.propose_directories(placed.root, _state_home(environ))
    if not placed.directory.exists() and placed.directory not in proposed:
        # A person chose it. It is made again when it is needed.
        return new_record(paths.root, placed.directory)
    return choose_directory(paths.root, None, environ)


def _find_moved(paths: Paths, placed: SlotsRecord, environ: Mapping[str, str]) -> Path | None:
    """Where the slots of a repository are that was moved since its record was written; None if it has none of its own.

    They stay where they are if only the repository was moved, and are found beside it if both were, under the same
    name or renamed together with it. Raises OSError.
    """
    if placed.directory.is_relative_to(placed.root):
        candidates = [paths.root / placed.directory.relative_to(placed.root)]
    else:
        beside = Path(os.path.normpath(paths.root / os.path.relpath(placed.directory, placed.root)))
        candidates = [placed.directory, beside, *slots_location.propose_directories(paths.root, _state_home(environ))]
    for place in candidates:
        if not place.is_dir() or place.resolve() != place:
            continue
        mark = read_mark(place)
        other = read_record(Paths(mark.root)) if mark is not None else None
        if slots_location.is_own_directory(placed, mark, other, place):
            return place
    return None


def _state_home(environ: Mapping[str, str]) -> Path:
    named = environ.get("XDG_STATE_HOME", "")
    # A relative path is invalid by the XDG specification, and is ignored.
    return Path(named) if named.startswith("/") else Path.home() / ".local" / "state"


def _is_trusted_owner(path: Path) -> bool:
    """Whether a file is this user's or root's. In a container root may look at files of any user."""
    return os.geteuid() == 0 or path.stat().st_uid in (os.geteuid(), 0)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        words = json.loads(small_file.read_small_file(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, RecursionError, GitFailed):
        return {}
    return words if isinstance(words, dict) else {}


def _write_json(path: Path, words: Mapping[str, object]) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
        json.dump(words, stream, indent=1)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    crash_points.point("synced", path.name)
    aside.replace(path)
    crash_points.point("renamed", path.name)
