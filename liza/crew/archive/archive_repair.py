"""Repair the archive on a person's request: missing files, former copies of a task, wrong numbers on the board."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from liza.board import archive_files, revision_journal
from liza.board.archive_index import ArchiveIndex
from liza.crew.archive import archive_damage, archive_loss, archive_moves, archived_tasks, recorded_archive
from liza.crew.crew import Crew
from liza.rules.errors import BoardInconsistent
from liza.rules.tasks import archiving


class ArchiveRepair(msgspec.Struct, frozen=True):
    """What was repaired: files written from the history, where the damaged ones are kept, copies turned into comments,
    and the number of archived tasks that the board counted and counts. ``faults``: what a person has to mend.
    ``forgotten``: missing files that the history does not have either. ``vanished``: archived tasks in no file.
    """

    restored: tuple[str, ...]
    kept: tuple[Path, ...]
    copies: int
    counted: int
    counts: int
    is_changed: bool
    faults: int
    forgotten: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


def repair_archive(crew: Crew, by: str) -> ArchiveRepair:
    """Write missing and damaged files from the history, turn former copies of a task into comments, and give the board
    the numbers and outcomes of the files.

    Raises BoardInconsistent, GitFailed, WriteFailed, LockTimeout.
    """
    archive_files.refuse_link(crew.paths)
    restored = archive_damage.restore_files(crew, by)
    forgotten = recorded_archive.forget_missing(crew)
    index = ArchiveIndex(crew.paths)
    # Read and parsed before the lock is taken.
    copies = index.find_copies()
    rewrites = [archive_files.comment_out(crew.paths, name, offsets) for name, offsets in copies.items()]
    vanished = _find_vanished(crew, index)
    outcomes = archived_tasks.find_changed_outcomes(crew, crew.board.read())
    with crew.change(by, archive_moves.EVENT) as tx:
        facts = archive_moves.gather_facts(index, tx.before)
        for rewrite in rewrites:
            archive_files.rewrite(crew.paths, rewrite)
        tx.state = archiving.with_outcomes(archiving.with_totals(tx.before, facts.totals), outcomes)
    number = sum(map(len, copies.values()))
    is_changed = bool(restored.names or forgotten or number) or tx.state is not tx.before
    return ArchiveRepair(
        restored.names,
        restored.copies,
        number,
        tx.before.archived.total,
        tx.state.archived.total,
        is_changed,
        len(index.find_faults()),
        forgotten,
        vanished if tx.state.archived.total < tx.before.archived.total else (),
    )


def _find_vanished(crew: Crew, index: ArchiveIndex) -> tuple[str, ...]:
    """Return the tasks that moved to the archive, as far as the journal goes back, and that are nowhere now."""
    moved = {
        task_id for record in revision_journal.iter_newest_first(crew.paths.journal) for task_id in record.archived
    }
    moved -= {task.id for task in crew.board.read().tasks}
    moved -= index.find(moved).keys()
    for name in archive_files.list_names(crew.paths) if moved else ():
        with suppress(BoardInconsistent):
            moved -= archive_loss.find_commented(archive_files.read_bytes(crew.paths, name).decode(errors="replace"))
    return tuple(sorted(moved))
