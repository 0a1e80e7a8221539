"""Archive files that lost entries which the history has: find them, and write the recorded version again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from liza.board import archive_files, archive_loss, recorded_archive
from liza.board.archive_loss import ArchiveLoss
from liza.crew.crew import Crew
from liza.git import board_history
from liza.model.errors import BoardInconsistent
from liza.system import atomic, crash_points, files

REPAIR = "liza archive --repair"
"""It restores files as `liza restore --last-good` does, and corrects the numbers on the board."""


def mending_command(crew: Crew, name: str, loss: ArchiveLoss) -> str:
    """Return the command that leads out of the damage of a file. The history is not searched here."""
    path = crew.paths.archive / name
    if loss.is_recorded or not os.path.lexists(path):
        return REPAIR
    if path.is_file() and not path.is_symlink():
        return f"$EDITOR {shlex.quote(str(path))}"
    return shlex.join(["mv", str(path), f"{path}.odd"])


def refuse_damaged(crew: Crew, losses: Mapping[str, ArchiveLoss]) -> None:
    """Raise BoardInconsistent if a file is damaged: then the ids of archived tasks are not all known."""
    for name, loss in sorted(losses.items()):
        raise BoardInconsistent(
            f"no task can be added: its id may be in .liza/archive/{name}, which is damaged: {loss.reason}",
            mending_command(crew, name, loss),
        )


class RestoredArchive(msgspec.Struct, frozen=True):
    """The files that were written from the history, and where the damaged ones are kept."""

    names: tuple[str, ...] = ()
    copies: tuple[Path, ...] = ()


class Mending(msgspec.Struct, frozen=True):
    """A change of the file ``name`` from the bytes ``before`` to ``after``. ``before`` is None if it cannot be read."""

    name: str
    before: bytes | None
    after: bytes


def restore_files(crew: Crew, by: str) -> RestoredArchive:
    """Give the damaged and missing files what they lost, from the newest good version in the history.

    A file without a good version stays. The history is read before the lock is taken.
    Raises GitFailed, BoardInconsistent, WriteFailed.
    """
    if crew.paths.archive_intent.exists():
        recorded_archive.end_move(crew, by)
    names = sorted({*recorded_archive.list_recorded(crew), *archive_files.list_names(crew.paths)})
    plans = [
        plan
        for name, loss in recorded_archive.find_losses(crew, names).items()
        if (plan := _plan_mending(crew, name, loss))
    ]
    if not plans:
        return RestoredArchive()
    # Under the lock: a move appends to a file.
    with crew.board.transaction(by, "restore"):
        copies = [_mend(crew, plan) for plan in plans]
    return RestoredArchive(tuple(plan.name for plan in plans), tuple(filter(None, copies)))


def _plan_mending(crew: Crew, name: str, loss: ArchiveLoss) -> Mending | None:
    good, before = read_good_version(crew, name), _read_if_readable(crew, name)
    if good is None:
        return None
    # A file with other edits of a person keeps them.
    is_edited = before is not None and archive_loss.is_readable(before) and not good.startswith(before)
    after = archive_loss.add_entries(before, good, loss.ids) if before and is_edited else good
    return Mending(name, before, after) if after != before else None


def _read_if_readable(crew: Crew, name: str) -> bytes | None:
    with suppress(BoardInconsistent):
        return archive_files.read_bytes(crew.paths, name)
    return None


def _mend(crew: Crew, plan: Mending) -> Path | None:
    """Write a file and return the copy of the damaged one; None without one. The caller holds the lock.

    The copy is on disk before the file is replaced in one step. Raises BoardInconsistent, WriteFailed.
    """
    path = crew.paths.archive / plan.name
    if _read_if_readable(crew, plan.name) != plan.before:
        raise BoardInconsistent(f".liza/archive/{plan.name} has changed meanwhile", REPAIR)
    with files.convert_os_errors():
        crew.paths.archive.mkdir(mode=0o755, exist_ok=True)
        mode = (path.stat().st_mode & 0o777) if plan.before is not None else crew.paths.archive.stat().st_mode & 0o666
        copy = _keep_copy(crew, plan, mode)
        files.fsync_directory(crew.paths.archive)
        atomic.write_from(crew.paths.tx, path, plan.after, mode)
    files.fsync_directory(crew.paths.archive)
    return copy


def _keep_copy(crew: Crew, plan: Mending, mode: int) -> Path | None:
    """Copy a damaged file. One that cannot be read, as a directory, is renamed."""
    path, stamp = crew.paths.archive / plan.name, f"{crew.clock.now():%Y%m%dT%H%M%S}"
    if not os.path.lexists(path):
        return None
    copies = (path.with_name(f"{path.name}.damaged-{stamp}{f'.{number}' if number else ''}") for number in count())
    copy = next(free for free in copies if not os.path.lexists(free))
    if plan.before is None:
        path.rename(copy)
        crash_points.point("renamed", f"{plan.name}.damaged")
    else:
        atomic.write_from(crew.paths.tx, copy, plan.before, mode, label=f"{plan.name}.damaged")
    return copy


def read_good_version(crew: Crew, name: str) -> bytes | None:
    """Return the newest recorded version of a file that can be read as an archive; None if no version can."""
    newest = board_history.read_archive_file(crew.git, name)
    if newest is not None and archive_loss.is_readable(newest):
        return newest
    for data in board_history.iter_archive_versions(crew.git, name):
        if archive_loss.is_readable(data):
            return data
    return None
