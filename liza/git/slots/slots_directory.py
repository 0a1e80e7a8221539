"""Directory of a crew's slots: its record, the mark file in it, creating and removing it."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from liza.git.rules import slots_location
from liza.git.rules.slots_location import MARK_FILE, DirectoryFacts, SlotsMark, SlotsRecord
from liza.git.slots import slot_records
from liza.model.errors import NotRegularFile, Refused
from liza.model.paths import BOXES, Paths
from liza.model.value_classes import replace
from liza.system import atomic, crash_points, files, untrusted_files

_UNFINISHED = f".{MARK_FILE}.*"
"""Pattern of temporary names of a mark file. A killed process may have left one."""


def read_record(paths: Paths) -> SlotsRecord | None:
    """Return the record of the slots directory, or None if it is missing or invalid. Raises OSError."""
    fields = _read_json(paths.slots_record)
    try:
        return SlotsRecord(Path(fields["root"]), Path(fields["place"]), fields["id"], fields.get("made") is True)
    except (KeyError, TypeError):
        return None


def write_record(paths: Paths, record: SlotsRecord) -> None:
    """Write the record atomically. Raises OSError."""
    fields = {"root": str(record.root), "place": str(record.directory), "id": record.id, "made": record.created_by_liza}
    _write_json(paths.slots_record, fields)


def read_mark(directory: Path) -> SlotsMark | None:
    """Return the mark of a directory, or None if it is missing or invalid. Raises OSError."""
    fields = _read_json(directory / MARK_FILE)
    try:
        return SlotsMark(Path(fields["root"]), fields["id"])
    except (KeyError, TypeError):
        return None


def find_root(directory: Path) -> Path | None:
    """Return the repository whose slots are in a directory, as its mark says, or None without a valid mark.

    A mark of another user is not trusted. If the repository of the mark is gone, or has a different crew now, it was
    moved: it is searched for beside the slots. Raises OSError.
    """
    mark = read_mark(directory)
    if mark is None or not _is_trusted_owner(directory / MARK_FILE):
        return None
    record = read_record(Paths(mark.root))
    if mark.root.exists() if record is None else record.id == mark.id:
        return mark.root
    moved = [path for path in directory.parent.iterdir() if _has_record(path, mark.id)]
    return moved[0] if len(moved) == 1 else None


def _has_record(root: Path, crew_id: str) -> bool:
    record = read_record(Paths(root))
    return record is not None and record.id == crew_id


def choose_directory(root: Path, wanted: Path | None, environ: Mapping[str, str]) -> SlotsRecord:
    """Choose the directory for the slots of a new crew: the requested one, or the first suitable default.

    Creates nothing. Raises Refused, OSError.
    """
    if wanted is not None:
        directory = slots_location.requested_directory(root, wanted.resolve())
        objection = slots_location.directory_objection(root, inspect_directory(directory))
        if objection is not None:
            raise Refused(f"the worktrees cannot be in {directory}: {objection}", 'liza init "…" --worktrees "…"')
        return new_record(root, directory)
    refused = []
    for directory in slots_location.propose_directories(root, _state_home(environ)):
        objection = slots_location.directory_objection(root, inspect_directory(directory.resolve()))
        if objection is None:
            return new_record(root, directory.resolve())
        refused.append(f"{directory}: {objection}")
    raise Refused("no directory for the worktrees: " + "; ".join(refused), 'liza init "…" --worktrees "…"')


def new_record(root: Path, directory: Path) -> SlotsRecord:
    """Return the record for a crew that has none yet. Raises OSError."""
    mark = read_mark(directory) if directory.is_dir() else None
    if mark is not None:
        # Left by an earlier crew of this repository.
        return SlotsRecord(root, directory, mark.id, created_by_liza=True)
    return SlotsRecord(root, directory, uuid.uuid4().hex, created_by_liza=not directory.exists())


def inspect_directory(path: Path) -> DirectoryFacts:
    """Return the facts about a directory that may be used for slots. Raises OSError."""
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    return DirectoryFacts(
        path=path,
        nearest_existing=existing,
        is_directory=existing.is_dir(),
        owned=existing.stat().st_uid == os.geteuid(),
        writable=os.access(existing, os.W_OK | os.X_OK),
        empty=not _entries(path),
        mark=read_mark(path) if path.is_dir() else None,
        checkout=next((candidate for candidate in (path, *path.parents) if (candidate / ".git").exists()), None),
    )


def ensure_directory(paths: Paths) -> None:
    """Create the slots directory, accessible to this user only, with its mark. An existing one is kept.

    Raises Refused if it has the mark of another crew, OSError.
    """
    record = read_record(paths)
    if record is None or record.directory != paths.slots:
        # Without a record the slots are in the default directory, inside the repository.
        paths.slots.mkdir(parents=True, exist_ok=True)
        return
    mark = read_mark(record.directory) if record.directory.is_dir() else None
    if mark is not None and mark.id != record.id:
        raise Refused(f"the worktrees directory {record.directory} belongs to the crew of {mark.root}", "liza doctor")
    if not record.directory.is_dir():
        record.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        record.directory.mkdir(mode=0o700)
        crash_points.point("made", "slots")
    if mark is None or mark.root != record.root:
        write_mark(record)


def foreign_error(paths: Paths, common: Path) -> Refused | None:
    """Return why the slots cannot be in their directory: it is not Liza's, or it was renamed. None if they can.

    ``common`` is the git directory that the worktrees share. Raises OSError.
    """
    path, record = paths.slots, read_record(paths)
    if not os.path.lexists(path):
        renamed = None if record is None or record.directory != path else _find_renamed(record)
        message = f"{path} does not exist: the worktrees of this crew are in {renamed}"
        return None if renamed is None else Refused(message, shlex.join(["mv", str(renamed), str(path)]))
    if path.is_symlink():
        return None
    is_directory = path.is_dir()
    entries = _entries(path)
    own = any(slot_records.is_worktree_of(entry, common) for entry in entries)
    reason = slots_location.foreign_reason(
        record, path, is_directory, read_mark(path) if is_directory else None, own or not entries
    )
    if reason is None:
        return None
    return Refused(f"{path} cannot hold the worktrees: {reason}", move_away_command(path))


def _find_renamed(record: SlotsRecord) -> Path | None:
    """Return the directory of slots that was renamed without its repository, or None. Raises OSError."""
    own = SlotsMark(record.root, record.id)
    proposed = slots_location.propose_directories(record.root, _state_home(os.environ))
    return next((path for path in proposed if path.is_dir() and read_mark(path) == own), None)


def list_directories(root: Path, recorded: Iterable[Path], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the slots directories of a repository, as their marks say: the newest mark first.

    ``recorded``: directories that git's records name. A directory that a person chose is found only there. Raises
    OSError.
    """
    candidates = dict.fromkeys((*slots_location.propose_directories(root, _state_home(environ)), *recorded))
    own = [path for path in candidates if path.is_dir() and _has_own_mark(path, root)]
    return tuple(sorted(own, key=lambda path: (path / MARK_FILE).stat().st_mtime_ns, reverse=True))


def _has_own_mark(directory: Path, root: Path) -> bool:
    mark = read_mark(directory)
    return mark is not None and mark.root == root and _is_trusted_owner(directory / MARK_FILE)


def remove_if_empty(directory: Path) -> tuple[Path, ...]:
    """Remove a slots directory of an earlier crew if it contains nothing but marks. Return what it contains otherwise.

    Raises OSError.
    """
    entries = _entries(directory)
    if not entries:
        for path in (directory / MARK_FILE, *directory.glob(_UNFINISHED)):
            path.unlink(missing_ok=True)
        directory.rmdir()
    return tuple(sorted(entries))


def _entries(directory: Path) -> list[Path]:
    """Return the entries of a directory, except the mark, temporary marks, the links to slots, and what boxes have.

    One supervisor may look while another creates the directory. Raises OSError.
    """
    entries = directory.iterdir() if directory.is_dir() else ()
    return [
        entry
        for entry in entries
        if entry.name not in (MARK_FILE, BOXES)
        and not entry.match(_UNFINISHED)
        and not slot_records.is_links_directory(entry)
    ]


def move_away_command(path: Path) -> str:
    """Return the command that gives a path a free name beside it, with short names in the current directory."""
    free, is_here = files.find_free_path(path.with_name(f"{path.name}-old")), path.parent == Path.cwd()
    return shlex.join(["mv", *(name.name if is_here else str(name) for name in (path, free))])


def write_mark(record: SlotsRecord) -> None:
    """Write the mark of an existing slots directory. Raises OSError."""
    _write_json(record.directory / MARK_FILE, {"root": str(record.root), "id": record.id})


def remove_directory(paths: Paths) -> None:
    """Remove the slots directory if it is empty except for the mark. Raises OSError.

    Removes it only if Liza created it and it has this crew's mark.
    """
    record = read_record(paths)
    mark = None if record is None or not record.directory.is_dir() else read_mark(record.directory)
    if record is None or mark is None or mark.id != record.id:
        return
    for path in (record.directory / MARK_FILE, *record.directory.glob(_UNFINISHED)):
        path.unlink(missing_ok=True)
    if record.created_by_liza:
        with suppress(OSError):
            record.directory.rmdir()
            if record.directory == Paths(paths.root).slots:
                record.directory.parent.rmdir()


def record_after_move(paths: Paths, record: SlotsRecord, environ: Mapping[str, str]) -> SlotsRecord:
    """Return the record of a repository that was moved or copied.

    ``record`` is the record from before. Raises Refused, OSError.
    """
    directory = _find_moved(paths, record, environ)
    if directory is not None:
        return replace(record, root=paths.root, directory=directory)
    # It has no slots: none were created yet, they were deleted, or this is a copy and the original has them.
    if record.directory == Paths(record.root).slots:
        return replace(new_record(paths.root, Paths(paths.root).slots), created_by_liza=True)
    proposed = slots_location.propose_directories(record.root, _state_home(environ))
    if not record.directory.exists() and record.directory not in proposed:
        # A person chose it. It is created again when it is needed.
        return new_record(paths.root, record.directory)
    return choose_directory(paths.root, None, environ)


def _find_moved(paths: Paths, record: SlotsRecord, environ: Mapping[str, str]) -> Path | None:
    """Return the slots directory of a repository that was moved, or None if it has none of its own.

    The directory stays where it was if only the repository moved. If both moved, it is beside the repository, under the
    same name or a name derived from the new one. Raises OSError.
    """
    if record.directory.is_relative_to(record.root):
        candidates = [paths.root / record.directory.relative_to(record.root)]
    else:
        beside = Path(os.path.normpath(paths.root / os.path.relpath(record.directory, record.root)))
        candidates = [record.directory, beside, *slots_location.propose_directories(paths.root, _state_home(environ))]
    for path in candidates:
        if not path.is_dir() or path.resolve() != path:
            continue
        mark = read_mark(path)
        other = read_record(Paths(mark.root)) if mark is not None else None
        if slots_location.is_own_directory(record, mark, other, path):
            return path
    return None


def _state_home(environ: Mapping[str, str]) -> Path:
    value = environ.get("XDG_STATE_HOME", "")
    # A relative path is invalid by the XDG specification, and is ignored.
    return Path(value) if value.startswith("/") else Path.home() / ".local" / "state"


def _is_trusted_owner(path: Path) -> bool:
    """Return whether a file belongs to this user or root. Root, as in a container, trusts every owner."""
    return os.geteuid() == 0 or path.stat().st_uid in (os.geteuid(), 0)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(untrusted_files.read_record(path))
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, RecursionError, NotRegularFile):
        return {}
    return fields if isinstance(fields, dict) else {}


def _write_json(path: Path, fields: Mapping[str, object]) -> None:
    atomic.write(path, f"{json.dumps(fields, indent=1)}\n".encode("utf-8", "surrogateescape"))
