"""The one place where a task's status changes: the table of arrows, and ``move`` that follows one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from liza.rules.errors import BoardInconsistent
from liza.rules.model import FINAL_STATUSES, Event, State, Status, Task, Violation

S = Status
OPEN_STATUSES = frozenset(Status) - FINAL_STATUSES


@dataclass(frozen=True)
class Transition:
    """``verb`` takes a task from any of ``sources`` to ``target``; ``cause`` says when, ``who`` may."""

    verb: str
    sources: frozenset[Status]
    target: Status
    who: str
    cause: str


def _transition(verb: str, sources: Iterable[Status], target: Status, who: str, cause: str) -> Transition:
    return Transition(verb, frozenset(sources), target, who, cause)


TRANSITIONS: tuple[Transition, ...] = (
    _transition("edit", {S.DRAFT}, S.DRAFT, "planner, human", "still incomplete"),
    _transition("edit", {S.UNCLAIMED}, S.UNCLAIMED, "planner, human", "a text changed before anyone took it"),
    _transition("ready", {S.DRAFT}, S.UNCLAIMED, "planner, human, supervisor", "it is complete now"),
    _transition(
        "claim",
        {S.UNCLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.CLAIMED},
        S.CLAIMED,
        "supervisor, human",
        "reserved, its worktree made, and confirmed; from CLAIMED only when lapsed and its session proved dead",
    ),
    _transition("resume", {S.CLAIMED}, S.CLAIMED, "its supervisor", "the last session is over and the work is not"),
    _transition("stop", {S.CLAIMED}, S.CLAIMED, "its supervisor", "stopped on purpose; the same coder goes on later"),
    _transition("handoff", {S.CLAIMED}, S.CLAIMED, "its coder", "out of room: the work goes on in a fresh session"),
    _transition("submit", {S.CLAIMED}, S.READY_FOR_REVIEW, "its coder", "committed, clean, ahead of its base"),
    _transition(
        "submit again", {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "its coder", "a later commit, no review under way"
    ),
    _transition(
        "block",
        {S.CLAIMED, S.REJECTED, S.INTEGRATION_FAILED},
        S.BLOCKED,
        "its coder, its supervisor",
        "a question, a limit, no progress",
    ),
    _transition("claim review", {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "supervisor, human", "a reviewer takes it"),
    _transition(
        "release review", {S.READY_FOR_REVIEW}, S.READY_FOR_REVIEW, "its reviewer, supervisor, human", "no verdict"
    ),
    _transition("give up review", {S.READY_FOR_REVIEW}, S.BLOCKED, "supervisor", "two reviews ended without a verdict"),
    _transition("approve", {S.READY_FOR_REVIEW}, S.APPROVED, "its reviewer, human", "the verdict on this very commit"),
    _transition("reject", {S.READY_FOR_REVIEW}, S.REJECTED, "its reviewer, human", "the verdict, with what is wrong"),
    _transition("deadlock", {S.READY_FOR_REVIEW}, S.BLOCKED, "its reviewer, human", "rejected max_review_cycles times"),
    _transition(
        "merging", {S.APPROVED}, S.APPROVED, "supervisor, human", "a candidate was made, dropped, or waits for files"
    ),
    _transition("merge", {S.APPROVED}, S.MERGED, "supervisor, human", "the tested candidate is integration's tip"),
    _transition(
        "merge failed", {S.APPROVED}, S.INTEGRATION_FAILED, "supervisor", "a conflict, or red, on integration itself"
    ),
    _transition("unblock", {S.BLOCKED}, S.UNCLAIMED, "planner, human", "its questions are answered"),
    _transition("supersede", OPEN_STATUSES, S.SUPERSEDED, "planner, human", "other tasks take its place"),
    _transition("drop", OPEN_STATUSES, S.ABANDONED, "planner, human", "not wanted any more"),
    _transition("release", {S.CLAIMED}, S.UNCLAIMED, "human", "taken away from its coder, the work saved"),
)

_BY_VERB = {(arrow.verb, source): arrow for arrow in TRANSITIONS for source in arrow.sources}
_LEGAL_CHANGES = frozenset((source, arrow.target) for arrow in TRANSITIONS for source in arrow.sources)
_INITIAL_STATUSES = frozenset({S.DRAFT, S.UNCLAIMED})
_TARGETS = {arrow.verb: {one.target for one in TRANSITIONS if one.verb == arrow.verb} for arrow in TRANSITIONS}


def is_allowed(verb: str, source: Status) -> bool:
    """Whether ``verb`` leads anywhere from ``source``."""
    return (verb, source) in _BY_VERB


@dataclass(frozen=True)
class Invocation:
    """Who said a verb, and when: what a task's history keeps of it."""

    now: datetime
    by: str
    run: str | None = None
    commit: str | None = None
    detail: str | None = None


def apply_verb(task: Task, verb: str, said: Invocation, **changes: Any) -> Task:
    """The task after ``verb``: its new status, ``changes``, and a line in its history.

    Raises BoardInconsistent where the table has no such arrow: callers check their conditions first, so that a
    person never sees this.
    """
    arrow = _BY_VERB.get((verb, task.status))
    if arrow is None:
        raise BoardInconsistent(
            f"{task.id} is {task.status}: no arrow {verb!r} starts there", f"liza task show {task.id}"
        )
    if arrow.target in FINAL_STATUSES:
        changes["worktree"] = None
    if arrow.target is not S.APPROVED:
        changes["set_aside"] = None
    return replace(add_event(task, verb, said), status=arrow.target, **changes)


def add_event(task: Task, event: str, said: Invocation) -> Task:
    """The task with one more line in its history and nothing else changed."""
    line = Event(time=said.now, event=event, agent=said.by, run=said.run, commit=said.commit, detail=said.detail)
    return replace(task, history=(*task.history, line))


def has_done(task: Task, verb: str, run: str | None) -> bool:
    """Whether ``run`` has done ``verb`` on this task already; a run that says it twice is answered `unchanged`."""
    return run is not None and any(event.event == verb and event.run == run for event in task.history)


def find_unexplained_step(task: Task) -> str | None:
    """The last step in the history of a task, where no single arrow leads on from it to the status that the task has:
    somebody else set that. None where all is well, and of a task without a history."""
    steps = [event.event for event in task.history if event.event in _TARGETS]
    reached = _TARGETS[steps[-1]] if steps else _INITIAL_STATUSES
    if not task.history or any(one is task.status or (one, task.status) in _LEGAL_CHANGES for one in reached):
        return None
    return steps[-1] if steps else task.history[0].event


def find_illegal_changes(before: State, after: State) -> tuple[Violation, ...]:
    """Status changes between two boards that no arrow explains: "task-3 went CLAIMED to MERGED"."""
    old = {task.id: task for task in before.tasks}
    found: list[Violation] = []
    for task in after.tasks:
        known = old.pop(task.id, None)
        if known is None:
            if task.status not in _INITIAL_STATUSES:
                found.append(
                    Violation(
                        entry=task.id, field="status", actual=task.status, expected="DRAFT or UNCLAIMED: it is new"
                    )
                )
        elif known.status is not task.status and (known.status, task.status) not in _LEGAL_CHANGES:
            found.append(
                Violation(
                    entry=task.id,
                    field="status",
                    actual=task.status,
                    expected=f"{known.status} or one of {_targets(known.status)}: it was {known.status}",
                )
            )
    found += [
        Violation(entry=lost, field="id", actual="gone", expected="every task stays on the board") for lost in old
    ]
    return tuple(found)


def _targets(source: Status) -> str:
    targets = sorted({target for start, target in _LEGAL_CHANGES if start is source and target is not source})
    return ", ".join(targets) or "none"
