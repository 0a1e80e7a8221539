"""Look up archived tasks, and read the figures of the archive."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.board import archive_damage, recorded_archive
from liza.board.archive_index import ArchiveIndex, IndexedTask
from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.crew.crew import Crew
from liza.model.errors import Refused, UnknownId
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.state_words import task_word
from liza.model.timings import Span
from liza.model.value_classes import replace
from liza.tasks.rules import claims
from liza.text.counts import count_noun

REPAIR = "liza archive --repair"
_MAX_MERGES = 50


class ArchiveFigures(msgspec.Struct, frozen=True):
    """Figures of the archive for `liza metrics`: merges without a test, and times of waiting for a person."""

    untested: int = 0
    waiting: tuple[Span, ...] = ()


def open_index(crew: Crew) -> ArchiveIndex | None:
    """Return the index of the archive; None if the crew has no archive."""
    if not crew.paths.archive.exists() and not crew.paths.archive_intent.exists():
        return None

    return ArchiveIndex(crew.paths)


def find_task(crew: Crew, state: State, task_id: str) -> Task | None:
    """Return a task of the board or of the archive; None if neither has it. Raises BoardInconsistent."""
    task = state.task(task_id)
    index = open_index(crew) if task is None else None
    if index is not None:
        with suppress(UnknownId):
            return index.read_task(task_id)
    return task


def with_archived(crew: Crew, state: State, task_id: str) -> State:
    """Return the board with a task of the archive added, for commands that only read. Unchanged if it has that task.

    Raises UnknownId, BoardInconsistent.
    """
    if state.task(task_id) is not None:
        return state
    task = find_task(crew, state, task_id)
    if task is None:
        _refuse_incomplete(crew, state, task_id)
        claims.get_task(state, task_id)  # raises
        return state
    return replace(state, tasks=(*state.tasks, task))


def _refuse_incomplete(crew: Crew, state: State, task_id: str) -> None:
    """Raise UnknownId for an unknown task if it may be in a part of the archive that is missing or unreadable."""
    index = open_index(crew)
    ids, faults = (index.ids(), index.find_faults()) if index is not None else ([], [])
    reasons = [f".liza/archive/{name}: {fault}" for name, entry, fault in faults if not entry]
    number = sum(state.task(other) is None for other in ids)
    if number < state.archived.total:
        reasons.append(f"the board counts {count_noun(state.archived.total, 'task')} in it, the files have {number}")
    if reasons:
        raise UnknownId(f"there is no task {task_id!r}, and the archive is incomplete: {reasons[0]}", "liza validate")


def refuse_archived(crew: Crew, state: State, task_ids: Iterable[str]) -> None:
    """Raise Refused if one of the tasks is in the archive: closed tasks are not changed."""
    missing = [task_id for task_id in task_ids if state.task(task_id) is None]
    index = open_index(crew) if missing else None
    for task_id, entry in (index.find(missing) if index is not None else {}).items():
        raise Refused(
            f"{task_id} is {task_word(entry.status or 'closed')} and in the archive", f"liza task show {task_id}"
        )


def refuse_damaged(crew: Crew) -> None:
    """Raise BoardInconsistent if an archive file is damaged: an id that seems free may be that of a task in it."""
    if crew.paths.archive_intent.exists():
        recorded_archive.end_move(crew, "add")
    damaged = recorded_archive.find_damaged(crew)
    if damaged:
        archive_damage.refuse_damaged(crew, damaged)


def find_outcomes(crew: Crew, state: State, task_ids: Iterable[str]) -> dict[str, Status]:
    """Return the outcomes of those tasks that are in the archive and not on the board. Raises BoardInconsistent."""
    missing = {task_id for task_id in task_ids if state.task(task_id) is None}
    index = open_index(crew) if missing else None
    return {} if index is None else _resolve(index, state, missing)


def _resolve(index: ArchiveIndex, state: State, task_ids: set[str]) -> dict[str, Status]:
    """Return the outcomes of archived tasks; chains of superseded tasks are followed.

    Of an entry that cannot be read the board may know the outcome. Raises Refused if not: a guess would stay there.
    """
    entries = index.find(task_ids)
    waiting = {other for entry in entries.values() for other in entry.superseded_by} - entries.keys()
    while waiting:
        more = index.find(other for other in waiting if state.task(other) is None)
        entries |= more
        waiting = {other for entry in more.values() for other in entry.superseded_by} - entries.keys()
    outcomes = {**state.archived.outcomes, **{task.id: task.status for task in state.tasks}}
    for entry in entries.values():
        if entry.error:
            outcomes[entry.id] = _known_outcome(state, entry)
    closed = [
        Task(id=entry.id, status=Status(entry.status), superseded_by=entry.superseded_by)
        for entry in entries.values()
        if not entry.error
    ]
    # A successor on the board may be superseded, too.
    closed += [task for task in state.tasks if task.status in FINAL_STATUSES]
    outcomes = archiving.resolve_outcomes(closed, outcomes)
    return {task_id: outcomes[task_id] for task_id in task_ids if task_id in entries}


def _known_outcome(state: State, entry: IndexedTask) -> Status:
    outcome = state.archived.outcomes.get(entry.id)
    if outcome is None:
        raise Refused(f"the entry of {entry.id} in the archive has an error: {entry.error}", "liza validate")
    return outcome


def read_figures(crew: Crew, state: State) -> ArchiveFigures:
    """Return the figures of the archive. Raises BoardInconsistent."""
    index = open_index(crew) if state.archived.total else None
    return ArchiveFigures() if index is None else ArchiveFigures(index.count_untested(), tuple(index.waiting_spans()))


def find_merged(crew: Crew, state: State, merge_commits: Iterable[str]) -> tuple[Task, ...]:
    """Return the archived tasks that were merged as one of these commits, with their commits only."""
    index = open_index(crew) if state.archived.counts.get(Status.MERGED) else None
    return tuple(
        Task(
            id=entry.id,
            status=Status.MERGED,
            merge_commit=entry.merge_commit,
            review_commit=entry.review_commit,
        )
        for entry in (index.find_merges(merge_commits) if index is not None else ())
        if entry.status == Status.MERGED
    )


def read_merged(crew: Crew, state: State, merge_commits: Iterable[str]) -> tuple[Task, ...]:
    """Return the archived tasks with one of these merge commits; of a damaged entry only what the index has."""
    merged = [task for task in find_merged(crew, state, merge_commits) if state.task(task.id) is None]
    index = open_index(crew) if merged else None
    tasks = {} if index is None else index.read_tasks(task.id for task in merged)
    return tuple(tasks.get(task.id, task) for task in merged)


def newest_merges(crew: Crew, state: State) -> tuple[str, ...]:
    """Return the merge commits of the tasks that were archived last."""
    index = open_index(crew) if state.archived.counts.get(Status.MERGED) else None
    return () if index is None else index.newest_merges(_MAX_MERGES)


class ArchiveFault(msgspec.Struct, frozen=True):
    """Something wrong with the archive: the entry, the value found, the value expected, and the ``next`` command.

    ``field`` is what of the entry is meant.
    """

    entry: str
    actual: str
    expected: str
    next: str
    field: str = "the value"


def find_faults(crew: Crew, state: State) -> Iterator[ArchiveFault]:
    """Yield what is wrong with the archive: first what the history can restore, then what a person has to edit.

    Raises BoardInconsistent, GitFailed.
    """
    damaged = recorded_archive.find_damaged(crew)
    for name, loss in sorted(damaged.items()):
        command = archive_damage.mending_command(crew, name, loss)
        expected = "a file with the entries that the history has"
        yield ArchiveFault(f"archive/{name}", f"damaged: {loss.reason}", expected, command, "the file")
    index = open_index(crew)
    totals = ArchiveTotals()
    if index is not None:
        for name, task_id, fault in index.find_faults():
            if name in damaged and not task_id:
                continue
            entry = f"archive/{name}{f': {task_id}' if task_id else ''}"
            expected, field = ("an entry of a closed task", "the entry") if task_id else ("an archive file", "the file")
            yield ArchiveFault(entry, f"faulty: {fault}", expected, _mending_command(crew.paths.archive / name), field)
        for name, task_id in index.find_repeated():
            fault = "repeated: the id occurs more than once in the archive; the last entry counts"
            yield ArchiveFault(f"archive/{name}: {task_id}", fault, "one entry", REPAIR, "the entry")
        totals = index.totals(without=(task.id for task in state.tasks))
    for kind, counts, real in (
        ("counts", state.archived.counts, totals.statuses),
        ("verdicts", state.archived.verdicts, totals.verdicts),
    ):
        for name in sorted(counts.keys() | real.keys()):
            if counts.get(name, 0) != real.get(name, 0):
                actual, expected = f"{name}: {counts.get(name, 0)}", f"{name}: {real.get(name, 0)}, as the files have"
                yield ArchiveFault(f"archived.{kind}", actual, expected, REPAIR)

    for name, outcome in find_changed_outcomes(crew, state).items():
        yield ArchiveFault(
            "archived.outcomes", f"{name}: {state.archived.outcomes[name]}", f"{name}: {outcome}", REPAIR
        )


def find_changed_outcomes(crew: Crew, state: State) -> dict[str, Status]:
    """Return the outcomes in the archive that differ from those on the board; none if one of them cannot be read."""
    on_board = state.archived.outcomes
    with suppress(Refused):
        outcomes = find_outcomes(crew, state, on_board)
        return {name: outcome for name, outcome in outcomes.items() if outcome != on_board[name]}
    return {}


def _mending_command(path: Path) -> str:
    if path.is_file() and not path.is_symlink():
        return f"$EDITOR {shlex.quote(str(path))}"
    if not os.path.lexists(path):
        return REPAIR
    return shlex.join(["mv", str(path), f"{path}.odd"])
