"""textual's driver for terminals, with flow control, for lines that end and for terminals without UTF-8."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from textual import events
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from liza.ui.terminal.pacing import Pacing

PLAIN = str.maketrans({"─": "-", "│": "|", "…": "~", "·": "."})
"""What is drawn on a terminal without UTF-8."""


class PacedDriver(LinuxDriver):
    """Writes to a terminal, and reads keys from it. The app has a ``pacing``."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._pacing: Pacing = app.pacing
        encoding = getattr(sys.__stderr__, "encoding", None) or "utf-8"
        self._encoding = None if "utf" in encoding.lower() else encoding

    def write(self, data: str) -> None:
        """Write to the terminal. On a line that was cut, nothing is written."""
        if self._encoding is not None:
            data = data.translate(PLAIN).encode(self._encoding, "replace").decode(self._encoding)
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._pacing.note_output()
            super().write(data)

    def start_application_mode(self) -> None:
        """Take the terminal, at the start and after a suspension."""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None or not self._writer_thread.is_alive():
            return
        self._pacing.start(self.write)
        # After a suspension the terminal is blank, and textual would draw only what changes.
        asyncio.get_running_loop().call_soon_threadsafe(self._draw_all)

    def _draw_all(self) -> None:
        if self._app.screen_stack:
            self._app.screen.refresh(layout=True)

    def disable_input(self) -> None:
        """Read no more keys."""
        self._pacing.stop()
        super().disable_input()

    def process_message(self, message: Message) -> None:
        """Take an answer of the terminal, in the thread that reads the keys; pass on everything else."""
        if isinstance(message, events.CursorPosition):
            self._pacing.note_answer()
        else:
            super().process_message(message)

    def run_input_thread(self) -> None:
        """Read keys until the app ends. A byte that is no UTF-8 is no key."""
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue
            except OSError:
                # The line was cut. The system sends SIGHUP only to the leader of the session.
                os.kill(os.getpid(), signal.SIGHUP)
                return
