"""restore: bring back a board that cannot be read."""

from __future__ import annotations

from liza.repo import history
from liza.rules.errors import BoardInconsistent, BoardUnreadable, Usage
from liza.verbs.answer import Answer
from liza.verbs.caller import human_or
from liza.verbs.crew import Crew


def restore(crew: Crew, last_good: bool) -> Answer:
    """Put the newest board that is known good in the place of one that cannot be read, which is kept beside it.

    Unchanged where the board can be read. Raises Usage, BoardInconsistent where nothing good is left.
    """
    by = human_or(crew, planner=False)
    if not last_good:
        raise Usage("say which board to bring back", "liza restore --last-good")
    try:
        state = crew.board.read()
    except BoardUnreadable as broken:
        text = _newest(crew)
        crew.board.replace_text(by, text, event="restore")
        state = crew.board.read()
        more = {"revision": state.revision, "was": broken.message, "kept": str(crew.paths.tx)}
        return Answer("changed", None, None, "liza validate; liza status", more)
    return Answer("unchanged", None, None, "liza status", {"revision": state.revision})


def _newest(crew: Crew) -> str:
    try:
        return crew.board.last_good()
    except BoardInconsistent:
        recorded = history.tip(crew.git)
        if recorded is None:
            raise
        return recorded[1]
