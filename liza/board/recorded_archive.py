"""The files of archived tasks in the history: which of them changed, and the restoration of deleted ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from liza.board import archive_files, archive_loss
from liza.board.archive_index import ArchiveIndex
from liza.board.archive_loss import ArchiveLoss
from liza.crew.crew import Crew
from liza.git import board_history
from liza.model.errors import BoardInconsistent, GitFailed, LizaError
from liza.model.value_classes import decodable
from liza.system import atomic, files, untrusted_files

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
        damaged = find_losses(crew, [*changed, *missing])
        good = [name for name in changed if name not in damaged]
        files_now = {name: archive_files.read_bytes(crew.paths, name) for name in good}
        if any(files.read_stamp(crew.paths.archive / name) != stamps[name] for name in good):
            return ChangedArchive()
        # A file keeps its stamp as long as it is damaged or missing. One whose entries are elsewhere is not missing.
        kept = {name: stamp for name, stamp in recorded.items() if name in damaged}
        return ChangedArchive(files_now, {name: stamps[name] for name in stamps if name not in damaged} | kept)
    return ChangedArchive()


class Comparison(msgspec.Struct, frozen=True):
    """What the file with this stamp lost against the recorded version with this object id."""

    stamp: files.Stamp | None
    recorded: str | None
    loss: ArchiveLoss | None


def find_losses(crew: Crew, names: Iterable[str]) -> dict[str, ArchiveLoss]:
    """Return which of these files are damaged or missing, by name, and what they lost.

    An entry that is on the board or in another file is not lost. A file that cannot be compared counts as damaged.
    Raises BoardInconsistent, LockTimeout.
    """
    losses = _compare_all(crew, names)
    ids = frozenset[str]().union(*(loss.ids for loss in losses.values()))
    if not ids:
        return losses
    present = {task.id for task in crew.board.read().tasks} | ArchiveIndex(crew.paths).find(ids).keys()
    return {
        name: remaining
        for name, loss in losses.items()
        if (remaining := archive_loss.subtract(loss, present)) is not None
    }


def _compare_all(crew: Crew, names: Iterable[str]) -> dict[str, ArchiveLoss]:
    """Compare files with the history. Only what changed since the last comparison is read and parsed."""
    try:
        recorded = board_history.list_archive(crew.git)
    except GitFailed as error:
        return {name: _incomparable(error) for name in names}
    before, losses = _read_comparisons(crew), dict[str, ArchiveLoss]()
    now = dict(before)
    for name in names:
        try:
            stamp, version = files.read_stamp(crew.paths.archive / name), recorded.get(name)
            previous = before.get(name)
            if previous is None or (previous.stamp, previous.recorded) != (stamp, version):
                now[name] = Comparison(stamp, version, _compare(crew, name, stamp, version))
            if (loss := now[name].loss) is not None:
                losses[name] = loss
        except BoardInconsistent as error:
            losses[name] = ArchiveLoss(error.message, is_recorded=name in recorded)
        except (GitFailed, OSError) as error:
            losses[name] = _incomparable(error)
    if now != before:
        with suppress(OSError):
            atomic.write(crew.paths.archive_compared, msgspec.json.encode(now), sync=False)
    return losses


def _incomparable(error: Exception) -> ArchiveLoss:
    return ArchiveLoss(f"it has changed and cannot be compared with the history: {error}")


def _compare(crew: Crew, name: str, stamp: files.Stamp | None, version: str | None) -> ArchiveLoss | None:
    recorded = None if version is None else board_history.read_object(crew.git, version)
    if stamp is None:
        return archive_loss.find_missing_loss(recorded)
    return archive_loss.find_loss(recorded, archive_files.read_bytes(crew.paths, name))


def _read_comparisons(crew: Crew) -> dict[str, Comparison]:
    with suppress(OSError, LizaError, ValueError, RecursionError):
        data = untrusted_files.read(crew.paths.archive_compared)
        return msgspec.json.decode(data, type=decodable(dict[str, Comparison]))
    return {}


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
    return find_losses(crew, changed)


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
        return tuple(find_losses(crew, [name for name in names if not (crew.paths.archive / name).exists()]))
