"""Hear of each change of the board, of a signal or of a session."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

from liza.crew.crew import Crew
from liza.rules.errors import LizaError, NoCrew
from liza.rules.model import Config
from liza.verbs.status import status

QUIET_SECONDS = 0.1  # seconds: what one verb writes comes in several events


def follow_status(crew: Crew) -> Iterator[dict[str, Any]]:
    """The summary now, and again after each change of the board, of a signal or of a session."""
    for _ in watch_changes(crew):
        yield status(crew)


def watch_changes(crew: Crew) -> Iterator[None]:
    """Once now, and once after each change; leases run out without one, so the poll interval is the longest wait."""
    from liza.board import events

    heard: queue.Queue[Any] = queue.Queue()
    # Not the locks: to ask whether a supervisor lives touches its lock, and would wake us for ever.
    watch = events.watch(crew.paths)
    watch.subscribe(heard)
    try:
        while True:
            yield None
            _wait_for_event(heard, _poll_interval(crew))
    finally:
        watch.close()


def _poll_interval(crew: Crew) -> float:
    """Seconds; the usual ones while the board cannot be asked, for whoever watches goes on."""
    try:
        return float(crew.board.read().config.poll_interval)
    except NoCrew:
        raise
    except LizaError:
        return float(Config().poll_interval)


def _wait_for_event(heard: queue.Queue[Any], longest: float) -> None:
    try:
        heard.get(timeout=longest)
        while True:
            heard.get(timeout=QUIET_SECONDS)
    except queue.Empty:
        return
