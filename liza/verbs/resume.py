"""resume: take down what pause put up."""

from __future__ import annotations

from liza.board import signals
from liza.crew import usage_summary
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import Refused


def resume(crew: Crew) -> Result:
    """Take PAUSE, CHECKPOINT and ABORT down; unchanged where none stands.

    Raises Refused inside a session, and while more is spent than the budget allows; LizaError where that is not known.
    """
    require_person(crew, planner=False)
    state = crew.board.read()
    why = usage_summary.crew_over_budget_reason(crew, state) if signals.active_signals(crew.paths) else None
    if why is not None:
        # Taken away, PAUSE would be put up again at the next look of a supervisor, which tells a person nothing.
        raise Refused(f"{why}, and the crew would pause again at once: raise config.budget first", "liza edit")
    cleared = [name for name in signals.SIGNALS if signals.clear_signal(crew.paths, name)]
    told = f"{', '.join(cleared)} taken away: the crew goes on" if cleared else "nothing was paused"
    return Result("changed" if cleared else "unchanged", None, None, "liza status", {"cleared": cleared}, told)
