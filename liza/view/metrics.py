"""metrics: count tasks, verdicts and usage of the sprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from liza.briefs import shared_inbox
from liza.briefs.inbox import DeliveryStatistics, delivery_statistics
from liza.crew.crew import Crew
from liza.model import derived, history_events
from liza.model.errors import UsageError
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.spending import USAGE_GROUPS
from liza.model.tested import is_untested
from liza.model.value_classes import Value, asdict, replace
from liza.tasks import archive
from liza.text.formats import did_you_mean
from liza.usage import costs
from liza.usage.costs import UsageBreakdown

MIN_VERDICTS = 5  # with fewer verdicts the approval rate says nothing
MAX_APPROVAL_RATE = 0.95  # above this rate reviewers may not look at the work


class UsageReport(Value):
    """The usage of all sessions in some ``groups``, and the sprint."""

    sprint: str
    groups: tuple[str, ...]
    usage: UsageBreakdown

    def fields(self) -> dict[str, Any]:
        """Return the usage as `metrics --by --json` prints it."""
        return {"sprint": self.sprint, **{name: getattr(self.usage, name) for name in self.groups}}


class TimedTask(Value):
    """Times of a task in seconds; ``seconds`` is None if it was never claimed."""

    id: str
    status: str
    seconds: int | None
    tries: int
    waiting_seconds: int


class SprintMetrics(Value, kw_only=True):
    """Tasks by status, tries, verdicts and usage of the sprint. ``counts``: as derived from the board."""

    sprint: str = ""
    goal_status: str = ""
    retrospective: str | None = None
    goal_seconds: int | None = None
    waiting_seconds: int = 0
    tasks: tuple[TimedTask, ...] = ()
    counts: Mapping[str, int] = {}
    archived: int = 0
    by_status: Mapping[str, int] = {}
    approval_rate: float | None = None
    untested_merges: int = 0
    undone_merges: int = 0
    usage: UsageBreakdown = UsageBreakdown()
    messages: DeliveryStatistics | None = None
    anomalies: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the metrics as `metrics --json` prints them: with the counts and the usage at top level."""
        own = asdict(self)
        counts, usage = own.pop("counts"), own.pop("usage")
        return {**own, **counts, **asdict(usage)}


def usage_by(crew: Crew, groups: Sequence[str]) -> UsageReport:
    """Return the usage in these groups only. Raises UsageError for an unknown group."""
    for group in groups:
        if group not in USAGE_GROUPS:
            groups_text = f"{', '.join(USAGE_GROUPS)}{did_you_mean(group, USAGE_GROUPS)}"
            raise UsageError(f"unknown group {group!r}; the groups: {groups_text}", "liza metrics --by model")
    state = crew.board.read()
    names = tuple(f"by_{group}" for group in groups)
    return UsageReport(state.sprint.id, names, costs.usage_breakdown(crew, state))


def metrics(crew: Crew) -> SprintMetrics:
    """Return the metrics of the sprint, with a warning if reviewers approve nearly everything."""
    state = crew.board.read()
    counts = derived.sprint_metrics(state)
    verdicts = counts["approved"] + counts["rejected"]
    rate = round(counts["approved"] / verdicts, 3) if verdicts else None
    is_too_high = rate is not None and verdicts >= MIN_VERDICTS and rate > MAX_APPROVAL_RATE
    warning = f"reviewers approved {rate or 0:.0%} of {verdicts} submissions: check their reviews"
    now = crew.clock.now()
    archived = archive.read_figures(crew.board, state)
    untested = sum(is_untested(task) for task in state.tasks if task.status is Status.MERGED)
    return SprintMetrics(
        sprint=state.sprint.id,
        goal_status=state.goal.status,
        retrospective=state.sprint.retrospective,
        goal_seconds=derived.goal_seconds(state, now),
        waiting_seconds=derived.waiting_seconds(state, now, archived.waiting),
        tasks=tuple(_report_times(task, now) for task in state.tasks),
        counts=counts,
        archived=state.archived.total,
        by_status=_by_status(state),
        approval_rate=rate,
        untested_merges=archived.untested + untested,
        undone_merges=archived.undone + sum(history_events.find_undo(task) is not None for task in state.tasks),
        usage=costs.usage_breakdown(crew, state),
        messages=_delivery_figures(crew, state),
        anomalies=dict(Counter(anomaly.type for anomaly in state.anomalies)),
        warnings=(warning,) if is_too_high else (),
    )


def _delivery_figures(crew: Crew, state: State) -> DeliveryStatistics:
    """Return how messages were delivered on this host, and how many wait, also for other hosts."""
    figures = delivery_statistics(crew.paths, state.agents)
    return replace(figures, waiting=figures.waiting + shared_inbox.count_waiting(crew, state.agents))


def _report_times(task: Task, now: datetime) -> TimedTask:
    times = derived.task_times(task, now)
    return TimedTask(task.id, task.status.value, times.seconds, times.tries, times.waiting)


def _by_status(state: State) -> dict[str, int]:
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    return {status.value: counts[status] for status in Status if counts[status]}
