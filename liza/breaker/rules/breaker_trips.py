"""Record findings as trips of the circuit breaker, say which are open, and resolve them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from liza.breaker.rules.breaker_patterns import BreakerFinding, Judged, severity_of
from liza.model.errors import Refused, UsageError
from liza.model.model import BreakerTrip, State
from liza.model.paths import is_person
from liza.model.value_classes import replace


def record_findings(state: State, findings: Iterable[BreakerFinding], now: datetime) -> State:
    """Return the board with a trip for each finding whose evidence no trip has judged, and with status TRIGGERED.

    The board is returned unchanged without a new trip: another supervisor may have recorded the same findings.
    """
    judged = Judged(state)
    fresh = [
        finding
        for finding in findings
        if len(judged.fresh(finding.pattern, finding.subject, finding.events)) == len(finding.events)
    ]
    if not fresh:
        return state
    trips = tuple(_make_trip(state, finding, now) for finding in fresh)
    breaker = replace(
        state.circuit_breaker,
        status="TRIGGERED",
        history=(*state.circuit_breaker.history, *trips),
    )
    return replace(state, circuit_breaker=breaker)


def _make_trip(state: State, finding: BreakerFinding, now: datetime) -> BreakerTrip:
    return BreakerTrip(
        # A clock that was set back must not make the evidence look newer than the trip.
        time=max(now, finding.last),
        trigger=finding.pattern.value,
        severity=severity_of(state.config.breaker, finding.pattern),
        subject=finding.subject,
        detail=finding.detail,
        tasks=finding.tasks,
        evidence=finding.evidence,
    )


def resolve_trips(state: State, by: str, root_cause: str, now: datetime) -> State:
    """Return the board with all open trips resolved. ``by``: a person, or a planner.

    Raises UsageError without a root cause, or with the placeholder of the hint; Refused if nothing is open, or if
    ``by`` is a planner and a trip is a halt.
    """
    if root_cause.strip() in ("", PLACEHOLDER):
        raise UsageError("a trip is resolved with its root cause", RESOLVE_COMMAND)
    trips = open_trips(state)
    if not trips:
        raise Refused("no trip of the circuit breaker is open", "liza breaker")
    halts = [trip.trigger for trip in trips if trip.severity == HALT]
    if halts and not is_person(by):
        raise Refused(f"only a person resolves a halt ({', '.join(halts)})", "liza breaker")
    history = tuple(
        replace(trip, resolved=max(now, trip.time), resolved_by=by, root_cause=root_cause.strip())
        if trip.resolved is None
        else trip
        for trip in state.circuit_breaker.history
    )
    breaker = replace(state.circuit_breaker, status="OK", history=history)
    return replace(state, circuit_breaker=breaker)


CHECKPOINT: Final = "checkpoint"
HALT: Final = "halt"
SIGNAL_OF_SEVERITY: Final = {CHECKPOINT: "CHECKPOINT", HALT: "PAUSE"}
PLACEHOLDER: Final = "…"
RESOLVE_COMMAND: Final = f'liza breaker resolve "{PLACEHOLDER}"'
RESUME_COMMAND: Final = f'liza resume "{PLACEHOLDER}"'
"""The command of a person that resolves all open trips and clears all signals."""
BREAKER_AUTHOR: Final = "circuit-breaker"
"""Author in the first line of a signal file that the circuit breaker wrote."""


def open_trips(state: State) -> tuple[BreakerTrip, ...]:
    """Return the trips that are not resolved, the oldest first."""
    return tuple(trip for trip in state.circuit_breaker.history if trip.resolved is None)


def signals_of_trips(state: State) -> dict[str, BreakerTrip]:
    """Return each signal that an open trip sets, with the oldest such trip."""
    wanted: dict[str, BreakerTrip] = {}
    for trip in open_trips(state):
        name = SIGNAL_OF_SEVERITY.get(trip.severity)
        if name is not None:
            wanted.setdefault(name, trip)
    return wanted


def is_worth_a_check(state: State) -> bool:
    """Return whether the events of the board can reach a threshold, or a trip is open.

    Most crews have no failures, and too few sessions for the pattern without merges.
    """
    settings = state.config.breaker
    if state.anomalies or state.circuit_breaker.history or settings.cost_without_merge > 0:
        return True
    if 2 * len(state.tasks) >= settings.sessions_without_merge > 0:
        return True
    return any(
        task.review_cycles_total or task.integration_fix or task.blocked_reason or task.iteration > 1
        for task in state.tasks
    )


def describe_trip(trip: BreakerTrip) -> str:
    """Return what tripped, in one line."""
    return f"circuit breaker, {trip.trigger}: {trip.detail}"


def signal_hint(state: State) -> str:
    """Return the command by which the crew continues while a signal is set."""
    return RESUME_COMMAND if signals_of_trips(state) else "liza resume"
