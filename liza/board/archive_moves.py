"""Move closed tasks from the board to the archive."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from liza.board import archive_files, recorded_archive
from liza.board.archive_index import ArchiveIndex
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.crew.crew import Crew
from liza.model.errors import BoardInconsistent, LizaError
from liza.model.model import State
from liza.programs.session.run_directory import RunDir
from liza.system import atomic
from liza.system.files import Stamp
from liza.text.counts import count_noun

EVENT = "archive"
"""Event of a revision that moved tasks to the archive."""


class ArchiveFacts(msgspec.Struct, frozen=True):
    """What a move needs to know about the archive. It holds for one board and these files."""

    revision: int
    stamps: dict[str, Stamp]
    totals: ArchiveTotals


def archive_closed(crew: Crew, by: str, keep: int = 0) -> tuple[str, ...]:
    """Move the closed tasks to the archive, except the ``keep`` newest, and return their ids.

    Files are read before the lock is taken: under it only changes since then are. Raises Refused, LizaError.
    """
    index = ArchiveIndex(crew.paths)
    before = crew.board.read()
    if before.archived.total and not archive_files.list_names(crew.paths):
        # The totals of a move are those of the files: the board would forget what was deleted.
        raise BoardInconsistent(
            f".liza/archive has no files, and the board counts {count_noun(before.archived.total, 'task')} in it",
            "liza restore --last-good",
        )
    facts, open_runs = gather_facts(index, before), _find_open_runs(crew, before)
    if not archiving.find_archivable(before, open_runs, keep):
        return ()
    _refuse_missing_files(crew)
    damaged = recorded_archive.find_damaged(crew)
    with crew.change(by, EVENT) as tx:
        if (tx.before.revision, index.stamps()) != (facts.revision, facts.stamps):
            facts = gather_facts(index, tx.before)
        facts = keep_numbers(facts, tx.before) if damaged else facts
        open_runs |= _find_open_runs(crew, tx.before)
        tasks = archiving.find_archivable(tx.before, open_runs, keep)
        texts = archive_files.movable_texts(tx.document, (task.id for task in tasks))
        if not texts:
            return ()
        moved = [task for task in tx.before.tasks if task.id in texts]
        tx.state = archiving.move_to_archive(tx.before, moved, facts.totals)
        text = "".join(texts[task.id] for task in moved)
        # A damaged file stays as it is: `restore` replaces it.
        sizes = {name: size for name, size in index.appendable_sizes().items() if name not in damaged}
        name = archive_files.choose_name(
            archive_files.list_names(crew.paths), sizes, crew.clock.now(), len(text.encode())
        )
        tx.move = archive_files.ArchiveMove(name, text, tuple(task.id for task in moved))
    return tuple(task.id for task in moved)


def archive_if_due(crew: Crew, by: str) -> None:
    """Archive closed tasks if the board has more than `config.archive_after`. A failure is logged, not raised.

    It is logged once, until nothing fails any more: each merge tries again.
    """
    try:
        keep = archiving.count_to_keep(crew.board.read())
        if keep is not None:
            archive_closed(crew, by, keep)
        crew.paths.archive_failed.unlink(missing_ok=True)
    except (LizaError, OSError) as error:
        with suppress(LizaError, OSError):
            _log_failure(crew, error)


def _log_failure(crew: Crew, error: Exception) -> None:
    if not crew.paths.archive_failed.exists():
        crew.append_alert_log([f"archive_failed  closed tasks were not archived: {error}. Next: liza archive"])
        atomic.write(crew.paths.archive_failed, b"")


def _refuse_missing_files(crew: Crew) -> None:
    """Raise BoardInconsistent if the history has a file that is missing: the board would forget its tasks, and a new
    file of that name would keep `restore` from writing it.
    """
    missing = recorded_archive.find_missing(crew)
    if missing:
        raise BoardInconsistent(f".liza/archive lacks {', '.join(missing)}", "liza restore --last-good")


def gather_facts(index: ArchiveIndex, state: State) -> ArchiveFacts:
    """Return what a move from this board needs to know. Raises BoardInconsistent."""
    stamps = index.stamps()
    facts = ArchiveFacts(state.revision, stamps, index.totals(without=(task.id for task in state.tasks)))
    return keep_numbers(facts, state) if index.has_unreadable() else facts


def keep_numbers(facts: ArchiveFacts, state: State) -> ArchiveFacts:
    """Return the facts with no number below that of the board: tasks that cannot be read now are not lost."""
    totals = archiving.at_least(facts.totals, ArchiveTotals(state.archived.counts, state.archived.verdicts))
    return ArchiveFacts(facts.revision, facts.stamps, totals)


def _find_open_runs(crew: Crew, state: State) -> frozenset[str]:
    """Return the newest runs whose sessions are not concluded: supervisors still read the histories of their tasks."""
    return frozenset(run for run in archiving.newest_runs(state) if _is_open(crew.run_dir(run)))


def _is_open(directory: RunDir) -> bool:
    return directory.exists() and not directory.is_concluded()
