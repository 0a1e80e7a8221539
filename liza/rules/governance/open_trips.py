"""The open trips of the circuit breaker: the signals that they set, their alarms, and the command that resolves them.

Pure. Supervisors and `liza status` import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.model import BreakerTrip, State

CHECKPOINT: Final = "checkpoint"
HALT: Final = "halt"
SIGNAL_OF_SEVERITY: Final = {CHECKPOINT: "CHECKPOINT", HALT: "PAUSE"}
PLACEHOLDER: Final = "ROOT CAUSE"
RESOLVE_COMMAND: Final = f'liza breaker resolve "{PLACEHOLDER}"'
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

    Cheap, and without imports: most crews have no failures, and too few sessions for the pattern without merges.
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
    return RESOLVE_COMMAND if signals_of_trips(state) else "liza resume"


def breaker_alarms(state: State) -> Iterator[Alarm]:
    """Yield an alarm for each open trip. One with severity warn stops nothing."""
    for trip in open_trips(state):
        kind = AlarmKind.BREAKER_TRIPPED if trip.severity in SIGNAL_OF_SEVERITY else AlarmKind.BREAKER_WARNING
        about = " ".join(filter(None, (trip.trigger, trip.subject)))
        yield Alarm(kind, about, describe_trip(trip), RESOLVE_COMMAND, trip.time)
