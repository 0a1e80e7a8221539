"""Archive files that lost entries which the history has: find them, and write the recorded version again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from liza.board import archive_files
from liza.crew.archive import archive_loss
from liza.crew.archive.archive_loss import ArchiveLoss
from liza.crew.crew import Crew
from liza.repo import board_history
from liza.rules.errors import BoardInconsistent
from liza.system import crash_points, files

REPAIR = "liza archive --repair"
"""It restores files as `liza restore --last-good` does, and corrects the numbers on the board."""


def find_losses(crew: Crew, names: Iterable[str]) -> dict[str, ArchiveLoss]:
    """Return which of these files are damaged, by name, and what they lost.

    An entry that is on the board or in another file is not lost. Raises GitFailed, BoardInconsistent.
    """
    losses = {name: loss for name in names if (loss := _find_loss(crew, name)) is not None}
    if not any(loss.ids for loss in losses.values()):
        return losses
    present = _list_present_ids(crew)
    for name, loss in tuple(losses.items()):
        gone = loss.ids - present
        if gone != loss.ids and archive_loss.is_readable(_read(crew, name)):
            # A person moved entries: the file is an edited one, not a damaged one.
            losses.pop(name)
            if gone:
                losses[name] = archive_loss.lost_entries(gone)
    return losses


def _find_loss(crew: Crew, name: str) -> ArchiveLoss | None:
    try:
        present = _read(crew, name)
    except BoardInconsistent as error:
        return ArchiveLoss(error.message)
    if (recorded := board_history.read_archive_file(crew.git, name)) is None and crew.paths.archive_intent.exists():
        # The first move to it is under way.
        return None
    return archive_loss.find_loss(recorded, present)


def _read(crew: Crew, name: str) -> bytes:
    return archive_files.read_bytes(crew.paths, name)


def _list_present_ids(crew: Crew) -> frozenset[str]:
    ids = {task.id for task in crew.board.read().tasks}
    for name in archive_files.list_names(crew.paths):
        try:
            ids |= archive_loss.list_ids(_read(crew, name))
        except BoardInconsistent:
            continue
    return frozenset(ids)


def mending_command(crew: Crew, name: str) -> str:
    """Return the command that leads out of the damage of a file."""
    path = crew.paths.archive / name
    if read_good_version(crew, name) is not None:
        return REPAIR
    if path.is_file() and not path.is_symlink():
        return f"$EDITOR {shlex.quote(str(path))}"
    return shlex.join(["mv", str(path), f"{path}.odd"])


def refuse_damaged(crew: Crew, losses: Mapping[str, ArchiveLoss]) -> None:
    """Raise BoardInconsistent if a file is damaged: then the ids of archived tasks are not all known."""
    for name, loss in sorted(losses.items()):
        raise BoardInconsistent(
            f"no task can be added: its id may be in .liza/archive/{name}, which is damaged: {loss.reason}",
            mending_command(crew, name),
        )


def restore_damaged(crew: Crew, by: str) -> dict[str, Path]:
    """Replace each damaged file by its newest good version in the history, and return the copies of the damaged ones.

    Entries that only the damaged file has are appended. A file without a good version stays.
    Raises GitFailed, BoardInconsistent, WriteFailed.
    """
    names = archive_files.list_names(crew.paths)
    versions = {name: read_good_version(crew, name) for name in find_losses(crew, names)}
    kept = {}
    # Under the lock: a move appends to a file.
    with crew.board.transaction(by, "restore"):
        for name, good in versions.items():
            if good is None:
                continue
            try:
                content = archive_loss.add_entries(good, _read(crew, name))
            except BoardInconsistent:
                content = good
            kept[name] = _keep_copy(crew, name)
            files.replace_unsynced_via(crew.paths.tx, crew.paths.archive / name, content)
    if kept:
        files.fsync_directory(crew.paths.archive)
    return kept


def _keep_copy(crew: Crew, name: str) -> Path:
    """Rename a damaged file. After a crash it is missing: the next `restore` writes it."""
    stamp = f"{crew.clock.now():%Y%m%dT%H%M%S}"
    copies = (crew.paths.archive / f"{name}.damaged-{stamp}{f'.{number}' if number else ''}" for number in range(100))
    copy = next(path for path in copies if not path.exists() and not path.is_symlink())
    with files.convert_os_errors():
        (crew.paths.archive / name).rename(copy)
        crash_points.point("renamed", name)
    return copy


def read_good_version(crew: Crew, name: str) -> bytes | None:
    """Return the newest recorded version of a file that can be read as an archive; None if there is none."""
    for data in board_history.iter_archive_versions(crew.git, name):
        if archive_loss.is_readable(data):
            return data
    return None
