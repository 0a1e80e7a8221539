"""Failed merges of a task: their texts, and which of them its gates caused. Pure.

A text has one line with the reason and the log file, then the end of the output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Task
from liza.text.undecoded import list_names

_CONFLICT = "conflict with "
_LOG = re.compile(r" \(log: (\S+)\)")


def format_failure(what: str, log: str, end: str) -> str:
    """Return the text for a failed command. ``log``: file with all output; ``end``: end of the output."""
    return f"{what} (log: {log})\n{end}"


def describe_conflict(branch: str, files: Sequence[str], hunks: str) -> str:
    """Return the text for a conflict with a branch."""
    return f"{_CONFLICT}{branch} in {list_names(files)}" + (f"\n{hunks}" if hunks else "")


def is_conflict(detail: str | None) -> bool:
    """Return whether a merge failed because of a conflict; else its gates were red, or the commit cannot be merged."""
    return (detail or "").startswith(_CONFLICT)


def find_cleared(task: Task) -> tuple[Event, ...]:
    """Return the failed merges of a task that had another cause than the task."""
    cleared: list[Event] = []
    failed: list[Event] = []
    for event in task.history:
        if event.event == HistoryEvent.MERGE_FAILED:
            failed.append(event)
        elif event.event == HistoryEvent.MERGE_CLEARED:
            cleared += failed[-1:]
    return tuple(cleared)


def is_last_return_cleared(task: Task) -> bool:
    """Return whether the task was sent back last by a failed merge that had another cause: nothing is to be changed."""
    returns = (HistoryEvent.REJECT, HistoryEvent.MERGE_FAILED, HistoryEvent.MERGE_CLEARED)
    last = next((event for event in reversed(task.history) if event.event in returns), None)
    return last is not None and last.event == HistoryEvent.MERGE_CLEARED


def find_blames(task: Task) -> tuple[Event, ...]:
    """Return the failed merges for which the task was blamed, but for conflicts."""
    cleared = find_cleared(task)
    return tuple(
        event
        for event in task.history
        if event.event == HistoryEvent.MERGE_FAILED and event not in cleared and not is_conflict(event.detail)
    )


def count_in_a_row(task: Task) -> int:
    """Return how many merges failed since the task was unblocked last, without those of another cause."""
    cleared, count = find_cleared(task), 0
    for event in reversed(task.history):
        if event.event == HistoryEvent.UNBLOCK:
            break
        count += event.event == HistoryEvent.MERGE_FAILED and event not in cleared
    return count


def last_failure(task: Task) -> str:
    """Return the text of the task's last failed merge; empty without one."""
    failures = [event for event in task.history if event.event == HistoryEvent.MERGE_FAILED]
    return (failures[-1].detail or "").strip() if failures else ""


def first_line(detail: str | None) -> str:
    """Return the first line: why the merge failed, without the output."""
    return next(iter((detail or "").strip().splitlines()), "")


def inspect_command(task: Task) -> str:
    """Return the command that shows the log of the last failure, or the task if there is no log."""
    log = _LOG.search(first_line(last_failure(task)))
    return f"less {log[1]}" if log else f"liza task show {task.id}"
