"""archive: move closed tasks from the board to `.liza/archive`, look them up, and repair it from the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

import msgspec

from liza.board import archived_entries
from liza.board.archived_entries import REPAIR, ArchivedEntry, ArchiveFault
from liza.board.contract import Board, RestoredArchive
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.board.text.parse import NeedsSlowPath
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import board_history
from liza.git.runner import Git
from liza.model import derived, history_events
from liza.model.derived import Span
from liza.model.errors import BoardInconsistent, LizaError, Refused, UnknownId, UsageError
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import Paths, split_run
from liza.model.statuses import task_word
from liza.model.tested import is_untested
from liza.model.value_classes import replace
from liza.system import atomic
from liza.tasks.rules import claims
from liza.text.formats import count_noun

EVENT = "archive"
"""Event of a revision that moved tasks to the archive."""
MAX_NAMES = 5
"""Tasks that the message names."""


# ── the move ─────────────────────────────────────────────────────────────────────────────────────────────────────


def archive(crew: Crew, keep: int = 0) -> Result:
    """Move the closed tasks to the archive, except the ``keep`` newest. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    if keep < 0:
        raise UsageError(f"--keep is {keep}; it is 0 or more", "liza archive --help")
    moved = archive_closed(crew, by, keep)
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


def archive_closed(crew: Crew, by: str, keep: int = 0) -> tuple[str, ...]:
    """Move the closed tasks to the archive, except the ``keep`` newest, and return their ids.

    Files are read before the lock is taken: under it only those that changed since then are. Raises Refused, LizaError.
    """
    before = crew.board.read()
    open_runs = _find_open_runs(crew, before)
    if not archiving.find_archivable(before, open_runs, keep):
        return ()
    crew.board.archived_ids()
    with crew.change(by, EVENT) as tx:
        open_runs |= _find_open_runs(crew, tx.before)
        tasks = archiving.find_archivable(tx.before, open_runs, keep)
        texts = archived_entries.movable_texts(tx.document, (task.id for task in tasks))
        if not texts:
            return ()
        moved = tuple(task for task in tx.before.tasks if task.id in texts)
        ids = tuple(task.id for task in moved)
        tx.state = archiving.move_to_archive(tx.before, moved, _count_before(crew.board, tx.before, ids))
        tx.moved = {task_id: texts[task_id] for task_id in ids}
    return ids


def _count_before(board: Board, state: State, moved: tuple[str, ...]) -> ArchiveTotals:
    """Return the totals of the archive before a move: those of the board.

    If the files have one of the tasks already, the board may have counted it; then the files are counted.
    """
    if set(board.archived_ids()).isdisjoint(moved):
        return ArchiveTotals(state.archived.counts, state.archived.verdicts)
    return board.count_archived(task.id for task in state.tasks)


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
            if not crew.paths.archive_failed.exists():
                crew.append_alert_log([f"archive_failed  closed tasks were not archived: {error}. Next: liza archive"])
                atomic.write(crew.paths.archive_failed, b"")


def _find_open_runs(crew: Crew, state: State) -> frozenset[str]:
    """Return the newest runs whose sessions are not concluded: supervisors still read the histories of their tasks."""
    return frozenset(run for run in archiving.newest_runs(state) if _is_open(crew, run))


def _is_open(crew: Crew, run: str) -> bool:
    if crew.find_holder(split_run(run)[0]):
        return not crew.is_run_over(run)
    directory = crew.run_dir(run)
    return directory.exists() and not directory.is_concluded()


# ── repair ───────────────────────────────────────────────────────────────────────────────────────────────────────


def restore_entries(crew: Crew, by: str) -> RestoredArchive:
    """Write the entries that the history has and that are nowhere now. An unreadable file becomes a copy.

    An entry that a person turned into a comment is not lost. Raises Refused, GitFailed, BoardInconsistent, WriteFailed.
    """
    texts = {name: _read_good_version(crew.git, name) for name in board_history.list_archive(crew.git)}
    return crew.board.restore_archive(by, {name: text for name, text in texts.items() if text is not None})


def _read_good_version(git: Git, name: str) -> str | None:
    """Return the newest recorded version of a file that can be read as an archive; None if no version can."""
    newest = board_history.read_archive_file(git, name)
    for data in chain([newest] if newest is not None else [], board_history.iter_archive_versions(git, name)):
        with suppress(UnicodeDecodeError, NeedsSlowPath):
            text = data.decode()
            archived_entries.split_text(text)
            return text
    return None


def repair(crew: Crew) -> Result:
    """Write what the history has of the archive and the files lack, and give the board the numbers and outcomes of the
    files. Raises Refused, BoardInconsistent, GitFailed, WriteFailed.
    """
    by = require_person(crew, planner=False)
    restored = restore_entries(crew, by)
    lines = restored_lines(crew.paths, restored)
    outcomes = find_changed_outcomes(crew.board, crew.board.read())
    vanished = _find_vanished(crew, restored.ids)
    with crew.change(by, EVENT) as tx:
        totals = crew.board.count_archived(task.id for task in tx.before.tasks)
        tx.state = archiving.with_outcomes(archiving.with_totals(tx.before, totals), outcomes)
    counted, total = tx.before.archived.total, tx.state.archived.total
    if counted != total:
        lines.append(f"the board counts {count_noun(total, 'archived task')}; it counted {counted}")
    if total < counted and vanished:
        lines.append(
            f"no file has {', '.join(vanished)} any more, which had been archived;"
            f" its last entry: liza history {vanished[0]} -p"
        )
    is_changed = bool(lines) or tx.state is not tx.before
    if is_changed and not lines:
        lines.append("the board has the numbers and outcomes of the files")
    faults = sum(1 for _ in crew.board.find_faulty_entries())
    if faults:
        lines.append(f"{count_noun(faults, 'entry has', 'entries have')} to be mended by hand")
    details = {"restored": list(restored.names), "total": total, "counted": counted}
    details["vanished"] = list(vanished) if total < counted else []
    message = "\n".join(lines) or "nothing to repair"
    return Result("changed" if is_changed else "unchanged", None, None, "liza validate", details, message)


def restored_lines(paths: Paths, restored: RestoredArchive) -> list[str]:
    """Return what was restored from the history, in sentences."""
    names = ", ".join(f".liza/archive/{name}" for name in restored.names)
    lines = [f"restored from the history: {names}"] if restored.names else []
    return lines + [f"the damaged file is kept in {copy.relative_to(paths.root)}" for copy in restored.copies]


def _find_vanished(crew: Crew, present: frozenset[str]) -> tuple[str, ...]:
    """Return the tasks that moved to the archive, as far as the journal goes back, and that are nowhere now."""
    moved = {task_id for record in crew.board.records() for task_id in record.archived}
    return tuple(sorted(moved - present - {task.id for task in crew.board.read().tasks}))


class ArchiveFigures(msgspec.Struct, frozen=True):
    """Figures of the archive for `liza metrics`: merges without a test, merges that were undone, and times of waiting
    for a person."""

    untested: int = 0
    undone: int = 0
    waiting: tuple[Span, ...] = ()


def find_task(board: Board, state: State, task_id: str) -> Task | None:
    """Return a task of the board or of the archive; None if neither has it. Raises BoardInconsistent."""
    task = state.task(task_id)
    entry = board.archived((task_id,)).get(task_id) if task is None else None
    if entry is None:
        return task
    if entry.task is None:
        raise BoardInconsistent(f"the entry of {task_id} in .liza/archive: {entry.error}", "liza validate")
    return entry.task


def with_archived(board: Board, state: State, task_id: str) -> State:
    """Return the board with a task of the archive added, for commands that only read. Unchanged if it has that task.

    Raises UnknownId, BoardInconsistent.
    """
    if state.task(task_id) is not None:
        return state
    task = find_task(board, state, task_id)
    if task is None:
        if (damage := board.find_archive_damage(state)) is not None:
            raise UnknownId(f"there is no task {task_id!r}, and {damage.entry} is {damage.actual}", "liza validate")
        claims.get_task(state, task_id)  # raises
        return state
    return replace(state, tasks=(*state.tasks, task))


def refuse_archived(board: Board, state: State, task_ids: Iterable[str]) -> None:
    """Raise Refused if one of the tasks is in the archive: closed tasks are not changed."""
    for task_id, entry in _find_missing(board, state, task_ids).items():
        word = "closed" if entry.task is None else task_word(entry.task.status)
        raise Refused(f"{task_id} is {word} and in the archive", f"liza task show {task_id}")


def refuse_damaged(board: Board, state: State) -> None:
    """Raise BoardInconsistent if the archive is damaged: an id that seems free may be that of a task in it."""
    damage = board.find_archive_damage(state)
    if damage is not None:
        message = f"no task can be added: its id may be in .liza/{damage.entry}, which is {damage.actual}"
        raise BoardInconsistent(message, damage.next)


def find_outcomes(board: Board, state: State, task_ids: Iterable[str]) -> dict[str, Status]:
    """Return the outcomes of those tasks that are in the archive and not on the board; chains of superseded tasks are
    followed.

    Of an entry that cannot be read the board may know the outcome. Raises Refused if not: a guess would stay there.
    Raises BoardInconsistent.
    """
    wanted = _find_missing(board, state, task_ids)
    entries, following = dict(wanted), wanted
    while following:
        named = {other for entry in following.values() if entry.task for other in entry.task.superseded_by}
        following = _find_missing(board, state, named - entries.keys())
        entries |= following
    outcomes = {**state.archived.outcomes, **{task.id: task.status for task in state.tasks}}
    outcomes |= {task_id: _known_outcome(state, entry) for task_id, entry in entries.items() if entry.error}
    closed = [entry.task for entry in entries.values() if entry.task is not None and not entry.error]
    # A successor on the board may be superseded, too.
    closed += [task for task in state.tasks if task.status in FINAL_STATUSES]
    outcomes = archiving.resolve_outcomes(closed, outcomes)
    return {task_id: outcomes[task_id] for task_id in wanted}


def _find_missing(board: Board, state: State, task_ids: Iterable[str]) -> dict[str, ArchivedEntry]:
    """Return the entries of those tasks that are not on the board."""
    missing = {task_id for task_id in task_ids if state.task(task_id) is None}
    return board.archived(missing) if missing else {}


def _known_outcome(state: State, entry: ArchivedEntry) -> Status:
    outcome = state.archived.outcomes.get(entry.id)
    if outcome is None:
        raise Refused(f"the entry of {entry.id} in the archive has an error: {entry.error}", "liza validate")
    return outcome


def iter_archived(board: Board, state: State) -> Iterator[Task]:
    """Yield the tasks of the archive that are not on the board, the last archived first. Raises BoardInconsistent."""
    return (task for task in board.archived_tasks() if state.task(task.id) is None)


def read_figures(board: Board, state: State) -> ArchiveFigures:
    """Return the figures of the archive. Raises BoardInconsistent."""
    tasks = list(iter_archived(board, state)) if state.archived.total else []
    untested = sum(is_untested(task) and task.status is Status.MERGED for task in tasks)
    spans = (derived.waiting_spans(task, archiving.closed_at(task)) for task in tasks)
    undone = sum(history_events.find_undo(task) is not None for task in tasks)
    return ArchiveFigures(untested, undone, tuple(span for task_spans in spans for span in task_spans))


def find_merged(board: Board, state: State, merge_commits: Iterable[str]) -> tuple[Task, ...]:
    """Return the archived tasks that were merged as one of these commits. Raises BoardInconsistent."""
    if not state.archived.counts.get(Status.MERGED):
        return ()
    tasks = board.find_merged(merge_commits)
    return tuple(task for task in tasks if task.status is Status.MERGED and state.task(task.id) is None)


def find_faults(board: Board, state: State) -> Iterator[ArchiveFault]:
    """Yield what is wrong with the archive: files, then entries, then numbers and outcomes on the board.

    Raises BoardInconsistent.
    """
    damage = board.find_archive_damage(state)
    if damage is not None:
        yield damage
        return
    yield from board.find_faulty_entries()
    totals = board.count_archived(task.id for task in state.tasks)
    for kind, counts, real in (
        ("counts", state.archived.counts, totals.statuses),
        ("verdicts", state.archived.verdicts, totals.verdicts),
    ):
        for name in sorted(counts.keys() | real.keys()):
            if counts.get(name, 0) != real.get(name, 0):
                actual, expected = f"{name}: {counts.get(name, 0)}", f"{name}: {real.get(name, 0)}, as the files have"
                yield ArchiveFault(f"archived.{kind}", actual, expected, REPAIR)
    for name, outcome in find_changed_outcomes(board, state).items():
        actual = f"{name}: {state.archived.outcomes[name]}"
        yield ArchiveFault("archived.outcomes", actual, f"{name}: {outcome}", REPAIR)


def find_changed_outcomes(board: Board, state: State) -> dict[str, Status]:
    """Return the outcomes in the archive that differ from those on the board; none if one of them cannot be read."""
    on_board = state.archived.outcomes
    with suppress(Refused):
        outcomes = find_outcomes(board, state, on_board)
        return {name: outcome for name, outcome in outcomes.items() if outcome != on_board[name]}
    return {}
