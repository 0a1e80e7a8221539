"""Print the output of a crew in the foreground, in a separate thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

MAX_WAITING_LINES = 10_000
"""Maximum number of lines that wait for a slow reader; further lines are counted and dropped."""


class PrintTimedLine(Protocol):
    """Print a line of an agent with its time; an empty name means `up` itself.

    It must not hold the lock of a stream while it waits for a reader: Python flushes the streams at exit.
    """

    def __call__(self, agent: str, text: str, when: datetime) -> None: ...


class Feed:
    """Print lines in order without blocking the caller.

    A reader can be slow, stopped (``| less``) or gone (``| head``). None of these may block the reading of a
    supervisor's pipe or the handling of Ctrl+C. Lines that cannot be printed are dropped.
    """

    def __init__(self, say: PrintTimedLine, now: Callable[[], datetime]) -> None:
        self._print_timed, self._now = say, now
        self._lines: queue.SimpleQueue[tuple[str, str, datetime] | threading.Event | None] = queue.SimpleQueue()
        self._dropped = 0
        self._printer = threading.Thread(target=self._print, name="print", daemon=True)
        self._printer.start()

    def __call__(self, agent: str, text: str) -> None:
        if self._lines.qsize() >= MAX_WAITING_LINES:
            self._dropped += 1
        else:
            self._lines.put((agent, text, self._now()))

    def flush(self, limit: float) -> None:
        """Print the waiting lines, for at most ``limit`` seconds."""
        printed = threading.Event()
        self._lines.put(printed)
        printed.wait(limit)

    def close(self, limit: float) -> None:
        """Print the waiting lines for at most ``limit`` seconds; drop the rest."""
        self._lines.put(None)
        self._printer.join(limit)

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._print_line(*line)
            if self._dropped and self._lines.empty():
                count, self._dropped = self._dropped, 0
                self._print_line("", f"{count} lines were dropped: the reader was too slow", self._now())

    def _print_line(self, agent: str, text: str, when: datetime) -> None:
        try:
            self._print_timed(agent, text, when)
        except OSError:
            # The disk is full or the terminal is gone: the next line may succeed.
            return
