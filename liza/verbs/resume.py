"""resume: take down what pause put up."""

from __future__ import annotations

from liza.board import signals
from liza.verbs.answer import Answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def resume(crew: Crew) -> Answer:
    """Take PAUSE, CHECKPOINT and ABORT down; unchanged where none stands. Raises Refused inside a session."""
    human_or(crew, planner=False)
    crew.board.read()
    cleared = [name for name in signals.SIGNALS if signals.clear(crew.paths, name)]
    told = f"{', '.join(cleared)} taken away: the crew goes on" if cleared else "nothing was paused"
    return Answer("changed" if cleared else "unchanged", None, None, "liza status", {"cleared": cleared}, told)
