"""Look up archived tasks, and read the figures of the archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice

import msgspec

from liza.board import archive_files
from liza.board.archive_files import REPAIR, ArchivedEntry, ArchiveFault
from liza.board.rules import archiving
from liza.model import timings
from liza.model.errors import BoardInconsistent, Refused, UnknownId
from liza.model.gates import is_untested
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import Paths
from liza.model.state_words import task_word
from liza.model.timings import Span
from liza.model.value_classes import replace
from liza.tasks.rules import claims

_MAX_MERGES = 50


class ArchiveFigures(msgspec.Struct, frozen=True):
    """Figures of the archive for `liza metrics`: merges without a test, and times of waiting for a person."""

    untested: int = 0
    waiting: tuple[Span, ...] = ()


def find_task(paths: Paths, state: State, task_id: str) -> Task | None:
    """Return a task of the board or of the archive; None if neither has it. Raises BoardInconsistent."""
    task = state.task(task_id)
    entry = archive_files.find_entries(paths, (task_id,)).get(task_id) if task is None else None
    if entry is None:
        return task
    if entry.task is None:
        raise BoardInconsistent(f"the entry of {task_id} in .liza/archive: {entry.error}", "liza validate")
    return entry.task


def with_archived(paths: Paths, state: State, task_id: str) -> State:
    """Return the board with a task of the archive added, for commands that only read. Unchanged if it has that task.

    Raises UnknownId, BoardInconsistent.
    """
    if state.task(task_id) is not None:
        return state
    task = find_task(paths, state, task_id)
    if task is None:
        if (damage := archive_files.find_damage(paths, state)) is not None:
            raise UnknownId(f"there is no task {task_id!r}, and {damage.entry} is {damage.actual}", "liza validate")
        claims.get_task(state, task_id)  # raises
        return state
    return replace(state, tasks=(*state.tasks, task))


def refuse_archived(paths: Paths, state: State, task_ids: Iterable[str]) -> None:
    """Raise Refused if one of the tasks is in the archive: closed tasks are not changed."""
    for task_id, entry in _find_missing(paths, state, task_ids).items():
        word = "closed" if entry.task is None else task_word(entry.task.status)
        raise Refused(f"{task_id} is {word} and in the archive", f"liza task show {task_id}")


def refuse_damaged(paths: Paths, state: State) -> None:
    """Raise BoardInconsistent if the archive is damaged: an id that seems free may be that of a task in it."""
    damage = archive_files.find_damage(paths, state)
    if damage is not None:
        message = f"no task can be added: its id may be in .liza/{damage.entry}, which is {damage.actual}"
        raise BoardInconsistent(message, damage.next)


def find_outcomes(paths: Paths, state: State, task_ids: Iterable[str]) -> dict[str, Status]:
    """Return the outcomes of those tasks that are in the archive and not on the board; chains of superseded tasks are
    followed.

    Of an entry that cannot be read the board may know the outcome. Raises Refused if not: a guess would stay there.
    Raises BoardInconsistent.
    """
    wanted = _find_missing(paths, state, task_ids)
    entries, following = dict(wanted), wanted
    while following:
        named = {other for entry in following.values() if entry.task for other in entry.task.superseded_by}
        following = _find_missing(paths, state, named - entries.keys())
        entries |= following
    outcomes = {**state.archived.outcomes, **{task.id: task.status for task in state.tasks}}
    outcomes |= {task_id: _known_outcome(state, entry) for task_id, entry in entries.items() if entry.error}
    closed = [entry.task for entry in entries.values() if entry.task is not None and not entry.error]
    # A successor on the board may be superseded, too.
    closed += [task for task in state.tasks if task.status in FINAL_STATUSES]
    outcomes = archiving.resolve_outcomes(closed, outcomes)
    return {task_id: outcomes[task_id] for task_id in wanted}


def _find_missing(paths: Paths, state: State, task_ids: Iterable[str]) -> dict[str, ArchivedEntry]:
    """Return the entries of those tasks that are not on the board."""
    missing = {task_id for task_id in task_ids if state.task(task_id) is None}
    return archive_files.find_entries(paths, missing) if missing else {}


def _known_outcome(state: State, entry: ArchivedEntry) -> Status:
    outcome = state.archived.outcomes.get(entry.id)
    if outcome is None:
        raise Refused(f"the entry of {entry.id} in the archive has an error: {entry.error}", "liza validate")
    return outcome


def iter_archived(paths: Paths, state: State) -> Iterator[Task]:
    """Yield the tasks of the archive that are not on the board, the last archived first. Raises BoardInconsistent."""
    return (task for task in archive_files.iter_newest(paths) if state.task(task.id) is None)


def read_figures(paths: Paths, state: State) -> ArchiveFigures:
    """Return the figures of the archive. Raises BoardInconsistent."""
    tasks = list(iter_archived(paths, state)) if state.archived.total else []
    untested = sum(is_untested(task) and task.status is Status.MERGED for task in tasks)
    spans = (timings.waiting_spans(task, archiving.closed_at(task)) for task in tasks)
    return ArchiveFigures(untested, tuple(span for task_spans in spans for span in task_spans))


def find_merged(paths: Paths, state: State, merge_commits: Iterable[str]) -> tuple[Task, ...]:
    """Return the archived tasks that were merged as one of these commits. Raises BoardInconsistent."""
    if not state.archived.counts.get(Status.MERGED):
        return ()
    tasks = archive_files.find_merged(paths, merge_commits)
    return tuple(task for task in tasks if task.status is Status.MERGED and state.task(task.id) is None)


def newest_merges(paths: Paths, state: State) -> tuple[str, ...]:
    """Return the merge commits of the tasks that were archived last."""
    commits = (task.merge_commit for task in iter_archived(paths, state) if task.merge_commit)
    return tuple(islice(commits, _MAX_MERGES)) if state.archived.counts.get(Status.MERGED) else ()


def find_faults(paths: Paths, state: State) -> Iterator[ArchiveFault]:
    """Yield what is wrong with the archive: files, then entries, then numbers and outcomes on the board.

    Raises BoardInconsistent.
    """
    damage = archive_files.find_damage(paths, state)
    if damage is not None:
        yield damage
        return
    yield from archive_files.find_faulty_entries(paths)
    totals = archive_files.count_totals(paths, (task.id for task in state.tasks))
    for kind, counts, real in (
        ("counts", state.archived.counts, totals.statuses),
        ("verdicts", state.archived.verdicts, totals.verdicts),
    ):
        for name in sorted(counts.keys() | real.keys()):
            if counts.get(name, 0) != real.get(name, 0):
                actual, expected = f"{name}: {counts.get(name, 0)}", f"{name}: {real.get(name, 0)}, as the files have"
                yield ArchiveFault(f"archived.{kind}", actual, expected, REPAIR)
    for name, outcome in find_changed_outcomes(paths, state).items():
        actual = f"{name}: {state.archived.outcomes[name]}"
        yield ArchiveFault("archived.outcomes", actual, f"{name}: {outcome}", REPAIR)


def find_changed_outcomes(paths: Paths, state: State) -> dict[str, Status]:
    """Return the outcomes in the archive that differ from those on the board; none if one of them cannot be read."""
    on_board = state.archived.outcomes
    with suppress(Refused):
        outcomes = find_outcomes(paths, state, on_board)
        return {name: outcome for name, outcome in outcomes.items() if outcome != on_board[name]}
    return {}
