"""Print data on stdout, notices on stderr, and JSON if requested."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from liza.crew.result import Result
from liza.model.statuses import task_word
from liza.printing.columns import (
    cell_width,
    count_rows,
    escape_json,
    fit_rows,
    strip_controls,
    strip_controls_but_colours,
    wrap_text,
)
from liza.system.installation import qualify_command
from liza.text.formats import format_duration
from liza.text.undecoded import encode_json

MIN_WIDTH = 40
"""Minimum width in cells for which lines are broken."""
_COUNT_SECONDS = 1.0


def print_text(text: str) -> None:
    """Write a text to stdout, ended by one newline, without control sequences. An empty text writes nothing."""
    if text:
        safe = _strip_for_terminal(text)
        sys.stdout.write(safe if safe.endswith("\n") else safe + "\n")


def _strip_for_terminal(text: str) -> str:
    return strip_controls_but_colours(text) if wants_colours() else strip_controls(text)


def print_wrapped(words: str) -> None:
    """As ``print_text``; at a terminal, lines are broken between words to its width."""
    print_text(_wrap_to_terminal(words))


def _wrap_to_terminal(words: str) -> str:
    width = text_width()
    return words if width is None else wrap_text(words, width)


def text_width() -> int | None:
    """Return the width in cells to which text is wrapped; None if stdout is no terminal: it is not wrapped."""
    return max(MIN_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def print_notice(text: str) -> None:
    """Write a notice to stderr."""
    sys.stdout.flush()
    sys.stderr.write(strip_controls(text) + "\n")


def print_json(value: Any) -> None:
    """Write a value as JSON to stdout: structs as mappings, times as RFC 3339."""
    print_text(escape_json(msgspec.json.format(encode_json(_to_fields(value)), indent=2).decode()))


def _to_fields(value: Any) -> Any:
    """Return the JSON form of a struct that declares one, such as that of `liza status`; other values unchanged."""
    return value.fields() if hasattr(value, "fields") else value


def print_result(result: Result, as_json: bool) -> None:
    """Print the result of a verb, then the suggested next command."""
    if as_json:
        print_json(result.to_dict())
        return
    subject = " ".join(part for part in (result.task, task_word(result.status or "")) if part)
    print_text(result.message or (f"{subject}: {result.result}" if subject else result.result))
    if result.next:
        print_text(f"next: {qualify_command(result.next)}")
    print_remarks(result)


def print_remarks(result: Result) -> None:
    """Write the remarks of a result to stderr."""
    for remark in result.remarks:
        print_notice(f"remark: {remark}")


def wants_colours() -> bool:
    """Whether to use colours: stdout is a terminal, and neither NO_COLOR nor TERM=dumb is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def time_of_day(when: datetime | None = None) -> str:
    """Return the local time of day as HH:MM:SS; default: now."""
    return f"{(when or datetime.now(UTC)).astimezone():%H:%M:%S}"


def discard_output(notice: str) -> None:
    """Report once on stderr that stdout has no reader any more, with ``notice``; discard all further output."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    try:
        _write_unbuffered(f"the reader of this output has exited; {notice}\n", sys.stderr)
    except OSError:
        os.dup2(devnull, sys.stderr.fileno())
    os.close(devnull)


def print_json_line(value: Any) -> None:
    """Write a value as one line of JSON, unbuffered."""
    print_now(escape_json(encode_json(_to_fields(value)).decode()) + "\n")


def print_now(text: str) -> None:
    """Write a text to stdout, unbuffered: for output that is followed live."""
    safe = _strip_for_terminal(text)
    _write_unbuffered(safe if not safe or safe.endswith("\n") else safe + "\n", sys.stdout)


def _write_unbuffered(text: str, stream: TextIO) -> None:
    """Write to the file descriptor, not through the stream's buffer.

    A thread that writes through the buffer keeps the buffer's lock while the reader is stopped. The main thread could
    then not flush the stream at the end of the command, and would not exit before the reader continues.
    """
    stream.flush()
    remaining = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while remaining:
        remaining = remaining[os.write(stream.fileno(), remaining) :]


def print_row(before: str, text: str) -> None:
    """Write a line, unbuffered; at a terminal broken to its width, with continuation lines below ``text``."""
    width = text_width()
    print_now(before + text if width is None else wrap_text(before + text, width, cell_width(before)))


class RunningLine:
    """Shows which command runs and for how long: at a terminal a line that counts until it ends, elsewhere a line.

    Nothing else may be printed between ``begin`` and ``end``.
    """

    def __init__(self) -> None:
        self._counts = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, text: str) -> None:
        self.end()
        if not self._counts:
            print_now(text)
            return
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(text, self._ended), name="running", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Remove the line. Idempotent."""
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None

    def _count(self, text: str, ended: threading.Event) -> None:
        start = time.monotonic()
        safe = " ".join(strip_controls(text).split("\n"))
        # Of a terminal that is gone the main thread hears, too.
        with suppress(OSError):
            while True:
                seconds = format_duration(time.monotonic() - start)
                # After the last column of a row some terminals begin a new one.
                room = max(1, shutil.get_terminal_size().columns - len(seconds) - len(" … ") - 1)
                shown = next(safe[:end] for end in range(len(safe), -1, -1) if cell_width(safe[:end]) <= room)
                _write_unbuffered(f"\r{shown} … {seconds}\x1b[K", sys.stdout)
                if ended.wait(_COUNT_SECONDS):
                    _write_unbuffered("\r\x1b[K", sys.stdout)
                    return


class Repainting:
    """Paints one text over the other in the same place of a terminal; elsewhere it appends them.

    A picture has at most as many rows as the terminal, and is written at once: nothing flickers. What the terminal
    showed before scrolls away, and the last picture stays when the block ends.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._end: str | None = None

    def __enter__(self) -> Repainting:
        return self

    def __exit__(self, *error: object) -> None:
        if self._end:
            _write_unbuffered(self._end, sys.stdout)

    def paint(self, text: str) -> None:
        wrapped = _wrap_to_terminal(text)
        if not self._is_terminal:
            print_now(wrapped)
            return
        columns, rows = shutil.get_terminal_size()
        lines = fit_rows(_strip_for_terminal(wrapped).split("\n"), columns, rows)
        # A line that ends in the last column needs no erasing, which would take its last character.
        frame = "\n".join(line if line and cell_width(line) % columns == 0 else f"{line}\x1b[K" for line in lines)
        is_full = sum(count_rows(line, columns) for line in lines) >= rows
        scroll = "\n" * (rows - 1) if self._end is None else ""
        self._end = "\n" if is_full else ""
        _write_unbuffered(f"{scroll}\x1b[H{frame}" + ("" if is_full else "\n\x1b[J"), sys.stdout)
