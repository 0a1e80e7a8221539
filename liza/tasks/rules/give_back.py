"""Give back the work that an agent holds without a session."""

from __future__ import annotations

from datetime import datetime

from liza.model.model import State
from liza.model.owned_work import find_current_work
from liza.model.statuses import WorkKind
from liza.tasks.rules import claims
from liza.tasks.rules.planning import end_planning
from liza.tasks.rules.reviews import release_review


def give_back_work(state: State, agent: str, now: datetime) -> State:
    """Give back what ``agent`` holds. A claim is stopped and stays with its coder; a review or planning is free again.

    Unchanged if it holds nothing.
    """
    work = find_current_work(state, agent)
    if work is None:
        return state
    if work.kind == WorkKind.PLANNING:
        return end_planning(state, work.run)
    if work.task is None:
        return state
    if work.kind == WorkKind.REVIEW:
        return release_review(state, work.task, work.run, now)
    return claims.stop(state, work.task, work.run, now)
