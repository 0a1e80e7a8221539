"""The circuit breaker in a crew: supervisors check it, and its open trips set signals."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from liza.board import signals
from liza.breaker.rules import breaker_trips
from liza.breaker.rules.breaker_patterns import SessionCost, evaluate_patterns
from liza.breaker.rules.breaker_trips import record_findings
from liza.breaker.rules.watched_events import collect_events, fingerprint
from liza.crew.crew import Crew
from liza.model.model import State
from liza.tasks.rules.narration import LIZA
from liza.text.times import format_time
from liza.usage import costs


def restore_signals(crew: Crew, state: State) -> tuple[str, ...]:
    """Set the signals of the open trips that are not set; return their names.

    A signal of the circuit breaker without an open trip is cleared: a resolution was killed before it did so. A signal
    that a person set stays as it is. The caller holds the lock of the alert log, and has read ``state`` since. Raises
    LizaError, OSError.
    """
    wanted = breaker_trips.signals_of_trips(state)
    with signals.lock_signals(crew.paths, is_stop=True) as is_locked:
        active = signals.active_signals(crew.paths)
        missing = {name: trip for name, trip in wanted.items() if name not in active}
        for name, trip in missing.items():
            reason = f"{breaker_trips.describe_trip(trip)}; then: {breaker_trips.RESUME_COMMAND}"
            text = f"{format_time(crew.clock.now())} {breaker_trips.BREAKER_AUTHOR}\n{reason}\n"
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
    return any(_is_own(crew, name) for name in breaker_trips.SIGNAL_OF_SEVERITY.values())


def _clear_own(crew: Crew, wanted: Collection[str]) -> tuple[str, ...]:
    """Clear the signals of the circuit breaker that are not ``wanted``. The caller holds the lock of the signals."""
    names = [name for name in breaker_trips.SIGNAL_OF_SEVERITY.values() if name not in wanted and _is_own(crew, name)]
    return tuple(name for name in names if signals.clear_signal(crew.paths, name))


def _is_own(crew: Crew, name: str) -> bool:
    return signals.read_author(crew.paths, name) == breaker_trips.BREAKER_AUTHOR


def check_breaker(crew: Crew, state: State, last: str) -> str:
    """Record the trips that are due, and set the signals of open trips. Return the fingerprint of the events.

    ``last`` is the result of the last check, or empty. The caller holds the lock of the alert log and has read
    ``state`` since. Raises LizaError, OSError.
    """
    now = crew.clock.now()
    events = collect_events(state, now)
    seen = fingerprint(events, state.config.breaker)
    if seen != last:
        findings = evaluate_patterns(state, events, _collect_costs(crew, state))
        if findings:
            with crew.change(LIZA, "breaker") as tx:
                tx.state = record_findings(tx.state, findings, now)
            state = tx.state
    restore_signals(crew, state)
    return seen


def _collect_costs(crew: Crew, state: State) -> list[SessionCost]:
    """Return the costs of the sessions within the window; empty if they are not limited."""
    settings = state.config.breaker
    if settings.cost_without_merge <= 0:
        return []
    start = crew.clock.now() - timedelta(seconds=settings.window)
    used = ((entry.run, entry.time, entry.used) for entry in costs.read_usage(crew, state))
    return [SessionCost(run, time, spent.cost) for run, time, spent in used if time > start and spent and spent.cost]
