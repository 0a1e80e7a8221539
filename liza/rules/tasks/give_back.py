"""What an agent holds and has no session for is given back."""

from __future__ import annotations

from datetime import datetime

from liza.rules.model import State
from liza.rules.sessions.decide import find_current_work
from liza.rules.tasks import claims
from liza.rules.tasks.planning import end_planning
from liza.rules.tasks.reviews import release_review


def give_back_work(state: State, agent: str, now: datetime) -> State:
    """Give back what ``agent`` holds: work is stopped and stays its coder's, a review or planning is free again.

    Unchanged where it holds nothing.
    """
    held = find_current_work(state, agent)
    if held is None:
        return state
    if held.kind == "planning":
        return end_planning(state, held.run)
    if held.task is None:
        return state
    if held.kind == "review":
        return release_review(state, held.task, held.run, now)
    return claims.stop(state, held.task, held.run, now)
