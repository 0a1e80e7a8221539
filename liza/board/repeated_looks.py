"""Look at the board again after each change, as `status --watch` does."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any, Final

from liza.board.contract import Board
from liza.model.configuration import Config
from liza.model.errors import LizaError, NoCrew

QUIET_SECONDS: Final = 0.1  # seconds without an event that end a change: the writes of one verb cause several events


def watch_changes(board: Board, longest: float | None = None) -> Iterator[None]:
    """Yield now and after each change, and at least every ``longest`` seconds, None: every poll interval.

    A lease expires, and a supervisor exits, without a change.
    """
    events_queue: queue.Queue[Any] = queue.Queue()
    # Do not watch the locks: checking whether a supervisor runs touches its lock and would cause an endless loop.
    armed = board.watch()
    armed.subscribe(events_queue)
    try:
        while True:
            yield None
            _wait_for_event(events_queue, longest or _poll_interval(board))
    finally:
        armed.close()


def _poll_interval(board: Board) -> float:
    """Poll interval in seconds; the default if the board cannot be read, so that the watch continues."""
    try:
        return float(board.read().config.poll_interval)
    except NoCrew:
        raise
    except LizaError:
        return float(Config().poll_interval)


def _wait_for_event(events_queue: queue.Queue[Any], longest: float) -> None:
    try:
        events_queue.get(timeout=longest)
        while True:
            events_queue.get(timeout=QUIET_SECONDS)
    except queue.Empty:
        return
