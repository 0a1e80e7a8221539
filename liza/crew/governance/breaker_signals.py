"""The signals that open trips of the circuit breaker set."""

from __future__ import annotations

from liza.board import signals
from liza.crew.crew import Crew
from liza.rules.formatting.times import format_time
from liza.rules.governance import open_trips
from liza.rules.model import State


def restore_signals(crew: Crew, state: State) -> tuple[str, ...]:
    """Set the signals of the open trips that are not set; return their names.

    A signal that a person set stays as it is. The caller holds the lock of the alert log. Raises LizaError, OSError.
    """
    missing = open_trips.signals_of_trips(state)
    for name in signals.active_signals(crew.paths):
        missing.pop(name, None)
    for name, trip in missing.items():
        reason = f"{open_trips.describe_trip(trip)}; then: {open_trips.RESOLVE_COMMAND}"
        text = f"{format_time(crew.clock.now())} {open_trips.BREAKER_AUTHOR}\n{reason}\n"
        signals.raise_signal(crew.paths, name, text)
    return tuple(missing)


def clear_signals(crew: Crew) -> tuple[str, ...]:
    """Clear the signals that the circuit breaker set; return their names. Raises LizaError, OSError."""
    cleared = []
    for name in open_trips.SIGNAL_OF_SEVERITY.values():
        if signals.read_author(crew.paths, name) == open_trips.BREAKER_AUTHOR and signals.clear_signal(
            crew.paths, name
        ):
            cleared.append(name)
    return tuple(cleared)
