"""Repair the archive on a person's request: missing files, former copies of a task, wrong numbers on the board."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.crew.archive import archive_damage, archive_moves, archived_tasks
from liza.crew.crew import Crew
from liza.rules.tasks import archiving


class ArchiveRepair(msgspec.Struct, frozen=True):
    """What was repaired: files written from the history, where the damaged ones are kept, copies turned into comments,
    and the number of archived tasks that the board counted and counts. ``faults``: what a person has to mend.
    """

    restored: tuple[str, ...]
    kept: tuple[Path, ...]
    copies: int
    counted: int
    counts: int
    is_changed: bool
    faults: int


def repair_archive(crew: Crew, by: str) -> ArchiveRepair:
    """Write missing and damaged files from the history, turn former copies of a task into comments, and give the board
    the numbers and outcomes of the files.

    Raises BoardInconsistent, GitFailed, WriteFailed, LockTimeout.
    """
    from liza.board import archive_files
    from liza.board.archive_index import ArchiveIndex

    archive_files.refuse_link(crew.paths)
    restored = archive_damage.restore_files(crew, by)
    index = ArchiveIndex(crew.paths)
    # Read and parsed before the lock is taken.
    copies = index.find_copies()
    rewrites = [archive_files.comment_out(crew.paths, name, offsets) for name, offsets in copies.items()]
    outcomes = archived_tasks.find_changed_outcomes(crew, crew.board.read())
    with crew.change(by, archive_moves.EVENT) as tx:
        facts = archive_moves.gather_facts(index, tx.before)
        for rewrite in rewrites:
            archive_files.rewrite(crew.paths, rewrite)
        tx.state = archiving.with_outcomes(archiving.with_totals(tx.before, facts.totals), outcomes)
    number = sum(map(len, copies.values()))
    is_changed = bool(restored.names or number) or tx.state is not tx.before
    return ArchiveRepair(
        restored.names,
        restored.copies,
        number,
        tx.before.archived.total,
        tx.state.archived.total,
        is_changed,
        len(index.find_faults()),
    )
