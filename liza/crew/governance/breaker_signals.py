"""The signals that open trips of the circuit breaker set."""

from __future__ import annotations

from collections.abc import Collection

from liza.board import signals
from liza.crew.crew import Crew
from liza.rules.formatting.times import format_time
from liza.rules.governance import open_trips
from liza.rules.model import State


def restore_signals(crew: Crew, state: State) -> tuple[str, ...]:
    """Set the signals of the open trips that are not set; return their names.

    A signal of the circuit breaker without an open trip is cleared: a resolution was killed before it did so. A signal
    that a person set stays as it is. The caller holds the lock of the alert log, and has read ``state`` since. Raises
    LizaError, OSError.
    """
    wanted = open_trips.signals_of_trips(state)
    with signals.lock_signals(crew.paths, is_stop=True) as is_locked:
        active = signals.active_signals(crew.paths)
        missing = {name: trip for name, trip in wanted.items() if name not in active}
        for name, trip in missing.items():
            reason = f"{open_trips.describe_trip(trip)}; then: {open_trips.RESOLVE_COMMAND}"
            text = f"{format_time(crew.clock.now())} {open_trips.BREAKER_AUTHOR}\n{reason}\n"
            signals.raise_signal(crew.paths, name, text)
        if is_locked:
            _clear_own(crew, wanted)
    return tuple(missing)


def clear_signals(crew: Crew) -> tuple[str, ...]:
    """Clear the signals that the circuit breaker set; return their names. Raises LizaError, OSError."""
    with signals.lock_signals(crew.paths):
        return _clear_own(crew, ())


def has_signal(crew: Crew) -> bool:
    """Return whether a signal is set that the circuit breaker set."""
    return any(_is_own(crew, name) for name in open_trips.SIGNAL_OF_SEVERITY.values())


def _clear_own(crew: Crew, wanted: Collection[str]) -> tuple[str, ...]:
    """Clear the signals of the circuit breaker that are not ``wanted``. The caller holds the lock of the signals."""
    names = [name for name in open_trips.SIGNAL_OF_SEVERITY.values() if name not in wanted and _is_own(crew, name)]
    return tuple(name for name in names if signals.clear_signal(crew.paths, name))


def _is_own(crew: Crew, name: str) -> bool:
    return signals.read_author(crew.paths, name) == open_trips.BREAKER_AUTHOR
