"""The retrospective of a sprint, computed from the board when the sprint completes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State
from liza.model.timings import goal_seconds
from liza.model.value_classes import Value, replace
from liza.text.counts import count_noun
from liza.text.times import format_duration

E = HistoryEvent
_REJECTIONS: dict[str, str] = {E.REJECT: "by a reviewer", E.DEADLOCK: "as the last one allowed"}
"""Kinds of rejections: event → text."""


class SprintEnd(Value):
    """When a sprint ended, and its usage as text; empty if it cannot be read."""

    time: datetime
    cost: str = ""


def close_sprint(state: State, end: SprintEnd) -> State:
    """Return the board with the end of its sprint and the retrospective."""
    timeline = replace(state.sprint.timeline, ended=end.time)
    sprint = replace(state.sprint, timeline=timeline, retrospective=describe_sprint_end(state, end))
    return replace(state, sprint=sprint)


def describe_sprint_end(state: State, end: SprintEnd) -> str:
    """Return the retrospective: tasks, tries, rejections by kind, failed merges, reports, cost and time; a line each.

    The histories of archived tasks are not on the board, so only their statuses and verdicts are counted.
    """
    events = Counter(event.event for task in state.tasks for event in task.history)
    events.update(state.archived.verdicts)
    statuses = Counter(task.status.value for task in state.tasks)
    statuses.update({status.value: state.archived.counts.get(status, 0) for status in FINAL_STATUSES})
    most = max(state.tasks, key=lambda task: task.iteration, default=None)
    tries = f"tries: {sum(task.iteration for task in state.tasks)}"
    tries += f", most for {most.id}: {most.iteration}" if most is not None and most.iteration > 1 else ""
    rejections = {text: events[event] for event, text in _REJECTIONS.items()}
    total = sum(rejections.values())
    lines = [
        f"tasks: {_counts(statuses)}",
        tries,
        f"rejections: {total}" + (f" ({_counts(rejections)})" if total else ""),
        f"failed merges: {events[E.MERGE_FAILED] - events[E.MERGE_CLEARED]}",
        f"crashed sessions: {events[E.CRASH]}",
        *_report_line(state),
    ]
    seconds = goal_seconds(state, end.time)
    lines += [f"cost: {end.cost}"] if end.cost else []
    lines += [f"time: {format_duration(seconds)}"] if seconds is not None else []
    archived = state.archived.total
    lines += [f"without the tries and merges of {count_noun(archived, 'archived task')}"] if archived else []
    return "\n".join(lines)


def _report_line(state: State) -> list[str]:
    """Return what agents reported; empty if they reported nothing."""
    converted = sum(discovery.converted_to_task is not None for discovery in state.discovered)
    kinds = Counter(anomaly.type for anomaly in state.anomalies)
    parts = [f"{count_noun(len(state.discovered), 'discovery', 'discoveries')}, {converted} of them tasks"]
    parts = parts if state.discovered else []
    return [f"reports: {', '.join([*parts, *filter(None, [_counts(kinds)])])}"] if parts or kinds else []


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
