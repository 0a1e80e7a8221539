"""An app of textual on a terminal: paced by what the terminal has shown, and ended by signals with exit code 128+n."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

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
        """Take the terminal, at the start and after a suspension.

        SIGCONT asks for it also if no other program had it: then its raw mode would be kept as the one to restore.
        """
        if self._has_terminal():
            return
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None or not self._writer_thread.is_alive():
            return
        self._pacing.start(self.write)
        # After a suspension the terminal is blank, and textual would draw only what changes.
        asyncio.get_running_loop().call_soon_threadsafe(self._draw_all)

    def _has_terminal(self) -> bool:
        """Return whether this program has the terminal still: a shell that had it meanwhile has changed its mode."""
        if self._writer_thread is None or not self._writer_thread.is_alive() or not os.isatty(self.fileno):
            return False
        is_raw = not termios.tcgetattr(self.fileno)[tty.LFLAG] & termios.ICANON
        return is_raw and os.tcgetpgrp(self.fileno) == os.getpgrp()

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
