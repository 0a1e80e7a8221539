"""A terminal for tests and measurements: it keeps the screen that a program draws, counts bytes, and can be slow."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from liza.printing.columns import cell_width

_CODE = re.compile(r"\x1b\[([?>=<]?[0-9;]*)([ $]?[@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78M]")
_UNFINISHED = re.compile(r"\x1b(\[[?>=<]?[0-9;]*[ $]?|\][^\x07\x1b]*)?$")
ALTERNATE, SHOWN = "?1049h", "?25h"


class ScreenText:
    """The rows of a screen, as the text and the codes that were written make them."""

    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], None]) -> None:
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.modes: dict[str, bool] = {}
        self._row = self._column = 0
        self._main = self.cells, 0, 0
        self._rest = ""
        self._answer = answer

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]

    def feed(self, text: str) -> None:
        text = self._rest + text
        unfinished = _UNFINISHED.search(text)
        self._rest = unfinished[0] if unfinished else ""
        text = text.removesuffix(self._rest)
        end = 0
        for code in _CODE.finditer(text):
            self._put(text[end : code.start()])
            end = code.end()
            if code[2]:
                self._control(code[1], code[2])
        self._put(text[end:])

    def _put(self, text: str) -> None:
        for character in text:
            width = cell_width(character)
            if character == "\r":
                self._column = 0
            elif character == "\n":
                self._feed_line()
            elif width and self._column < self.columns and self._row < self.rows:
                self.cells[self._row][self._column : self._column + width] = [character, ""][:width]
                self._column += width

    def _feed_line(self) -> None:
        """Move down a row; from the last one, all rows move up."""
        if self._row + 1 < self.rows:
            self._row += 1
        else:
            self.cells = [*self.cells[1:], [" "] * self.columns]

    def _switch(self, to_alternate: bool) -> None:
        """Show the alternate screen, which begins empty, or the main one as it was left."""
        if to_alternate != self.modes.get("1049", False):
            if to_alternate:
                self._main = self.cells, self._row, self._column
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            else:
                self.cells, self._row, self._column = self._main

    def _control(self, values: str, kind: str) -> None:
        numbers = [int(value or 0) for value in values.lstrip("?><=").split(";")]
        if kind == "H":
            self._row, self._column = max(numbers[0], 1) - 1, max([*numbers, 1, 1][1], 1) - 1
        elif kind in ("h", "l"):
            if values == "?1049":
                self._switch(kind == "h")
            self.modes[values.lstrip("?")] = kind == "h"
            if values + kind == ALTERNATE:
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif kind == "J":
            self.cells = [[" "] * self.columns for _ in range(self.rows)]
        elif kind == "n":
            self._answer(f"\x1b[{self._row + 1};{self._column + 1}R".encode())


class TerminalStandIn:
    """A program at a pseudo-terminal. ``bytes_per_second``: of the line. ``answers``: it answers what is asked."""

    def __init__(
        self,
        words: Sequence[str | Path],
        cwd: Path,
        size: tuple[int, int] = (80, 24),
        *,
        env: Mapping[str, str] | None = None,
        bytes_per_second: float = 0,
        answers: bool = True,
    ) -> None:
        self._speed, self._answers = bytes_per_second, answers
        self.count = 0
        self.screen = ScreenText(*size, self._reply)
        self.master, slave = pty.openpty()
        self._resize(slave, size)
        self.mode_before = termios.tcgetattr(slave)
        variables = {**os.environ, "TERM": "xterm-256color", **(env or {})}
        for name in ("COLUMNS", "LINES"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            [str(word) for word in words], cwd=cwd, env=variables, stdin=slave, stdout=slave, stderr=slave,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        self.slave = slave
        self._closed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _reply(self, answer: bytes) -> None:
        if self._answers:
            self.type(answer)

    def _read(self) -> None:
        size = max(1, int(self._speed / 50)) if self._speed else 65536
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while not self._closed.is_set():
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(self.master, size)
            except OSError:
                return
            self.count += len(data)
            self.screen.feed(decode(data))
            if self._speed:
                time.sleep(len(data) / self._speed)

    def type(self, keys: str | bytes) -> None:
        """Type keys."""
        os.write(self.master, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, columns: int, rows: int) -> None:
        """Make the terminal another size."""
        self.screen = ScreenText(columns, rows, self._reply)
        self._resize(self.slave, (columns, rows))

    def _resize(self, terminal: int, size: tuple[int, int]) -> None:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.screen.lines)

    def wait_for(self, is_true: Callable[[], object], seconds: float = 60.0) -> float:
        """Wait until something is so; return the seconds that it took."""
        start = time.monotonic()
        while not is_true():
            assert time.monotonic() - start < seconds, f"not so in {seconds} s:\n{self.text}"
            time.sleep(0.005)
        return time.monotonic() - start

    def wait_for_text(self, text: str, seconds: float = 60.0) -> float:
        """Wait until a text is on the screen; return the seconds that it took."""
        return self.wait_for(lambda: text in self.text, seconds)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was before the program."""
        left = {"1049": False, "25": True, "2004": False, "1000": False, "1003": False, "1004": False}
        modes = self.screen.modes
        return termios.tcgetattr(self.slave) == self.mode_before and all(
            modes.get(name, is_set) == is_set for name, is_set in left.items()
        )

    def cut_line(self) -> None:
        """Close the terminal, as a cut connection does."""
        self._closed.set()
        self._reader.join()
        os.close(self.slave)
        os.close(self.master)

    def __enter__(self) -> TerminalStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._closed.set()


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
