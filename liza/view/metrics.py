"""metrics: count tasks, verdicts and usage of the sprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict

from liza.briefs.inbox import delivery_statistics
from liza.crew.crew import Crew
from liza.model import derived
from liza.model.errors import UsageError
from liza.model.gates import is_untested
from liza.model.model import FINAL_STATUSES, State, Status
from liza.tasks import archive
from liza.text.formats import did_you_mean
from liza.usage import costs

MIN_VERDICTS = 5  # with fewer verdicts the approval rate says nothing
MAX_APPROVAL_RATE = 0.95  # above this rate reviewers may not look at the work


USAGE_GROUPS = ("task", "agent", "program", "account", "model", "tool", "outcome", "day")
"""Groups in which usage is summed. Days are in UTC."""


def usage_by(crew: Crew, groups: Sequence[str]) -> dict[str, Any]:
    """Return the usage in these groups only. Raises UsageError for an unknown group."""
    for group in groups:
        if group not in USAGE_GROUPS:
            groups_text = f"{', '.join(USAGE_GROUPS)}{did_you_mean(group, USAGE_GROUPS)}"
            raise UsageError(f"unknown group {group!r}; the groups: {groups_text}", "liza metrics --by model")
    state = crew.board.read()
    totals = costs.usage_breakdown(crew, state)
    return {"sprint": state.sprint.id, **{f"by_{group}": totals[f"by_{group}"] for group in groups}}


def metrics(crew: Crew) -> dict[str, Any]:
    """Return tasks by status, tries, verdicts and usage, with a warning if reviewers approve nearly everything."""
    state = crew.board.read()
    counts = derived.sprint_metrics(state)
    verdicts = counts["approved"] + counts["rejected"]
    rate = round(counts["approved"] / verdicts, 3) if verdicts else None
    is_too_high = rate is not None and verdicts >= MIN_VERDICTS and rate > MAX_APPROVAL_RATE
    now = crew.clock.now()
    archived = archive.read_figures(crew.paths, state)
    times = {task.id: derived.task_times(task, now) for task in state.tasks}
    return {
        "sprint": state.sprint.id,
        "goal_status": state.goal.status,
        "retrospective": state.sprint.retrospective,
        "goal_seconds": derived.goal_seconds(state, now),
        "waiting_seconds": derived.waiting_seconds(state, now, archived.waiting),
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
        "archived": state.archived.total,
        "by_status": _by_status(state),
        "approval_rate": rate,
        "untested_merges": archived.untested
        + sum(is_untested(task) for task in state.tasks if task.status is Status.MERGED),
        **costs.usage_breakdown(crew, state),
        "messages": asdict(delivery_statistics(crew.paths, state.agents)),
        "anomalies": dict(Counter(anomaly.type for anomaly in state.anomalies)),
        "warnings": [f"reviewers approved {rate:.0%} of {verdicts} submissions: check their reviews"]
        if is_too_high
        else [],
    }


def _by_status(state: State) -> dict[str, int]:
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    return {status.value: counts[status] for status in Status if counts[status]}
