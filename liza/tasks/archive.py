"""archive: move closed tasks from the board to `.liza/archive`, or repair that."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from liza.board import (
    archive_damage,
    archive_files,
    archive_loss,
    archive_moves,
    archived_tasks,
    recorded_archive,
    revision_journal,
)
from liza.board.archive_index import ArchiveIndex
from liza.board.rules import archiving
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import BoardInconsistent, UsageError
from liza.model.model import FINAL_STATUSES
from liza.text.counts import count_noun

MAX_NAMES = 5
"""Tasks that the message names."""


def archive(crew: Crew, keep: int = 0) -> Result:
    """Move the closed tasks to the archive, except the ``keep`` newest. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    if keep < 0:
        raise UsageError(f"--keep is {keep}; it is 0 or more", "liza archive --help")
    moved = archive_moves.archive_closed(crew, by, keep)
    state = crew.board.read()
    closed = sum(task.status in FINAL_STATUSES for task in state.tasks)
    waiting = max(0, closed - keep)
    lines = [_moved_line(moved)]
    if waiting:
        lines.append(
            f"{count_noun(waiting, 'closed task')} cannot leave yet: a session that worked on it is not concluded, "
            "a successor is open, or its entry cannot be moved as text"
        )
    details = {"archived": list(moved), "total": state.archived.total, "closed_on_board": closed}
    step = f"liza task show {moved[-1]}" if moved else "liza status"
    return Result("changed" if moved else "unchanged", None, None, step, details, "\n".join(lines))


def _moved_line(moved: tuple[str, ...]) -> str:
    if not moved:
        return "no closed task can be archived now"
    more = f" and {len(moved) - MAX_NAMES} more" if len(moved) > MAX_NAMES else ""
    return f"{count_noun(len(moved), 'task')} moved to .liza/archive: {', '.join(moved[:MAX_NAMES])}{more}"


def repair(crew: Crew) -> Result:
    """Repair what is wrong with the archive and needs no decision. Raises Refused, BoardInconsistent, GitFailed."""
    by = require_person(crew, planner=False)
    done = repair_archive(crew, by)
    lines = []
    if done.restored:
        lines.append(f"restored from the history: {', '.join(f'.liza/archive/{name}' for name in done.restored)}")
    lines += [f"the damaged file is kept in {path.relative_to(crew.paths.root)}" for path in done.kept]
    for name in done.forgotten:
        lines.append(
            f".liza/archive/{name} is missing, the history does not have it, and it is not waited for any more"
        )
    if done.copies:
        lines.append(f"{count_noun(done.copies, 'former copy', 'former copies')} of archived tasks became comments")
    if done.counted != done.counts:
        lines.append(f"the board counts {count_noun(done.counts, 'archived task')}; it counted {done.counted}")
    if done.vanished:
        lines.append(
            f"no file has {', '.join(done.vanished)} any more, which had been archived;"
            f" its last entry: liza history {done.vanished[0]} -p"
        )
    details = {"restored": list(done.restored), "copies": done.copies, "total": done.counts, "counted": done.counted}
    details |= {"forgotten": list(done.forgotten), "vanished": list(done.vanished)}
    if done.is_changed and not lines:
        lines.append("the board has the numbers and outcomes of the files")
    if done.faults:
        lines.append(f"{count_noun(done.faults, 'entry or file has', 'entries or files have')} to be mended by hand")
    message = "\n".join(lines) or "nothing to repair"
    return Result("changed" if done.is_changed else "unchanged", None, None, "liza validate", details, message)


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
