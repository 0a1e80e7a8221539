"""resume: clear the signals that pause and checkpoint set."""

from __future__ import annotations

from liza.board import signals
from liza.crew import usage_summary
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import Refused
from liza.rules.governance import breaker_trips


def resume(crew: Crew) -> Result:
    """Clear PAUSE, CHECKPOINT and ABORT, and count planning rounds anew; unchanged if none is set.

    Raises Refused inside a session, while the budget is exceeded, and while a trip of the circuit breaker that stops
    the crew is open; LizaError if the spending cannot be read.
    """
    by = require_person(crew, planner=False)
    state = crew.board.read()
    reason = usage_summary.crew_over_budget_reason(crew, state) if signals.active_signals(crew.paths) else None
    if reason is not None:
        # A supervisor would set PAUSE again at its next check, without an explanation for the person.
        raise Refused(f"{reason}; the crew would pause again at once: raise config.budget first", "liza edit")
    if state.planning.rounds:
        # Before the signals are cleared: a planner's supervisor would set CHECKPOINT again.
        with crew.change(by, "resume"):
            pass
    with signals.lock_signals(crew.paths):
        # Read again: a trip that was recorded since then may have set its signal already.
        for trip in breaker_trips.signals_of_trips(crew.board.read()).values():
            raise Refused(f"{breaker_trips.describe_trip(trip)}; resolve it first", breaker_trips.RESOLVE_COMMAND)
        cleared = [name for name in signals.SIGNALS if signals.clear_signal(crew.paths, name)]
    message = f"{', '.join(cleared)} cleared: the crew continues" if cleared else "no signal was set"
    return Result("changed" if cleared else "unchanged", None, None, "liza status", {"cleared": cleared}, message)
