"""The files of archived tasks in the history: which of them changed, and the restoration of deleted ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from liza.board import archive_files
from liza.crew.crew import Crew
from liza.repo import board_history
from liza.rules.errors import LizaError
from liza.rules.value_classes import decodable
from liza.system import files, untrusted_files

if TYPE_CHECKING:
    from liza.crew.archive.archive_loss import ArchiveLoss

_MAX_LOOKS = 3
"""Looks at an archive to which other processes move tasks."""
Stamps = dict[str, files.Stamp]
"""The stamp of each archive file by its name."""


class ChangedArchive(msgspec.Struct, frozen=True):
    """The archive files that the history does not have yet, by name, and the stamps of all files then."""

    files: Mapping[str, bytes] = {}
    stamps: Stamps | None = None


def find_changed(crew: Crew) -> ChangedArchive:
    """Return the archive files that changed since they were recorded; none if the archive cannot be read now.

    A move under way ends first, or is repaired: without its files the history would have the moved tasks nowhere.
    """
    for _ in range(_MAX_LOOKS):
        if crew.paths.archive_intent.exists():
            with suppress(LizaError, OSError):
                end_move(crew, "recorder")
        archive = _read_changed(crew)
        # Read before this look, so that a move that began meanwhile is not recorded in half.
        if not crew.paths.archive_intent.exists():
            return archive
    return ChangedArchive()


def end_move(crew: Crew, by: str) -> None:
    """Wait for the end of a move to the archive, or repair it. Raises LizaError, OSError."""
    with crew.board.transaction(by, "archive"):
        # Nothing is changed: opening a transaction repairs.
        pass


def _read_changed(crew: Crew) -> ChangedArchive:
    if not crew.paths.archive.exists():
        return ChangedArchive()

    with suppress(LizaError, OSError):
        recorded, names = _read_stamps(crew), archive_files.list_names(crew.paths)
        stamps = {name: stamp for name in names if (stamp := files.read_stamp(crew.paths.archive / name)) is not None}
        changed = [name for name, stamp in stamps.items() if recorded.get(name) != stamp]
        missing = recorded.keys() - stamps.keys()
        # The history keeps the version before the damage: `restore` writes that one.
        damaged = _find_losses(crew, [*changed, *missing])
        good = [name for name in changed if name not in damaged]
        files_now = {name: archive_files.read_bytes(crew.paths, name) for name in good}
        if any(files.read_stamp(crew.paths.archive / name) != stamps[name] for name in good):
            return ChangedArchive()
        # A file keeps its stamp as long as it is damaged or missing. One whose entries are elsewhere is not missing.
        kept = {name: stamp for name, stamp in recorded.items() if name in damaged}
        return ChangedArchive(files_now, {name: stamps[name] for name in stamps if name not in damaged} | kept)
    return ChangedArchive()


def find_damaged(crew: Crew) -> dict[str, ArchiveLoss]:
    """Return the archive files that are missing or damaged since they were recorded, by name, and what they lost.

    Files that are unchanged since then are not read, nor is one with a move under way. Raises LizaError.
    """
    recorded = _read_stamps(crew)
    if not recorded and not crew.paths.archive.exists():
        return {}

    moving = archive_files.read_intent(crew.paths)
    names = {*recorded, *archive_files.list_names(crew.paths)} - {moving and moving.name}
    with files.convert_os_errors():
        changed = sorted(name for name in names if recorded.get(name) != files.read_stamp(crew.paths.archive / name))
    return _find_losses(crew, changed)


def _find_losses(crew: Crew, names: Sequence[str]) -> dict[str, ArchiveLoss]:
    if not names:
        return {}
    from liza.crew.archive import archive_damage

    return archive_damage.find_losses(crew, names)


def mark_recorded(crew: Crew, archive: ChangedArchive) -> None:
    """Note which files the history has. Without the note they are recorded again, which changes nothing."""
    if archive.files and archive.stamps is not None:
        with suppress(LizaError):
            files.replace_unsynced(crew.paths.archive_recorded, msgspec.json.encode(archive.stamps))


def forget_missing(crew: Crew) -> tuple[str, ...]:
    """Forget the missing files, after `restore_files`: the history cannot restore them. Return their names.

    Raises LizaError.
    """
    gone = tuple(name for name in find_damaged(crew) if not os.path.lexists(crew.paths.archive / name))
    if gone:
        stamps = {name: stamp for name, stamp in _read_stamps(crew).items() if name not in gone}
        files.replace_unsynced(crew.paths.archive_recorded, msgspec.json.encode(stamps))
    return gone


def list_recorded(crew: Crew) -> frozenset[str]:
    """Return the names of the files that were recorded, and those in the history. Raises GitFailed."""
    return frozenset(
        filter(archive_files.is_archive_name, {*_read_stamps(crew), *board_history.list_archive(crew.git)})
    )


def _read_stamps(crew: Crew) -> Stamps:
    try:
        data = untrusted_files.read_record(crew.paths.archive_recorded)
        return msgspec.json.decode(data, type=decodable(Stamps))
    except (OSError, LizaError, ValueError, RecursionError):
        return {}


def find_missing(crew: Crew) -> tuple[str, ...]:
    """Return the names of the archive files that the history has and whose entries are nowhere in `.liza/archive`.

    Raises GitFailed, WriteFailed.
    """
    with files.convert_os_errors():
        names = filter(archive_files.is_archive_name, board_history.list_archive(crew.git))
        return tuple(_find_losses(crew, [name for name in names if not (crew.paths.archive / name).exists()]))
