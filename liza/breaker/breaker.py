"""breaker: show, check and resolve the circuit breaker, whose open trips set signals."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from liza.board.contract import Board
from liza.breaker.rules import breaker_trips
from liza.breaker.rules.breaker_patterns import SessionCost, collect_events, evaluate_patterns, fingerprint
from liza.breaker.rules.breaker_trips import (
    RESOLVE_COMMAND,
    RESUME_COMMAND,
    open_trips,
    record_findings,
    resolve_trips,
    signals_of_trips,
)
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.logged_alarms import LOCK_TIMEOUT, alerts_lock
from liza.crew.result import Result
from liza.model.model import State
from liza.model.narration import LIZA
from liza.model.value_classes import asdict
from liza.system import crash_points
from liza.system.files import BOARD_MODE
from liza.system.locks import lock_path
from liza.text.formats import count_noun, format_time
from liza.usage import costs


def show_breaker(board: Board) -> dict[str, Any]:
    """Return the status, the open trips, the resolved ones, the newest first, and the settings."""
    state = board.read()
    trips = [asdict(trip) for trip in reversed(state.circuit_breaker.history)]
    is_open = bool(open_trips(state))
    return {
        "status": "TRIGGERED" if is_open else "OK",
        "open": [trip for trip in trips if trip["resolved"] is None],
        "resolved": [trip for trip in trips if trip["resolved"] is not None],
        "settings": asdict(state.config.breaker),
        "next": RESOLVE_COMMAND if not signals_of_trips(state) else RESUME_COMMAND if is_open else "liza status",
    }


def resolve(crew: Crew, root_cause: str) -> Result:
    """Resolve all open trips and clear the signals that they set.

    Without an open trip, clear the signals that a killed resolution left.

    Raises Refused inside a session other than a planner's, for a planner also if a trip is a halt, UsageError without
    a root cause, LockTimeout.
    """
    by = require_person(crew, planner=True)
    # A supervisor that checks at the same time would set the signals again.
    with lock_path(alerts_lock(crew.paths), LOCK_TIMEOUT, BOARD_MODE):
        before = crew.board.read()
        if open_trips(before) or not has_signal(crew.board):
            with crew.change(by, "breaker resolve") as tx:
                tx.state = resolve_trips(tx.state, by, root_cause, crew.clock.now())
            before = tx.before
            crash_points.point("breaker", "resolved")
        cleared = clear_signals(crew)
    resolved = [trip.trigger for trip in open_trips(before)]
    message = f"{count_noun(len(resolved), 'trip')} resolved" + (f": {', '.join(resolved)}" if resolved else "")
    message += f"; {', '.join(cleared)} cleared" if cleared else ""
    return Result("changed", None, None, "", {"resolved": resolved, "cleared": list(cleared)}, message)


def restore_signals(crew: Crew, state: State) -> tuple[str, ...]:
    """Set the signals of the open trips that are not set; return their names.

    A signal of the circuit breaker without an open trip is cleared: a resolution was killed before it did so. A signal
    that a person set stays as it is. The caller holds the lock of the alert log, and has read ``state`` since. Raises
    LizaError, OSError.
    """
    with crew.board.lock_signals(is_stop=True) as is_locked:
        # The lock of the alert log is of this host: on another one the trips may have been resolved meanwhile.
        wanted = breaker_trips.signals_of_trips(crew.board.read() if crew.is_on_server else state)
        active = crew.board.signals()
        missing = {name: trip for name, trip in wanted.items() if name not in active}
        for name, trip in missing.items():
            reason = f"{breaker_trips.describe_trip(trip)}; then: {breaker_trips.RESUME_COMMAND}"
            text = f"{format_time(crew.clock.now())} {breaker_trips.BREAKER_AUTHOR}\n{reason}\n"
            crew.board.raise_signal(name, text)
        if is_locked:
            _clear_own(crew.board, wanted)
    return tuple(missing)


def clear_signals(crew: Crew) -> tuple[str, ...]:
    """Clear the signals that the circuit breaker set; return their names. Raises LizaError, OSError."""
    with crew.board.lock_signals():
        return _clear_own(crew.board, ())


def has_signal(board: Board) -> bool:
    """Return whether a signal is set that the circuit breaker set."""
    return any(signal.author == breaker_trips.BREAKER_AUTHOR for signal in board.signals().values())


def _clear_own(board: Board, wanted: Collection[str]) -> tuple[str, ...]:
    """Clear the signals of the circuit breaker that are not ``wanted``. The caller holds the lock of the signals."""
    own = (name for name, signal in board.signals().items() if signal.author == breaker_trips.BREAKER_AUTHOR)
    return tuple(name for name in own if name not in wanted and board.clear_signal(name))


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
