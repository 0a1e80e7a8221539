"""Status changes of a task: the table of allowed transitions, and ``apply_verb``, which applies one of them.

No other module changes the status of a task.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from liza.model.errors import BoardInconsistent
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, Event, State, Status, Task, Violation
from liza.model.value_classes import Value, replace

S = Status
E = HistoryEvent
OPEN_STATUSES = frozenset(Status) - FINAL_STATUSES


class Transition(Value):
    """``verb`` changes the status from any of ``sources`` to ``target``. ``who`` may do it, ``cause`` is the reason."""

    verb: HistoryEvent
    sources: frozenset[Status]
    target: Status
    who: str
    cause: str


def _transition(verb: HistoryEvent, sources: Iterable[Status], target: Status, who: str, cause: str) -> Transition:
    return Transition(verb, frozenset(sources), target, who, cause)


TRANSITIONS: tuple[Transition, ...] = (
    _transition(E.EDIT, {S.DRAFT}, S.DRAFT, "planner, human", "still incomplete"),
    _transition(E.EDIT, {S.UNCLAIMED}, S.UNCLAIMED, "planner, human", "a text changed before anyone took it"),
    _transition(E.READY, {S.DRAFT}, S.UNCLAIMED, "planner, human, supervisor", "it is complete now"),
    _transition(
        E.CLAIM,
        {S.UNCLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.CLAIMED},
        S.CLAIMED,
        "supervisor, human",
        "reserved, its worktree made, and confirmed; from CLAIMED only when lapsed and its session proved dead",
    ),
    _transition(E.RESUME, {S.CLAIMED}, S.CLAIMED, "its supervisor", "the last session is over and the work is not"),
    _transition(E.STOP, {S.CLAIMED}, S.CLAIMED, "its supervisor", "stopped on purpose; the same coder goes on later"),
    _transition(E.HANDOFF, {S.CLAIMED}, S.CLAIMED, "its coder", "out of room: the work goes on in a fresh session"),
    _transition(E.SUBMIT, {S.CLAIMED}, S.READY_FOR_REVIEW, "its coder", "committed, clean, ahead of its base"),
    _transition(
        E.SUBMIT_AGAIN, {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "its coder", "a later commit, no review under way"
    ),
    _transition(
        E.SUBMIT_WORK,
        {S.UNCLAIMED, S.READY_FOR_REVIEW, S.APPROVED, S.REJECTED, S.INTEGRATION_FAILED, S.BLOCKED},
        S.READY_FOR_REVIEW,
        "its author, human",
        "a commit of an author whom Liza did not start, or a later one of a branch that was changed",
    ),
    _transition(
        E.BLOCK,
        {S.CLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.APPROVED},
        S.BLOCKED,
        "its coder, its supervisor",
        "a question, a limit, no progress; from APPROVED only with a merge that fails as often as the limit",
    ),
    _transition(E.CLAIM_REVIEW, {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "supervisor, human", "a reviewer takes it"),
    _transition(
        E.RELEASE_REVIEW, {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "its reviewer, supervisor, human", "no verdict"
    ),
    _transition(E.GIVE_UP_REVIEW, {S.READY_FOR_REVIEW}, S.BLOCKED, "supervisor", "two reviews ended without a verdict"),
    _transition(E.APPROVE, {S.READY_FOR_REVIEW}, S.APPROVED, "its reviewer, human", "the verdict on this very commit"),
    _transition(E.REJECT, {S.READY_FOR_REVIEW}, S.REJECTED, "its reviewer, human", "the verdict, with what is wrong"),
    _transition(E.DEADLOCK, {S.READY_FOR_REVIEW}, S.BLOCKED, "its reviewer, human", "rejected max_review_cycles times"),
    _transition(
        E.MERGING, {S.APPROVED}, S.APPROVED, "supervisor, human", "a candidate was made, dropped, or waits for files"
    ),
    _transition(E.MERGE, {S.APPROVED}, S.MERGED, "supervisor, human", "the tested candidate is integration's tip"),
    _transition(
        E.MERGE_FAILED, {S.APPROVED}, S.INTEGRATION_FAILED, "supervisor", "a conflict, or red, on integration itself"
    ),
    _transition(
        E.MERGE_CLEARED, {S.INTEGRATION_FAILED}, S.APPROVED, "supervisor, human", "its branch is red without it, too"
    ),
    _transition(E.MERGE_CLEARED, {S.CLAIMED}, S.CLAIMED, "supervisor, human", "the same, after its coder began"),
    _transition(E.MERGE_CLEARED, {S.BLOCKED}, S.BLOCKED, "supervisor, human", "the same, after it was blocked"),
    _transition(E.UNBLOCK, {S.BLOCKED}, S.UNCLAIMED, "planner, human", "its questions are answered"),
    _transition(
        E.UNBLOCK_REVIEW,
        {S.BLOCKED},
        S.READY_FOR_REVIEW,
        "planner, human",
        "its review had no verdict, and its question is answered",
    ),
    _transition(
        E.SUPERSEDE,
        OPEN_STATUSES | {S.ABANDONED},
        S.SUPERSEDED,
        "planner, human",
        "other tasks take its place; from ABANDONED only after an undo",
    ),
    _transition(E.DROP, OPEN_STATUSES, S.ABANDONED, "planner, human", "not wanted any more"),
    _transition(E.UNDO, {S.MERGED}, S.ABANDONED, "human", "its tested revert is on the branch that had its merge"),
    _transition(
        E.RELEASE,
        {S.CLAIMED},
        S.UNCLAIMED,
        "human, its supervisor",
        "taken away from its coder, the work saved; by its supervisor after two crashes in a row",
    ),
)

_BY_VERB = {(transition.verb, source): transition for transition in TRANSITIONS for source in transition.sources}
_LEGAL_CHANGES = frozenset((source, transition.target) for transition in TRANSITIONS for source in transition.sources)
_INITIAL_STATUSES = frozenset({S.DRAFT, S.UNCLAIMED})
_TARGETS: dict[str, set[Status]] = {
    transition.verb: {row.target for row in TRANSITIONS if row.verb == transition.verb} for transition in TRANSITIONS
}


class Invocation(Value):
    """Caller, time and details of a verb, as the task's history records them. ``by`` is None if no agent did it."""

    now: datetime
    by: str | None
    run: str | None = None
    commit: str | None = None
    detail: str | None = None


def apply_verb(task: Task, verb: HistoryEvent, invocation: Invocation, **changes: Any) -> Task:
    """Return the task after ``verb``: new status, ``changes`` applied, one line more in its history.

    Raises BoardInconsistent if the table has no such transition. Callers check their conditions first, so this error
    shows a bug.
    """
    transition = _BY_VERB.get((verb, task.status))
    if transition is None:
        raise BoardInconsistent(
            f"{task.id} is {task.status}: no transition {verb.value!r} from that status", f"liza task show {task.id}"
        )
    if transition.target in FINAL_STATUSES:
        changes["worktree"] = None
    if transition.target is not S.APPROVED:
        changes["set_aside"] = None
    return replace(add_event(task, verb, invocation), status=transition.target, **changes)


def add_event(task: Task, event: HistoryEvent, invocation: Invocation) -> Task:
    """Return the task with one line more in its history and nothing else changed."""
    line = Event(
        time=invocation.now,
        event=event.value,
        agent=invocation.by,
        run=invocation.run,
        commit=invocation.commit,
        detail=invocation.detail,
    )
    return replace(task, history=(*task.history, line))


def has_done(task: Task, verb: HistoryEvent, run: str | None) -> bool:
    """Return whether ``run`` has already done ``verb`` on this task. A repeated verb is then answered `unchanged`."""
    return run is not None and any(event.event == verb and event.run == run for event in task.history)


def find_unexplained_step(task: Task) -> str | None:
    """Return the last event in the history if no single transition leads from it to the task's status.

    The status was then written by other means than a verb. None if a transition explains it, or without a history.
    """
    steps = [event.event for event in task.history if event.event in _TARGETS]
    reached = _TARGETS[steps[-1]] if steps else _INITIAL_STATUSES
    if not task.history or any(status is task.status or (status, task.status) in _LEGAL_CHANGES for status in reached):
        return None
    return steps[-1] if steps else task.history[0].event


def find_illegal_changes(before: State, after: State) -> tuple[Violation, ...]:
    """Return the status changes between two boards that no transition allows, such as CLAIMED to MERGED."""
    old = {task.id: task for task in before.tasks}
    violations: list[Violation] = []
    for task in after.tasks:
        previous = old.pop(task.id, None)
        if previous is None:
            is_submitted = task.submission is not None and task.status is S.READY_FOR_REVIEW
            if task.status not in _INITIAL_STATUSES and not is_submitted:
                violations.append(
                    Violation(
                        entry=task.id, field="status", actual=task.status, expected="DRAFT or UNCLAIMED: it is new"
                    )
                )
        elif previous.status is not task.status and (previous.status, task.status) not in _LEGAL_CHANGES:
            violations.append(
                Violation(
                    entry=task.id,
                    field="status",
                    actual=task.status,
                    expected=f"{previous.status} or one of {_targets(previous.status)}: it was {previous.status}",
                )
            )
    violations += [
        Violation(entry=task_id, field="id", actual="gone", expected="every task stays on the board") for task_id in old
    ]
    return tuple(violations)


def _targets(source: Status) -> str:
    targets = sorted({target for start, target in _LEGAL_CHANGES if start is source and target is not source})
    return ", ".join(targets) or "none"
