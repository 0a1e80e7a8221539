"""Record findings as trips of the circuit breaker, and resolve them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from liza.rules.errors import Refused, UsageError
from liza.rules.governance.breaker_patterns import BreakerFinding, Judged, severity_of
from liza.rules.governance.open_trips import HALT, PLACEHOLDER, RESOLVE_COMMAND, open_trips
from liza.rules.model import BreakerTrip, State
from liza.rules.paths import is_person
from liza.rules.value_classes import replace


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
