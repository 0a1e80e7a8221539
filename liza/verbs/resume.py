"""resume: take down what pause put up."""

from __future__ import annotations

from liza.board import signals
from liza.rules.errors import Refused
from liza.verbs import spent
from liza.verbs.answer import Answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def resume(crew: Crew) -> Answer:
    """Take PAUSE, CHECKPOINT and ABORT down; unchanged where none stands.

    Raises Refused inside a session, and while more is spent than the budget allows; LizaError where that is not known.
    """
    human_or(crew, planner=False)
    state = crew.board.read()
    why = spent.over(crew, state) if signals.standing(crew.paths) else None
    if why is not None:
        # Taken away, PAUSE would be put up again at the next look of a supervisor, which tells a person nothing.
        raise Refused(f"{why}, and the crew would pause again at once: raise config.budget first", "liza edit")
    cleared = [name for name in signals.SIGNALS if signals.clear(crew.paths, name)]
    told = f"{', '.join(cleared)} taken away: the crew goes on" if cleared else "nothing was paused"
    return Answer("changed" if cleared else "unchanged", None, None, "liza status", {"cleared": cleared}, told)
