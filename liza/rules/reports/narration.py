"""News: what happened between two revisions of the board, as sentences for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from liza.rules.formatting.counts import count_noun
from liza.rules.history_events import CREW_EVENTS, HistoryEvent
from liza.rules.merging.gates import describe_tested
from liza.rules.merging.merge_failures import first_line
from liza.rules.model import Event, State, Status, Task
from liza.rules.paths import is_person
from liza.rules.reports.review_alarms import verdict_command
from liza.rules.statuses import GoalStatus
from liza.rules.tasks.task_groups import changed_tasks
from liza.rules.value_classes import Value

LIZA = "liza"
"""Author of what a supervisor does for the whole crew. Which supervisor did it does not matter."""
E = HistoryEvent
_DETAIL_EVENTS = (E.EXTEND, E.CLAIM_REVIEW)


class Detail(str):
    """A line that `liza up` prints only with -v: how the work goes on, not what became of it."""


class NewsItem(Value):
    """One event. ``who``: the agent or person that caused it. ``liza``: a supervisor did it for the whole crew, not for
    its agent. ``merged``: the task that was merged. ``is_detail``: `liza up` prints it only with -v.
    """

    who: str
    text: str
    liza: bool = False
    merged: str | None = None
    is_detail: bool = False


def find_news(before: State, after: State) -> tuple[NewsItem, ...]:
    """Return the news for all events in ``after`` that are not in ``before``, in order of time."""
    changed = changed_tasks(before, after)
    old_lengths = {task.id: len(task.history) for task in before.tasks} if changed else {}
    lines = [(event, task) for task in changed for event in task.history[old_lengths.get(task.id, 0) :]]
    news = [
        NewsItem(
            event.agent or "",
            text,
            is_crew_event(event),
            task.id if event.event == E.MERGE else None,
            is_detail=event.event in _DETAIL_EVENTS,
        )
        for event, task in sorted(lines, key=_when)
        if (text := _describe_event(event, task))
    ]
    added = [task for task in changed if task.id not in old_lengths]
    return (*_added(added), *news, *_ended(before, after))


def is_crew_event(event: Event) -> bool:
    """Return whether a supervisor did this for the crew: a merge that no person requested."""
    return event.event in CREW_EVENTS and not is_person(event.agent or "")


def _when(line: tuple[Event, Task]) -> tuple[object, str]:
    return line[0].time, line[1].id


def _added(tasks: list[Task]) -> Iterator[NewsItem]:
    """Yield one item for all new tasks of one author: `3 tasks: a, b (needs a), c`."""
    by_agent: dict[str, list[str]] = {}
    for task in tasks:
        if task.history and task.history[0].event == E.ADD:
            needs = f" (needs {', '.join(task.depends_on)})" if task.depends_on else ""
            lacks = f": {task.history[0].detail}" if task.history[0].detail else ""
            draft = f" (draft{lacks})" if task.status is Status.DRAFT else ""
            by_agent.setdefault(task.history[0].agent or "", []).append(f"{task.id}{needs}{draft}")
    for who, names in by_agent.items():
        yield NewsItem(who, f"{count_noun(len(names), 'task')}: {', '.join(names)}")


def _ended(before: State, after: State) -> Iterator[NewsItem]:
    history = after.goal.alignment_history
    for number in range(len(before.goal.alignment_history), len(history)):
        note = history[number]
        edited = is_person(note.event)
        who = note.event if edited else note.event.rpartition(".")[0]
        text = f"{'edited the goal' if edited else 'decided'}: {_short(note.summary)}"
        since = history[number - 1].timestamp if number else None
        is_empty = not edited and after.goal.status == before.goal.status and not _has_planned(after, who, since)
        yield NewsItem(who, text, is_detail=is_empty)
    if after.goal.status != before.goal.status:
        notes = [note for note in history if not is_person(note.event)]
        who = notes[-1].event.rpartition(".")[0] if notes else ""
        next_step = (
            ": liza land --merge brings it into your branch" if after.goal.status == GoalStatus.COMPLETED else ""
        )
        # `liza up` itself says that the goal is reached, and how far integration is ahead.
        yield NewsItem(who, f"the goal is {after.goal.status}{next_step}", is_detail=True)


def _has_planned(state: State, planner: str, since: datetime | None) -> bool:
    """Return whether the planner added or changed a task after ``since``."""
    return any(
        event.agent == planner and event.event not in CREW_EVENTS and (since is None or event.time > since)
        for task in state.tasks
        for event in task.history
    )


def _describe_event(event: Event, task: Task) -> str:
    """Return a sentence for an event; empty for events that people do not need."""
    describe = _SENTENCES.get(event.event)
    text = describe(event, task) if describe else ""
    return f"{task.id} {text}" if text else ""


def _short(text: str | None, width: int = 160) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _blocked(event: Event, task: Task) -> str:
    asks = " ".join(f'"{_short(question)}"' for question in task.blocked_questions)
    answer = f' Answer: liza answer {task.id} "…"' if task.status is Status.BLOCKED else ""
    return f"blocked: {_short(event.detail).rstrip('.')}. It asks: {asks}{answer}"


def _over(event: Event, task: Task) -> str:
    """Return the text for the end of a session; empty after a handoff, which was reported already."""
    handed_over = any(other.event == E.HANDOFF and other.run == event.run for other in task.history)
    return "" if handed_over else f"session ended without a closing command: {_short(event.detail)}"


def _edited(event: Event, task: Task) -> str:
    """Return the text for an edit that leaves a DRAFT incomplete; empty for other edits."""
    return f"stays a draft: {event.detail}" if event.detail else ""


def _verdict_hint(task: Task) -> str:
    """Return the end of the text about a submission that a person reviews; else empty."""
    if task.review != "human":
        return ""

    return f". It waits for your verdict: {verdict_command(task.id)}"


def _merged(event: Event, task: Task) -> str:
    return f"merged as {(event.commit or '')[:10]}, {describe_tested(task.tested, task.remarks)}"


_SENTENCES: dict[str, Callable[[Event, Task], str]] = {
    E.EDIT: _edited,
    E.CLAIM: lambda event, task: f"claimed as {event.run}, try {task.iteration}",
    E.RESUME: lambda event, task: f"goes on as {event.run}, try {task.iteration}",
    E.EXTEND: lambda event, task: f"keeps its lease {_short(event.detail)}",
    E.SUBMIT: lambda event, task: f"submitted at {(event.commit or '')[:10]}{_verdict_hint(task)}",
    E.SUBMIT_AGAIN: lambda event, task: f"submitted again at {(event.commit or '')[:10]}{_verdict_hint(task)}",
    E.HANDOFF: lambda event, task: "handed over to a fresh session",
    E.STOP: lambda event, task: "stopped; it is kept for the same coder",
    E.CRASH: lambda event, task: f"crashed: {_short(event.detail)}",
    E.HELD_UP: lambda event, task: f"held up, and tried again later: {_short(event.detail)}",
    E.QUOTA: lambda event, task: f"waits, and stays claimed: {_short(event.detail)}",
    E.UNANSWERED: lambda event, task: f"got no answer, and is tried again: {_short(event.detail)}",
    E.CONTEXT_FULL: lambda event, task: f"goes on in a fresh session: {_short(event.detail)}",
    E.TOO_OLD: lambda event, task: f"goes on in a fresh session: {_short(event.detail)}",
    E.UNUSABLE: lambda event, task: f"cannot go on until a person acts: {_short(event.detail)}",
    E.ENDED: _over,
    E.BLOCK: _blocked,
    E.CLAIM_REVIEW: lambda event, task: "under review",
    E.RELEASE_REVIEW: lambda event, task: f"review given back: {_short(event.detail)}",
    E.GIVE_UP_REVIEW: _blocked,
    E.APPROVE: lambda event, task: f"approved: {_short(event.detail)}",
    E.REJECT: lambda event, task: f"rejected: {_short(event.detail)} (liza diff {task.id})",
    E.DEADLOCK: _blocked,
    E.MERGE: _merged,
    E.MERGE_FAILED: lambda event, task: f"does not merge: {_short(first_line(event.detail))}",
    E.MERGE_CLEARED: lambda event, task: f"is not to blame for its failed merge: {_short(first_line(event.detail))}",
    E.LAND: lambda event, task: f"landed with its epic {task.epic} as {(event.commit or '')[:10]}",
    E.TESTS_MOVED_REFS: lambda event, task: f"refs moved while its tests ran: {_short(event.detail)}",
    E.UNBLOCK: lambda event, task: "unblocked",
    E.SUPERSEDE: lambda event, task: f"superseded by {', '.join(task.superseded_by)}",
    E.DROP: lambda event, task: f"dropped{': ' + _short(event.detail) if event.detail else ''}",
    E.RELEASE: lambda event, task: f"released{': ' + _short(event.detail) if event.detail else ''}",
}
