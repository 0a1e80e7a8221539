"""The health of a run and of the server, from what is known of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value
from liza.programs.rules.lifecycle_rules import LifecycleEvent

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


_HOPELESS_SILENCE = frozenset({SilenceKind.LOGIN, SilenceKind.BROKEN})


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
