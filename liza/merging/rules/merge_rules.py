"""Merging: which APPROVED task is next, what the board records at each step, and how a failed merge is handled."""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import datetime, timedelta
from enum import StrEnum

from liza.config.rules import test_proof
from liza.model import history_events, invariants, targets
from liza.model.backoff import backoff
from liza.model.derived import tasks_with
from liza.model.errors import Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import Epic, MergeInProgress, MergeRetry, State, Status, Task
from liza.model.statuses import describe_task
from liza.model.transitions import Invocation, apply_verb, find_unexplained_step
from liza.model.value_classes import Value, replace
from liza.tasks.rules import coding, strangers
from liza.tasks.rules.claims import get_task
from liza.tasks.rules.picking import unmet_dependencies
from liza.text.formats import count_noun
from liza.text.undecoded import MAX_NAMES, escape_name

S = Status
E = HistoryEvent
SHORTEST_PAUSE, MAX_RETRY_DELAY = 1.0, 900.0  # seconds
MAX_CANDIDATES = 3
"""How many candidates one merger makes for a task while integration moves during the tests."""
MAX_MERGER_DEATHS = 3
"""How many mergers in a row may die during the tests of a task before it goes back to its coder."""


class MergeFailureKind(StrEnum):
    """Why a merge failed, where neither a conflict nor a red test is the reason."""

    UNRELATED = "unrelated history"
    GONE = "commit gone"
    MOVING = "integration moves"
    DIED = "merger died"
    BASE_RED = "integration is red"
    BATCH = "batch failed"
    UNTESTED = "untested"
    FAILED = "failed"


class MergeFailure(Value):
    """A failed merge: its kind, the message of git or of the system, and the command that removes the cause, if any.

    ``branch``: the target branch that is red without any task, with the red ``gates``.
    """

    kind: MergeFailureKind
    message: str
    hint: str = ""
    branch: str = ""
    gates: tuple[str, ...] = ()


def classify_failure(*, commit_exists: bool, related: bool) -> MergeFailureKind:
    """Return the kind of a failure. ``commit_exists`` and ``related`` describe the reviewed commit afterwards."""
    if not commit_exists:
        return MergeFailureKind.GONE
    return MergeFailureKind.FAILED if related else MergeFailureKind.UNRELATED


def is_for_coder(kind: MergeFailureKind, deaths: int) -> bool:
    """Return whether only the task's coder can resolve this failure. Otherwise the merge is retried."""
    return kind in (MergeFailureKind.UNRELATED, MergeFailureKind.GONE) or deaths >= MAX_MERGER_DEATHS


def retry_delay(kind: MergeFailureKind, tries: int, first: float) -> float:
    """Return the seconds until the next automatic try: doubled from ``first`` on, at most MAX_RETRY_DELAY.

    The first death of a merger causes no delay, and neither does the first failure of a batch: the task is tried alone.
    """
    if kind in (MergeFailureKind.DIED, MergeFailureKind.BATCH):
        tries -= 1
    return backoff(tries, max(first, SHORTEST_PAUSE), MAX_RETRY_DELAY)


def next_to_merge(state: State, now: datetime, skipped: Container[str] = ()) -> Task | None:
    """Return the APPROVED task to merge next, the head of the queue without the tasks ``skipped``; None if no task may
    be merged.

    It is not held, its dependencies are met, it waits for no files of a person, and the retries of it and its branch
    are due. None also while the tests are known to say nothing about a candidate.
    """
    if test_proof.untested_reason(state.config) is not None:
        return None
    waiting = [
        task
        for task in tasks_with(state, S.APPROVED)
        if task.history
        and task.id not in skipped
        and task.merge_hold is None
        and not strangers.lacks_permission(task)
        and not (task.merging and task.merging.waiting)
        and not is_paused(task, now)
    ]
    # Hundreds of approved tasks may wait: most are looked at only if those before them cannot be merged.
    paused = find_paused_branches(state, now)
    if paused:
        waiting = [task for task in waiting if targets.target_branch(state, task) not in paused]
    in_order = sorted(waiting, key=lambda task: (was_red_alone(task), queue_key(task)))
    return next(
        (task for task in in_order if not unmet_dependencies(state, task) and merge_obstacle(state, task) is None), None
    )


def queue_key(task: Task) -> tuple[int, int, datetime]:
    """Return the sort key of an approved task in the queue: a person's order, then priority, then waiting time."""
    return (-task.merge_rank, task.priority, task.history[-1].time)


def is_paused(merged: Task | Epic, now: datetime) -> bool:
    """Return whether the merge of the task or epic failed and its retry is not due yet."""
    return merged.set_aside is not None and merged.set_aside.until is not None and merged.set_aside.until > now


def seconds_to_next_try(state: State, now: datetime) -> float | None:
    """Return the seconds until the first retry of a failed merge is due; None without one."""
    ends = [task.set_aside.until for task in tasks_with(state, S.APPROVED) if task.set_aside and is_paused(task, now)]
    return min(((end - now).total_seconds() for end in ends if end is not None), default=None)


def find_red_branches(state: State) -> dict[str, MergeRetry]:
    """Return the target branches that were red without any task when they were last tested.

    That is recorded on a task or epic whose merge showed it. Of several records the newest counts.
    """
    red: dict[str, MergeRetry] = {}
    retries = [task.set_aside for task in tasks_with(state, S.APPROVED)]
    retries += [epic.set_aside for epic in state.epics.values()]
    for retry in retries:
        if retry is not None and retry.branch and _is_newer(retry, red.get(retry.branch)):
            red[retry.branch] = retry
    return red


def _is_newer(retry: MergeRetry, other: MergeRetry | None) -> bool:
    if other is None or other.until is None:
        return True
    return retry.until is not None and retry.until > other.until


def find_paused_branches(state: State, now: datetime) -> frozenset[str]:
    """Return the red branches into which nothing is merged yet: their next test is not due."""
    red = find_red_branches(state).items()
    return frozenset(branch for branch, retry in red if retry.until is not None and retry.until > now)


def was_red_alone(merged: Task | Epic) -> bool:
    """Return whether the candidate of the task or epic alone was red on a branch that is red without it."""
    return merged.set_aside is not None and merged.set_aside.kind == MergeFailureKind.BASE_RED


def clear_red_branch(state: State, branch: str) -> State:
    """Return the board after the tests passed on a branch that was red."""
    return _change_records(state, branch, lambda retry: None)


def retry_red_branch(state: State, branch: str) -> State:
    """Return the board after a person asked for another test of a red branch at once."""
    return _change_records(state, branch, lambda retry: replace(retry, until=None))


def _change_records(state: State, branch: str, change: Callable[[MergeRetry], MergeRetry | None]) -> State:
    for task in tasks_with(state, S.APPROVED):
        if task.set_aside is not None and task.set_aside.branch == branch:
            state = state.with_task(replace(task, set_aside=change(task.set_aside)))
    for name, epic in state.epics.items():
        if epic.set_aside is not None and epic.set_aside.branch == branch:
            state = targets.with_epic(state, name, replace(epic, set_aside=change(epic.set_aside)))
    return state


def merge_obstacle(state: State, task: Task) -> str | None:
    """Return why an APPROVED task must not be merged; None if it may.

    The last approval in its history must be of its review commit and by its ``approved_by``, and nothing after it may
    have ended that: anyone can write the status on the board without a verdict, or after the task was dropped.
    """
    broken = invariants.check_entry("tasks", task.id, task, state)
    if broken:
        return f"it breaks a rule: {broken[0]}"
    unexplained = find_unexplained_step(task)
    if unexplained is not None:
        return f"nothing in its history led there: the last step was {unexplained!r}"
    verdicts = [event for event in task.history if event.event == E.APPROVE]
    if not verdicts or verdicts[-1].commit != task.review_commit or verdicts[-1].agent != task.approved_by:
        return f"its history has no verdict on {(task.review_commit or 'no commit')[:12]}"
    return None


def status_obstacle(state: State, task: Task) -> str | None:
    """Return why the task's history does not explain its status, which a person typed; None if it does."""
    last = find_unexplained_step(task)
    if last is not None:
        return f"nothing in its history led there: the last step was {last!r}"
    return merge_obstacle(state, task) if task.status is S.APPROVED else None


def get_approved_task(state: State, task_id: str) -> Task:
    """Return the task if it may be merged. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is not S.APPROVED:
        raise Refused(
            f"{describe_task(task_id, task.status)}: only an approved task is merged", f"liza task show {task_id}"
        )
    why = merge_obstacle(state, task)
    if why:
        message = f"{task_id} is approved on the board and cannot be merged: {why}"
        raise Refused(message, f"liza history {task_id} --all")
    return task


def begin_merge(state: State, task_id: str, merging: MergeInProgress) -> State:
    """Record a candidate before its tests run. If the merger dies, this record remains. Raises Refused."""
    task = get_approved_task(state, task_id)
    strangers.refuse_unpermitted(task)
    return state.with_task(replace(task, merging=merging))


def wait_for_files(state: State, task_id: str, files: tuple[str, ...]) -> State:
    """Record that changed files of a person's checkout block the tested candidate, the first ones by name.

    Raises Refused.
    """
    task = get_approved_task(state, task_id)
    if task.merging is None:
        raise Refused(f"{task_id} has no candidate that could wait", f"liza merge {task_id}")
    names = tuple(map(escape_name, files[:MAX_NAMES]))
    waits = replace(task.merging, waiting=names or (".",))
    return state.with_task(replace(task, merging=waits, set_aside=None))


def drop_candidate(state: State, task_id: str) -> State:
    """Remove the candidate (its merger died, or integration moved on). The task stays APPROVED."""
    task = get_task(state, task_id)
    return state.with_task(replace(task, merging=None)) if task.merging else state


def record_merge(state: State, task_id: str, invocation: Invocation, merging: MergeInProgress) -> State:
    """Record that ``invocation.commit`` is in integration: the task is MERGED. ``merging``: how it was tested.

    Raises Refused.
    """
    task = get_task(state, task_id)
    if task.status is S.MERGED:
        return state
    done = apply_verb(
        get_approved_task(state, task_id),
        E.MERGE,
        invocation,
        merge_commit=invocation.commit,
        tested=bool(merging.tested),
        remarks=merging.remarks,
        merging=None,
        merge_hold=None,
        merge_rank=0,
    )
    return strangers.clear_foreign(state.with_task(done), done)


def fail_merge(state: State, task_id: str, invocation: Invocation) -> State:
    """Send the task back to its coder after a conflict with integration or failed tests. Raises Refused.

    After max_review_cycles failed merges it is BLOCKED: it alone stops, before the circuit breaker stops the crew.
    """
    back = apply_verb(get_approved_task(state, task_id), E.MERGE_FAILED, invocation, merging=None, approved_by=None)
    state, failures = state.with_task(back), history_events.count_in_a_row(back)
    if failures < state.config.max_review_cycles:
        return state

    reason = f"{count_noun(failures, 'failed merge')}; the last: {history_events.first_line(invocation.detail)}"
    return coding.block_by_supervisor(state, task_id, reason, invocation.now)


def retry_or_fail(state: State, task_id: str, failure: MergeFailure, invocation: Invocation) -> State:
    """Handle a failed merge: send the task back to its coder, or schedule a retry after a growing pause.

    A candidate that passed its tests is kept for the next try. Raises Refused.
    """
    task = get_approved_task(state, task_id)
    retry = schedule_retry(state, task, failure, invocation.now)
    if is_for_coder(failure.kind, retry.deaths):
        return fail_merge(state, task_id, with_detail(invocation, failure.message))
    is_tested = task.merging is not None and task.merging.tested is not None
    is_tested = is_tested and failure.kind is not MergeFailureKind.BATCH  # it is tested again, alone
    return state.with_task(replace(task, merging=task.merging if is_tested else None, set_aside=retry))


def schedule_retry(state: State, merged: Task | Epic, failure: MergeFailure, now: datetime) -> MergeRetry:
    """Return when the merge of a task or epic that failed is tried again.

    The pause of a red branch grows with its own failures. A try before its end, by a person, does not prolong it.
    """
    previous = find_red_branches(state).get(failure.branch) if failure.branch else merged.set_aside
    retry = next_retry(previous, failure, state.config.restart_after_crash, now)
    if failure.branch and previous is not None and previous.until is not None and previous.until > now:
        return replace(retry, tries=previous.tries, until=previous.until)
    return retry


def next_retry(previous: MergeRetry | None, failure: MergeFailure, first: float, now: datetime) -> MergeRetry:
    """Return when the merge that failed is tried again: after a pause that grows with the tries.

    ``previous``: the retry after the failure before. ``first``: the first pause, in seconds.
    """
    tries = previous.tries + 1 if previous is not None else 1
    seconds = retry_delay(MergeFailureKind.BASE_RED if failure.branch else failure.kind, tries, first)
    return MergeRetry(
        kind=failure.kind,
        reason=failure.message,
        hint=failure.hint,
        tries=tries,
        deaths=_deaths(previous) + 1 if failure.kind is MergeFailureKind.DIED else 0,
        until=now + timedelta(seconds=seconds) if seconds else None,
        branch=failure.branch,
        gates=failure.gates,
    )


def _deaths(previous: MergeRetry | None) -> int:
    """Return how many mergers in a row have died. Earlier versions counted them in ``tries``."""
    if previous is None or previous.kind != MergeFailureKind.DIED:
        return 0
    return previous.deaths or previous.tries


def with_detail(invocation: Invocation, detail: str) -> Invocation:
    """Return a copy of the invocation with another detail."""
    return Invocation(now=invocation.now, by=invocation.by, run=invocation.run, commit=invocation.commit, detail=detail)
