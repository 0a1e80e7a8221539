"""restore: bring back a board that cannot be read."""

from __future__ import annotations

from liza.repo import history
from liza.rules.errors import BoardInconsistent, Usage
from liza.verbs.answer import Answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def restore(crew: Crew, last_good: bool) -> Answer:
    """Put the newest good board in the place of one that cannot be read or has lost its end, which is kept beside.

    Unchanged where the board can be read. Raises Usage, BoardInconsistent where nothing good is left.
    """
    by = human_or(crew, planner=False)
    if not last_good:
        raise Usage("say which board to bring back", "liza restore --last-good")
    was = _complaint(crew)
    if was is None or not crew.board.restore(by, lambda: _newest(crew)):
        return Answer("unchanged", None, None, "liza status", {"revision": crew.board.read().revision})
    more = {"revision": crew.board.read().revision, "was": was, "kept": str(crew.paths.tx)}
    return Answer("changed", None, None, "liza validate; liza status", more)


def _complaint(crew: Crew) -> str | None:
    """What is wrong with the board; None where it can be read."""
    try:
        crew.board.read()
    except BoardInconsistent as broken:
        return broken.message
    return None


def _newest(crew: Crew) -> str:
    try:
        return crew.board.last_good()
    except BoardInconsistent:
        recorded = history.tip(crew.git)
        if recorded is None:
            raise
        return recorded[1]
