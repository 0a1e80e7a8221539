"""pause: supervisors take nothing new while the signal stands."""

from __future__ import annotations

from liza.board import signals
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result


def pause(crew: Crew, why: str = "") -> Result:
    """Put PAUSE up; unchanged where it stands with the same reason. Raises Refused inside a session."""
    return _raise(crew, "PAUSE", why)


def checkpoint(crew: Crew, why: str = "") -> Result:
    """Put CHECKPOINT up: a person is to look the sprint over. Raises Refused inside a session."""
    return _raise(crew, "CHECKPOINT", why)


def _raise(crew: Crew, name: str, why: str) -> Result:
    by = require_person(crew, planner=False)
    crew.board.read()
    standing = signals.read_signal_text(crew.paths, name)
    if standing is not None and (not why or f"\n{why}\n" in standing):
        return _signal_result(crew, "unchanged", name)
    signals.raise_signal(crew.paths, name, f"{crew.clock.now():%Y-%m-%dT%H:%M:%SZ} {by}\n{why}\n")
    return _signal_result(crew, "changed", name)


def _signal_result(crew: Crew, result: str, name: str) -> Result:
    told = f"{name} stands: sessions go on, and nothing new is begun"
    return Result(result, None, None, "liza resume", {"signals": list(signals.active_signals(crew.paths))}, told)
