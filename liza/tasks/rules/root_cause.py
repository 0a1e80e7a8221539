"""The rule that demands a root cause before more code: three rejections of one kind. Pure."""

from __future__ import annotations

from typing import Final

from liza.breaker.rules.text_similarity import are_similar
from liza.breaker.rules.watched_events import REJECTIONS
from liza.model.history_events import HistoryEvent
from liza.model.model import Task

SAME_REJECTIONS: Final = 3
"""Number of similar rejections in a row after which a coder states the root cause before it changes code."""


def find_repeated_rejections(task: Task, similarity: int) -> tuple[str, ...]:
    """Return the reasons of the last SAME_REJECTIONS rejections if they are similar; otherwise empty.

    An unblocked task begins to count again. ``similarity`` is ``config.breaker.similarity``.
    """
    reasons: list[str] = []
    for event in reversed(task.history):
        if event.event == HistoryEvent.UNBLOCK or len(reasons) == SAME_REJECTIONS:
            break
        if event.event in REJECTIONS:
            reasons.append(event.detail or "")
    if len(reasons) < SAME_REJECTIONS:
        return ()
    return tuple(reversed(reasons)) if are_similar(reasons[::-1], similarity) else ()
