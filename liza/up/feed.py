"""What a crew in the foreground says, printed in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

MAX_WAITING_LINES = 10_000
"""How many lines may wait for a reader that does not read; what comes then is counted and left out."""


class PrintTimedLine(Protocol):
    """Print a line of an agent, or with an empty name of `up` itself, with the time at which it was said.

    It must keep no lock of a stream while it waits for a reader: Python flushes the streams when the command ends.
    """

    def __call__(self, agent: str, text: str, when: datetime) -> None: ...


class Feed:
    """Print lines in their order without ever making the caller wait.

    A reader can be slow, stopped (``| less``) or gone (``| head``). None of these may hold up a supervisor, whose pipe
    has to be read, or the answer to Ctrl+C. What cannot be printed is dropped.
    """

    def __init__(self, say: PrintTimedLine, now: Callable[[], datetime]) -> None:
        self._print_timed, self._now = say, now
        self._lines: queue.SimpleQueue[tuple[str, str, datetime] | None] = queue.SimpleQueue()
        self._dropped = 0
        self._printer = threading.Thread(target=self._print, name="print", daemon=True)
        self._printer.start()

    def __call__(self, agent: str, text: str) -> None:
        if self._lines.qsize() >= MAX_WAITING_LINES:
            self._dropped += 1
        else:
            self._lines.put((agent, text, self._now()))

    def close(self, limit: float) -> None:
        """Print what is left for at most ``limit`` seconds; what nobody takes in this time is dropped."""
        self._lines.put(None)
        self._printer.join(limit)

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            self._print_line(*line)
            if self._dropped and self._lines.empty():
                count, self._dropped = self._dropped, 0
                self._print_line("", f"{count} lines were left out: nobody read them in time", self._now())

    def _print_line(self, agent: str, text: str, when: datetime) -> None:
        try:
            self._print_timed(agent, text, when)
        except OSError:
            # A full disk or a terminal that is gone: the next line may come through again.
            return
