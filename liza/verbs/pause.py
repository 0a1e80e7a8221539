"""pause: set a signal; while it is set, supervisors start nothing new."""

from __future__ import annotations

from liza.board import signals
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.formatting.times import format_time
from liza.rules.governance.breaker_trips import BREAKER_AUTHOR


def pause(crew: Crew, why: str = "") -> Result:
    """Set PAUSE; unchanged if it is set with the same reason. Raises Refused inside a session."""
    return _raise(crew, "PAUSE", why)


def checkpoint(crew: Crew, why: str = "") -> Result:
    """Set CHECKPOINT: a person is to check the sprint. Raises Refused inside a session."""
    return _raise(crew, "CHECKPOINT", why)


def _raise(crew: Crew, name: str, why: str) -> Result:
    by = require_person(crew, planner=False)
    crew.board.read()
    with signals.lock_signals(crew.paths, is_stop=True):
        current = signals.read_signal_text(crew.paths, name)
        # A person's signal outlives the resolution of a trip, and keeps planners from starting.
        is_persons = signals.read_author(crew.paths, name) != BREAKER_AUTHOR
        is_new = current is None or not is_persons or bool(why and f"\n{why}\n" not in current)
        if is_new:
            signals.raise_signal(crew.paths, name, f"{format_time(crew.clock.now())} {by}\n{why}\n")
    return _signal_result(crew, "changed" if is_new else "unchanged", name)


def _signal_result(crew: Crew, result: str, name: str) -> Result:
    message = f"{name} is set: sessions continue, and nothing new is started"
    return Result(result, None, None, "liza resume", {"signals": list(signals.active_signals(crew.paths))}, message)
