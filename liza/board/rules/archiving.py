"""Which closed tasks move from the board to the archive, and what the board keeps of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from liza.model import targets
from liza.model.history_events import VERDICTS
from liza.model.model import FINAL_STATUSES, ArchiveSummary, State, Status, Task
from liza.model.paths import run_id
from liza.model.value_classes import replace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ArchiveTotals(msgspec.Struct, frozen=True):
    """Numbers of archived tasks by status, and of verdicts in their histories by event."""

    statuses: Mapping[str, int] = {}
    verdicts: Mapping[str, int] = {}


def closed_at(task: Task) -> datetime:
    """Return when a closed task was closed: the time of the last event in its history."""
    return task.history[-1].time if task.history else task.created or _EPOCH


def newest_runs(state: State) -> tuple[str, ...]:
    """Return the newest run of each agent: only these may still have a session to conclude."""
    return tuple(run_id(name, agent.runs) for name, agent in state.agents.items() if agent.runs)


def find_archivable(state: State, open_runs: frozenset[str], keep: int = 0) -> tuple[Task, ...]:
    """Return the closed tasks that can leave the board, the first closed first, without the ``keep`` newest.

    A task of an epic stays until that has landed, one that is being undone until that is over, a superseded task while
    a successor is open or has not landed, and every task while a session that worked on it is not concluded
    (``open_runs``): its supervisor reads the task's history to judge it.
    What an open task with a target depends on stays, too: the archive does not say into which branch a task was merged.
    """
    closed = [
        task
        for task in state.tasks
        if task.status in FINAL_STATUSES and not targets.is_to_land(task) and not targets.is_being_undone(task)
    ]
    by_id = {task.id: task for task in state.tasks}
    waiting = [task for task in state.tasks if task.target is not None and task.status not in FINAL_STATUSES]
    needed = {other.id for task in waiting for other in targets.with_replacements(task.depends_on, by_id.get)}
    movable = [
        task
        for task in closed
        if task.id not in needed and _are_successors_closed(by_id, task) and not _names_run(task, open_runs)
    ]
    oldest_first = sorted(movable, key=closed_at)
    return tuple(oldest_first[: max(0, len(oldest_first) - keep)])


def count_to_keep(state: State) -> int | None:
    """Return how many closed tasks stay on the board if it has too many now; None if nothing is due.

    Half of ``archive_after`` stay, so that one move serves many closed tasks.
    """
    limit = state.config.archive_after
    if limit <= 0 or sum(task.status in FINAL_STATUSES for task in state.tasks) <= limit:
        return None
    return limit // 2


def outcome_of(task: Task, outcomes: Mapping[str, Status]) -> Status:
    """Return MERGED if the work of a closed task is on integration, else its status.

    ``outcomes`` has the outcomes of its successors. Unknown successors count as not merged.
    """
    if task.status is not Status.SUPERSEDED:
        return task.status
    merged = bool(task.superseded_by) and all(outcomes.get(other) is Status.MERGED for other in task.superseded_by)
    return Status.MERGED if merged else Status.ABANDONED


def move_to_archive(state: State, moved: Iterable[Task], archived: ArchiveTotals) -> State:
    """Return the board without the tasks ``moved``. ``archived`` are the totals of the archive before."""
    ids = {task.id for task in moved}
    leaving = [task for task in state.tasks if task.id in ids]
    rest = tuple(task for task in state.tasks if task.id not in ids)
    closed = [task for task in state.tasks if task.status in FINAL_STATUSES]
    outcomes = resolve_outcomes(closed, state.archived.outcomes)
    totals = totals_of(leaving)
    summary = ArchiveSummary(
        counts=_add(archived.statuses, totals.statuses),
        verdicts=_add(archived.verdicts, totals.verdicts),
        outcomes=_named_outcomes(rest, outcomes),
    )
    return replace(state, tasks=rest, archived=summary)


def take_back(state: State, task: Task) -> State:
    """Return the board with a task of the archive on it again. Unchanged if the board has it.

    Its entry in the files stays: what the board has is not archived.
    """
    if state.task(task.id) is not None:
        return state
    totals, archived = totals_of([task]), state.archived
    summary = ArchiveSummary(
        counts=_subtract(archived.counts, totals.statuses),
        verdicts=_subtract(archived.verdicts, totals.verdicts),
        outcomes={name: outcome for name, outcome in archived.outcomes.items() if name != task.id},
    )
    return replace(state, tasks=(*state.tasks, task), archived=summary)


def totals_of(tasks: Iterable[Task]) -> ArchiveTotals:
    """Return the totals of some tasks."""
    tasks = tuple(tasks)
    return ArchiveTotals(
        dict(Counter(task.status.value for task in tasks)),
        dict(Counter(event.event for task in tasks for event in task.history if event.event in VERDICTS)),
    )


def with_totals(state: State, totals: ArchiveTotals) -> State:
    """Return the board with these numbers of archived tasks; the same object if it has them."""
    summary = replace(state.archived, counts=_add(totals.statuses, {}), verdicts=_add(totals.verdicts, {}))
    return state if summary == state.archived else replace(state, archived=summary)


def with_outcomes(state: State, archived: Mapping[str, Status]) -> State:
    """Return the board with the outcomes of the archived tasks that its tasks name."""
    outcomes = _named_outcomes(state.tasks, {**state.archived.outcomes, **archived})
    if outcomes == state.archived.outcomes:
        return state
    return replace(state, archived=replace(state.archived, outcomes=outcomes))


def _named_outcomes(tasks: Iterable[Task], outcomes: Mapping[str, Status]) -> dict[str, Status]:
    tasks = tuple(tasks)
    on_board = {task.id for task in tasks}
    named = {other for task in tasks for other in (*task.depends_on, *task.superseded_by)} - on_board
    return {other: outcomes[other] for other in sorted(named) if other in outcomes}


def resolve_outcomes(tasks: Iterable[Task], before: Mapping[str, Status]) -> dict[str, Status]:
    """Return ``before`` with the outcomes of ``tasks``: chains of superseded tasks are followed to their ends."""
    waiting = list(tasks)
    here = {task.id for task in waiting}  # what is on the board counts, also if the archive has it too
    outcomes = {name: outcome for name, outcome in before.items() if name not in here}
    while waiting:
        ready = [task for task in waiting if all(other in outcomes for other in task.superseded_by)]
        # A cycle or an unknown successor: what is left is not on integration.
        for task in ready or waiting:
            outcomes[task.id] = outcome_of(task, outcomes)
        waiting = [task for task in waiting if task.id not in outcomes]
    return outcomes


def _are_successors_closed(by_id: Mapping[str, Task], task: Task) -> bool:
    """Return whether all successors of a superseded task are closed, and landed with their epics, at any distance."""
    seen, waiting = {task.id}, list(task.superseded_by)
    while waiting:
        other = by_id.get(waiting.pop())
        if other is None or other.id in seen:
            continue
        if other.status not in FINAL_STATUSES or targets.is_to_land(other):
            return False
        seen.add(other.id)
        waiting += other.superseded_by
    return True


def _names_run(task: Task, runs: frozenset[str]) -> bool:
    return not runs.isdisjoint((task.run, task.review_run, *(event.run for event in task.history)))


def _subtract(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first[name] - second.get(name, 0) for name in sorted(first) if first[name] > second.get(name, 0)}


def _add(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = Counter(first)
    total.update(second)
    return {name: total[name] for name in sorted(total) if total[name]}
