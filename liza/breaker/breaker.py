"""breaker: show the circuit breaker, and let a person or a planner resolve its trips."""

from __future__ import annotations

from typing import Any

from liza.breaker import breaker_signals
from liza.breaker.rules.breaker_trips import (
    RESOLVE_COMMAND,
    RESUME_COMMAND,
    open_trips,
    resolve_trips,
    signals_of_trips,
)
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.logged_alarms import LOCK_TIMEOUT, alerts_lock
from liza.crew.result import Result
from liza.model.value_classes import asdict
from liza.system import crash_points
from liza.system.files import BOARD_MODE
from liza.system.locks import lock_path
from liza.tasks import next_steps
from liza.text.counts import count_noun


def show_breaker(crew: Crew) -> dict[str, Any]:
    """Return the status, the open trips, the resolved ones, the newest first, and the settings."""
    state = crew.board.read()
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
        if open_trips(before) or not breaker_signals.has_signal(crew):
            with crew.change(by, "breaker resolve") as tx:
                tx.state = resolve_trips(tx.state, by, root_cause, crew.clock.now())
            before = tx.before
            crash_points.point("breaker", "resolved")
        cleared = breaker_signals.clear_signals(crew)
    resolved = [trip.trigger for trip in open_trips(before)]
    message = f"{count_noun(len(resolved), 'trip')} resolved" + (f": {', '.join(resolved)}" if resolved else "")
    message += f"; {', '.join(cleared)} cleared" if cleared else ""
    result = Result("changed", None, None, "", {"resolved": resolved, "cleared": list(cleared)}, message)
    return next_steps.with_next_step(result, next_steps.find_next_step(crew, before, "the crew continues"))
