"""Which reported event of a run's life is applied, and how healthy a run is. Pure.

The state of a run is named like the event that led to it. A runtime may retry a report, and reports may arrive out of
order: such an event is answered, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import MAXYEAR, MINYEAR, datetime, timedelta
from enum import StrEnum

from liza.model.errors import FutureTime, UsageError
from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value

MAX_CLOCK_LEAD = timedelta(seconds=60)
"""How far the clock of a runtime may be ahead of this machine's."""


class LifecycleEvent(StrEnum):
    """A transition that a runtime reports.

    ``started``: the program runs; ``ready``: it accepts its first prompt; ``busy``: it works on a prompt; ``idle``: the
    turn is over.
    """

    STARTED = "started"
    READY = "ready"
    BUSY = "busy"
    IDLE = "idle"
    STOPPING = "stopping"
    STOPPED = "stopped"


_E = LifecycleEvent
NEXT_EVENTS: dict[LifecycleEvent | None, frozenset[LifecycleEvent]] = {
    None: frozenset(_E),
    _E.STARTED: frozenset({_E.READY, _E.BUSY, _E.IDLE, _E.STOPPING, _E.STOPPED}),
    _E.READY: frozenset({_E.BUSY, _E.IDLE, _E.STOPPING, _E.STOPPED}),
    _E.BUSY: frozenset({_E.IDLE, _E.STOPPING, _E.STOPPED}),
    _E.IDLE: frozenset({_E.BUSY, _E.STOPPING, _E.STOPPED}),
    _E.STOPPING: frozenset({_E.STOPPED}),
    _E.STOPPED: frozenset(),
}
"""The events that are applied in each state; None: nothing was reported. A runtime may leave out events, for example
because a report was lost, and never goes back to an earlier part of its life."""
READY_EVENTS = frozenset({_E.READY, _E.BUSY, _E.IDLE})
"""Events that show that the run has read its brief, or can."""
WAITING_STATES = frozenset({_E.READY, _E.IDLE})
"""States in which the run waits for a prompt."""


def parse_state(phase: str) -> LifecycleEvent | None:
    """Return the state that a stored phase names; None if it names none: an agent can write the file."""
    return LifecycleEvent(phase) if phase in set(LifecycleEvent) else None


class ReportedState(Value):
    """The state that a runtime reported last, and the time of that event by the runtime's clock."""

    state: LifecycleEvent
    time: datetime


class EventVerdict(Value):
    """Whether an event is applied; ``reason`` says why not."""

    applied: bool
    reason: str | None = None


def judge_event(
    before: ReportedState | None, event: LifecycleEvent, timestamp: datetime, now: datetime
) -> EventVerdict:
    """Return whether ``event`` is applied. ``timestamp`` is the runtime's time of the event. Raises FutureTime.

    If the event before is dated more than MAX_CLOCK_LEAD after ``now``, the clock was set back. Then the order of
    arrival decides: otherwise all events would count as late until the clock has caught up, and an idle run would stay
    busy.
    """
    check_time(timestamp, now)
    if before is None:
        return EventVerdict(True)
    if event is before.state:
        return EventVerdict(False, f"repeated: the run is {before.state} since {before.time.isoformat()}")
    if timestamp < before.time <= now + MAX_CLOCK_LEAD:
        return EventVerdict(
            False, f"late: {timestamp.isoformat()} is before the event {before.state} at {before.time.isoformat()}"
        )
    if event not in NEXT_EVENTS[before.state]:
        return EventVerdict(False, f"no transition: a run that is {before.state} does not become {event}")
    return EventVerdict(True)


def check_time(timestamp: datetime, now: datetime) -> None:
    """Raise FutureTime if an event is dated more than MAX_CLOCK_LEAD after ``now``, UsageError as ``check_year`` does.

    An event in the future would make all that follow count as late.
    """
    if timestamp - now > MAX_CLOCK_LEAD:
        lead = (timestamp - now).total_seconds()
        raise FutureTime(
            f"the timestamp {timestamp.isoformat()} is {lead:.0f} s in the future; the limit is "
            f"{MAX_CLOCK_LEAD.total_seconds():.0f} s",
            "date -u",
        )
    check_year(timestamp)


def check_year(time: datetime) -> None:
    """Raise UsageError for a time of the years 1 and 9999: another time zone may have it outside of all years."""
    if not MINYEAR < time.year < MAXYEAR:
        raise UsageError(f"the time {time.isoformat()} is not within the years 2 to 9998", "date -u")


MAX_SILENCE = 60.0
"""Seconds without an answer to a question on the stream after which a run counts as unhealthy."""
REPORTED, OBSERVED = "reported", "observed"
"""Sources of the state of a session."""


class WorkerState(StrEnum):
    """The states of a worker that is asked for its health."""

    IDLE = "idle"
    BUSY = "busy"
    STOPPING = "stopping"


class HealthStatus(StrEnum):
    """``degraded``: it works, with a limit that a person should know; ``unhealthy``: it does not work."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"


class RunFacts(Value):
    """What is known of a run. Texts are reasons for people, None if there is nothing to say.

    ``over``: its session ended. ``silence``: why its model gives no answer, and as text. ``unanswered``: seconds since
    the oldest question that its runtime has not answered. ``reported``: what its runtime says of itself.
    """

    over: str | None = None
    silence: SilenceKind | None = None
    silence_text: str = ""
    stuck: str | None = None
    unmeasured: str | None = None
    question: str | None = None
    context_usage: float | None = None
    handoff_at: float = 1.0
    unanswered: float = 0.0
    reported: HealthStatus = HealthStatus.HEALTHY
    reported_error: str | None = None


class Health(Value):
    """A status and its reason."""

    status: HealthStatus
    error: str | None = None


_HOPELESS_SILENCE = frozenset({SilenceKind.LOGIN, SilenceKind.MODEL, SilenceKind.BROKEN})


def judge_run(facts: RunFacts) -> Health:
    """Return the worst that the facts show, with its reason."""
    return next(_judgments(facts), Health(HealthStatus.HEALTHY))


def _judgments(facts: RunFacts) -> Iterator[Health]:
    """Yield what is wrong, the worst first."""
    unhealthy, degraded = HealthStatus.UNHEALTHY, HealthStatus.DEGRADED
    if facts.over is not None:
        yield Health(unhealthy, facts.over)
    if facts.unanswered > MAX_SILENCE:
        yield Health(unhealthy, f"its runtime has not answered for {facts.unanswered:.0f} s")
    if facts.reported is unhealthy:
        yield Health(unhealthy, facts.reported_error or "its runtime reports that it does not work")
    if facts.silence in _HOPELESS_SILENCE:
        yield Health(unhealthy, facts.silence_text)
    if facts.silence is not None:
        yield Health(degraded, facts.silence_text)
    if facts.question is not None:
        yield Health(degraded, f"its program asks a person: {facts.question}")
    if facts.stuck is not None:
        yield Health(degraded, facts.stuck)
    if facts.reported is degraded:
        yield Health(degraded, facts.reported_error or "its runtime reports a limit")
    if facts.context_usage is not None and facts.context_usage > facts.handoff_at:
        yield Health(degraded, f"{facts.context_usage:.0%} of its context window is used")
    if facts.unmeasured is not None:
        yield Health(degraded, f"it cannot be measured: {facts.unmeasured}")


def worker_state(state: LifecycleEvent | None, *, is_over: bool) -> WorkerState:
    """Return the state for the API. ``state``: what was reported, None if nothing was: then a session works."""
    if is_over or state in (LifecycleEvent.STOPPING, LifecycleEvent.STOPPED):
        return WorkerState.STOPPING
    return WorkerState.BUSY if state in (None, LifecycleEvent.BUSY) else WorkerState.IDLE
