"""Flow control: the next picture is drawn when the terminal has shown the last one.

On a slow line, textual queues pictures, and what is on the screen becomes older and older. After each picture the
terminal is asked where its cursor is (``ESC [ 6 n``). It answers when it has come that far. Until then textual draws
nothing; then it draws the newest state.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from textual.app import App

QUESTION: Final = "\x1b[6n"
FIRST_SECONDS: Final = 1.0
"""Longest wait for a terminal that has never answered: some cannot."""
LAST_SECONDS: Final = 5.0
"""Longest wait for one that has answered: the answer may be lost."""


class Pacing:
    """Holds back pictures of an app. Without a terminal, as in tests, nothing is held back."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._write: Callable[[str], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_output = False
        self._has_answered = False
        self._has_dropped = False
        self._unanswered = 0
        self._unshown: deque[Callable[[], None] | None] = deque()
        self._answer = threading.Condition()
        self._held = ExitStack()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, write: Callable[[str], None]) -> None:
        """Begin, with the function that writes to the terminal."""
        self._loop, self._write, self._unanswered = asyncio.get_running_loop(), write, 0
        self._unshown.clear()

    def stop(self) -> None:
        """End, when the answers have come: the shell would get those that come later as typed text."""
        with self._answer:
            if self._has_answered:
                self._answer.wait_for(lambda: not self._unanswered, timeout=FIRST_SECONDS)
        self._write = None
        self._release()

    def note_output(self) -> None:
        """Note that something was written to the terminal."""
        self._has_output = True

    def note_picture(self, shown: Callable[[], None] | None = None) -> None:
        """Ask the terminal for an answer after a picture; ``shown`` is called when it has answered.

        A picture that textual drops meanwhile is drawn later: for that one nothing is called.
        """
        if self._timer is not None:
            self._has_dropped = True
        elif self._write is None or self._loop is None:
            _call(shown)
        elif self._has_output:
            self._write(QUESTION)
            self._unshown.append(shown)
            self._unanswered += 1
            self._has_output = False
            self._held.enter_context(self._app.batch_update())
            seconds = LAST_SECONDS if self._has_answered else FIRST_SECONDS
            self._timer = self._loop.call_later(seconds, self._end_wait)

    def note_answer(self) -> None:
        """Take the terminal's answer, in the thread that reads it."""
        with self._answer:
            self._has_answered = True
            self._unanswered = max(0, self._unanswered - 1)
            self._answer.notify_all()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._take_answer, not self._unanswered)

    def _take_answer(self, is_last: bool) -> None:
        if self._unshown:
            _call(self._unshown.popleft())
        if is_last:
            self._release()

    def _end_wait(self) -> None:
        """Wait no longer. What a terminal that cannot answer was sent has to be taken as shown."""
        while self._unshown and not self._has_answered:
            _call(self._unshown.popleft())
        self._release()

    def _release(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._held.close()
        if not self._app.is_running or not self._app.screen_stack:
            return
        if self._has_dropped:
            self._has_dropped = False
            self._app.screen.refresh()
        self._app.screen.check_idle()


def _call(shown: Callable[[], None] | None) -> None:
    if shown is not None:
        shown()
