"""News: what happened between two revisions of the board, as sentences for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice

from liza.model.derived import changed_tasks
from liza.model.history_events import CREW_EVENTS, HistoryEvent, first_line
from liza.model.model import Event, State, Status, Task
from liza.model.paths import is_person
from liza.model.statuses import GoalStatus, TaskWord, goal_word
from liza.model.tested import describe_tested
from liza.model.value_classes import Value, replace
from liza.text.formats import count_noun

LIZA = "liza"
"""Author of what a supervisor does for the whole crew. Which supervisor did it does not matter."""
E, W = HistoryEvent, TaskWord
_DETAIL_EVENTS = (E.EXTEND, E.CLAIM_REVIEW)


class Detail(str):
    """A line that `liza up` prints only with -v: how the work goes on, not what became of it."""


class NewsItem(Value):
    """One event. ``who``: the agent or person that caused it. ``liza``: a supervisor did it for the whole crew, not for
    its agent. ``merged``: the task that was merged. ``is_detail``: `liza up` prints it only with -v. ``time``: None
    for a change of the goal's status, which the board does not date.
    """

    who: str
    text: str
    liza: bool = False
    merged: str | None = None
    is_detail: bool = False
    time: datetime | None = None


def find_news(before: State, after: State) -> tuple[NewsItem, ...]:
    """Return the news for all events in ``after`` that are not in ``before``, in order of time."""
    changed = changed_tasks(before, after)
    old_lengths = {task.id: len(task.history) for task in before.tasks} if changed else {}
    lines = [(event, task) for task in changed for event in task.history[old_lengths.get(task.id, 0) :]]
    added = [task for task in changed if task.id not in old_lengths]
    return (*_added(added), *_describe_events(sorted(lines, key=_when)), *_ended(before, after))


def recall_news(state: State, limit: int | None = None) -> tuple[NewsItem, ...]:
    """Return the news of the events that the board dates, and the notes of people, without details, oldest first.

    ``limit``: only the newest so many.
    """
    events = [(task, number) for task in state.tasks for number in range(len(task.history))]
    events.sort(key=lambda pair: pair[0].history[pair[1]].time)
    described = _describe_events((task.history[number], _task_then(task, number)) for task, number in reversed(events))
    recent = islice((item for item in described if not item.is_detail), limit)
    is_over = state.goal.status != GoalStatus.IN_PROGRESS
    notes = (
        NewsItem("", f"noted for {note.recipient or 'all'}: {_short(note.message)}", time=note.timestamp)
        for note in state.human_notes
    )
    items = (*_added(state.tasks), *reversed(tuple(recent)), *_decisions(state, 0, is_over=is_over), *notes)
    dated = sorted((item for item in items if item.time is not None and not item.is_detail), key=_time)
    return tuple(dated if limit is None else dated[-limit:])


def _time(item: NewsItem) -> datetime:
    assert item.time is not None
    return item.time


def _task_then(task: Task, number: int) -> Task:
    """Return the task as it was after the event with this index, as far as sentences need it."""
    if number == len(task.history) - 1:
        return task
    unblocked = next((later.time for later in task.history[number:] if later.event == E.UNBLOCK), None)
    asked = tuple(answer.question for answer in task.answers if answer.timestamp == unblocked)
    past = replace(task, history=task.history[: number + 1], blocked_questions=asked)
    # What is to be done then is done by now; and the board does not say which try it was.
    return replace(past, status=Status.UNCLAIMED, review="agent", iteration=0)


def is_crew_event(event: Event) -> bool:
    """Return whether a supervisor did this for the crew: a merge that no person requested."""
    return event.event in CREW_EVENTS and not is_person(event.agent or "")


def _when(line: tuple[Event, Task]) -> tuple[object, str]:
    return line[0].time, line[1].id


def _describe_events(lines: Iterable[tuple[Event, Task]]) -> Iterator[NewsItem]:
    for event, task in lines:
        if text := _describe_event(event, task):
            yield NewsItem(
                event.agent or "",
                text,
                is_crew_event(event),
                task.id if event.event == E.MERGE else None,
                is_detail=event.event in _DETAIL_EVENTS,
                time=event.time,
            )


def _added(tasks: Iterable[Task]) -> Iterator[NewsItem]:
    """Yield one item for all tasks that one author added at once: `3 tasks: a, b (needs a), c`."""
    names: dict[tuple[str, datetime], list[str]] = {}
    for task in tasks:
        if task.history and (event := task.history[0]).event == E.ADD:
            needs = f" (needs {', '.join(task.depends_on)})" if task.depends_on else ""
            lacks = f": {event.detail}" if event.detail else ""
            draft = f" (draft{lacks})" if task.status is Status.DRAFT else ""
            names.setdefault((event.agent or "", event.time), []).append(f"{task.id}{needs}{draft}")
    for (who, time), added in names.items():
        yield NewsItem(who, f"{count_noun(len(added), 'task')}: {', '.join(added)}", time=time)


def _ended(before: State, after: State) -> Iterator[NewsItem]:
    is_over = after.goal.status != before.goal.status
    history = after.goal.alignment_history
    yield from _decisions(after, len(before.goal.alignment_history), is_over=is_over)
    if is_over:
        notes = [note for note in history if not is_person(note.event)]
        who = notes[-1].event.rpartition(".")[0] if notes else ""
        way = ": liza land --merge brings it into your branch" if after.goal.status == GoalStatus.COMPLETED else ""
        # `liza up` itself says that the goal is reached, and how far integration is ahead.
        yield NewsItem(who, f"the goal is {goal_word(after.goal.status)}{way}", is_detail=True)


def _decisions(state: State, start: int, *, is_over: bool) -> Iterator[NewsItem]:
    """Yield the decisions from index ``start`` on. ``is_over``: the last one ended the goal."""
    history = state.goal.alignment_history
    for number, note in enumerate(history[start:], start):
        if is_person(note.event):
            yield NewsItem(note.event, f"edited the goal: {_short(note.summary)}", time=note.timestamp)
            continue
        who = note.event.rpartition(".")[0]
        since = history[number - 1].timestamp if number else None
        has_changed = (is_over and number == len(history) - 1) or _has_planned(state, who, since, note.timestamp)
        yield NewsItem(who, f"decided: {_short(note.summary)}", is_detail=not has_changed, time=note.timestamp)


def _has_planned(state: State, planner: str, since: datetime | None, until: datetime | None) -> bool:
    """Return whether the planner added or changed a task in this time."""
    return any(
        event.agent == planner
        and event.event not in CREW_EVENTS
        and (since is None or event.time > since)
        and (until is None or event.time <= until)
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


def _try(task: Task) -> str:
    return f", try {task.iteration}" if task.iteration else ""


def _blocked(event: Event, task: Task) -> str:
    questions = [f'"{_short(question)}"' for question in task.blocked_questions]
    answer = [f'Answer: liza answer {task.id} "…"'] if task.status is Status.BLOCKED else []
    return " ".join([f"{W.ASKS}: {_short(event.detail).rstrip('.')}.", *questions, *answer])


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


def verdict_command(task_id: str) -> str:
    """Return the command with which a person approves the commit under review."""
    return f'liza verdict approve --task {task_id} "…"'


def _merged(event: Event, task: Task) -> str:
    remade = f"; {_short(event.detail)}" if event.detail else ""
    return f"{W.MERGED} as {(event.commit or '')[:10]}, {describe_tested(task.tested, task.remarks)}{remade}"


def _undone(event: Event, task: Task) -> str:
    tested = "" if task.undo is None else f", {describe_tested(task.undo.tested, task.undo.remarks)}"
    why = f": {_short(event.detail)}" if event.detail else ""
    return f"undone as {(event.commit or '')[:10]}{tested}{why}"


_SENTENCES: dict[str, Callable[[Event, Task], str]] = {
    E.EDIT: _edited,
    E.CLAIM: lambda event, task: f"{W.WORKING} as {event.run}{_try(task)}",
    E.RESUME: lambda event, task: f"{W.WORKING} again as {event.run}{_try(task)}",
    E.EXTEND: lambda event, task: f"keeps its lease {_short(event.detail)}",
    E.SUBMIT: lambda event, task: f"{W.IN_REVIEW} at {(event.commit or '')[:10]}{_verdict_hint(task)}",
    E.SUBMIT_AGAIN: lambda event, task: f"{W.IN_REVIEW} again at {(event.commit or '')[:10]}{_verdict_hint(task)}",
    E.SUBMIT_WORK: lambda event, task: f"submitted, {W.IN_REVIEW} at {(event.commit or '')[:10]}{_verdict_hint(task)}",
    E.HANDOFF: lambda event, task: "handed over to a fresh session",
    E.STOP: lambda event, task: "stopped; its work is kept",
    E.CRASH: lambda event, task: f"crashed: {_short(event.detail)}",
    E.HELD_UP: lambda event, task: f"held up, and tried again later: {_short(event.detail)}",
    E.QUOTA: lambda event, task: f"waits, and stays claimed: {_short(event.detail)}",
    E.UNANSWERED: lambda event, task: f"got no answer, and is tried again: {_short(event.detail)}",
    E.CONTEXT_FULL: lambda event, task: f"goes on in a fresh session: {_short(event.detail)}",
    E.TOO_OLD: lambda event, task: f"goes on in a fresh session: {_short(event.detail)}",
    E.UNUSABLE: lambda event, task: f"cannot go on until a person acts: {_short(event.detail)}",
    E.ENDED: _over,
    E.BLOCK: _blocked,
    E.CLAIM_REVIEW: lambda event, task: "review begins",
    E.RELEASE_REVIEW: lambda event, task: f"review given back: {_short(event.detail)}",
    E.GIVE_UP_REVIEW: _blocked,
    E.APPROVE: lambda event, task: f"approved: {_short(event.detail)}",
    E.REJECT: lambda event, task: f"{W.TO_FIX}: {_short(event.detail)} (liza diff {task.id})",
    E.DEADLOCK: _blocked,
    E.MERGE: _merged,
    E.MERGE_FAILED: lambda event, task: f"{W.TO_FIX} after a failed merge: {_short(first_line(event.detail))}",
    E.MERGE_CLEARED: lambda event, task: f"is not to blame for its failed merge: {_short(first_line(event.detail))}",
    E.LAND: lambda event, task: f"landed with its epic {task.epic} as {(event.commit or '')[:10]}",
    E.SAVED: lambda event, task: f"has work of {event.run}, which was replaced, at {_short(event.detail)}",
    E.TESTS_MOVED_REFS: lambda event, task: f"refs moved while its tests ran: {_short(event.detail)}",
    E.UNBLOCK: lambda event, task: "answered",
    E.UNBLOCK_REVIEW: lambda event, task: f"answered, {W.IN_REVIEW} again",
    E.SUPERSEDE: lambda event, task: f"{W.GIVEN_UP} for {', '.join(task.superseded_by)}",
    E.DROP: lambda event, task: f"{W.GIVEN_UP}{': ' + _short(event.detail) if event.detail else ''}",
    E.UNDO: _undone,
    E.RELEASE: lambda event, task: f"{W.TO_DO} again{': ' + _short(event.detail) if event.detail else ''}",
}
