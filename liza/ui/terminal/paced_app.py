"""An app of textual on a terminal: paced by what the terminal has shown, and ended by signals with exit code 128+n."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding

from liza.ui.terminal.paced_driver import PacedDriver
from liza.ui.terminal.pacing import Pacing

END_SECONDS = 3.0
"""Seconds from a signal to the end of this process, also if the terminal takes no more output."""


class PacedApp(App[None]):
    """Shows nothing by itself. Ctrl+Z suspends it, as any program."""

    BINDINGS: ClassVar = [Binding("ctrl+z", "suspend_process", show=False)]

    def __init__(self) -> None:
        self.pacing = Pacing(self)
        super().__init__(ansi_color=True, driver_class=PacedDriver)

    def on_load(self) -> None:
        """Take the signals that end this process. In tests there is no terminal to restore."""
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self._end_by, number)

    def _end_by(self, number: signal.Signals) -> None:
        """End because of a signal, with the terminal as it was before."""
        if not os.isatty(2):
            # The line was cut: a write to the terminal fails, at the latest when Python ends.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
        watchdog = threading.Timer(END_SECONDS, os._exit, (128 + number,))
        watchdog.daemon = True
        watchdog.start()
        self.exit(return_code=128 + number)

    def post_display_hook(self) -> None:
        """Note that textual has drawn."""
        self.pacing.note_picture(self.prepare_shown())

    def prepare_shown(self) -> Callable[[], None] | None:
        """Return what is done when the terminal has shown the picture that was drawn now."""
        return None
