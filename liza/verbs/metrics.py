"""metrics: counts over the sprint."""

from __future__ import annotations

from collections import Counter
from typing import Any

from liza.crew import usage_summary
from liza.crew.crew import Crew
from liza.rules import derived
from liza.rules.model import State, Status
from liza.rules.reports import timings

MIN_VERDICTS = 5
MAX_APPROVAL_RATE = 0.95


def metrics(crew: Crew) -> dict[str, Any]:
    """Tasks by status, tries, verdicts, and a warning where reviewers approve nearly everything."""
    state = crew.board.read()
    counts = derived.sprint_metrics(state)
    given = counts["approved"] + counts["rejected"]
    rate = round(counts["approved"] / given, 3) if given else None
    kind = rate is not None and given >= MIN_VERDICTS and rate > MAX_APPROVAL_RATE
    now = crew.clock.now()
    times = {task.id: timings.task_times(task, now) for task in state.tasks}
    return {
        "sprint": state.sprint.id,
        "goal_status": state.goal.status,
        "goal_seconds": timings.goal_seconds(state, now),
        "waiting_seconds": timings.waiting_seconds(state, now),
        "tasks": [
            {
                "id": task.id,
                "status": task.status.value,
                "seconds": times[task.id].seconds,
                "tries": times[task.id].tries,
                "waiting_seconds": times[task.id].waiting,
            }
            for task in state.tasks
        ],
        **counts,
        "by_status": _by_status(state),
        "approval_rate": rate,
        "untested_merges": sum(task.tested is False for task in state.tasks if task.status is Status.MERGED),
        **usage_summary.usage_breakdown(crew),
        "messages": usage_summary.delivery_statistics(crew, state),
        "anomalies": dict(Counter(one.type for one in state.anomalies)),
        "warnings": [f"reviewers approved {rate:.0%} of {given}: do they look?"] if kind else [],
    }


def _by_status(state: State) -> dict[str, int]:
    found = Counter(task.status for task in state.tasks)
    return {status.value: found[status] for status in Status if found[status]}
