"""Printing: data on stdout, notices on stderr, JSON where it was asked for."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from typing import IO, Any, TextIO

from liza.cli.render.columns import cell_width, escape_json, strip_controls, strip_controls_but_colours, wrap_text
from liza.crew.liza_path import qualify_command
from liza.crew.result import Result

MIN_WIDTH = 40
"""Cells; in a narrower terminal lines are broken as if it had so many."""


def print_text(text: str) -> None:
    """Write a text to stdout, ended by one newline, with nothing in it that steers a terminal; nothing for no text."""
    if text:
        shown = _strip_for_terminal(text)
        sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")


def _strip_for_terminal(text: str) -> str:
    return strip_controls_but_colours(text) if wants_colours() else strip_controls(text)


def print_wrapped(words: str) -> None:
    """As ``out``; at a terminal broken between words to its width."""
    print_text(_wrap_to_terminal(words))


def _wrap_to_terminal(words: str) -> str:
    return wrap_text(words, _terminal_width()) if sys.stdout.isatty() else words


def _terminal_width() -> int:
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def print_notice(text: str) -> None:
    """Say something beside the data, on stderr."""
    sys.stdout.flush()
    sys.stderr.write(strip_controls(text) + "\n")


def print_json(value: Any) -> None:
    """Write a value as JSON to stdout: structs as mappings, times as RFC 3339."""
    import msgspec

    print_text(escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def print_result(said: Result, as_json: bool) -> None:
    """What a verb answered: one line for what is so now, one for what comes next."""
    if as_json:
        print_json(said.to_dict())
        return
    what = " ".join(word for word in (said.task, said.status) if word)
    print_text(said.message or (f"{what}: {said.result}" if what else said.result))
    if said.next:
        print_text(f"next: {qualify_command(said.next)}")


def wants_colours(stream: IO[str] | None = None) -> bool:
    """Whether colours are wanted: a terminal, and neither NO_COLOR nor TERM=dumb."""
    asked = stream or sys.stdout
    return asked.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def time_of_day(when: datetime | None = None) -> str:
    """The time of day by the clock of this machine, HH:MM:SS; default: now."""
    return f"{(when or datetime.now(UTC)).astimezone():%H:%M:%S}"


def discard_output(now: str) -> None:
    """Say once on stderr that nobody reads stdout any more, and what is so now; all further output goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        _written(f"nobody reads this output any more; {now}\n", sys.stderr)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def print_json_line(value: Any) -> None:
    """Write a value as one line of JSON, at once."""
    import msgspec

    print_now(escape_json(msgspec.json.encode(value).decode()) + "\n")


def print_now(text: str) -> None:
    """Write a text to stdout at once: somebody watches."""
    shown = _strip_for_terminal(text)
    _written(shown if not shown or shown.endswith("\n") else shown + "\n", sys.stdout)


def _written(text: str, stream: TextIO) -> None:
    """Write to the file itself, not through the buffer of the stream.

    A thread that writes through the buffer keeps its lock while the reader is stopped. Then the main thread could not
    flush the stream at the end of the command: it would not end before the reader goes on.
    """
    stream.flush()
    rest = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while rest:
        rest = rest[os.write(stream.fileno(), rest) :]


def print_row(before: str, text: str) -> None:
    """Write a line at once; at a terminal broken between words to its width, the rest below ``text``."""
    print_now(wrap_text(before + text, _terminal_width(), cell_width(before)) if sys.stdout.isatty() else before + text)


def redraw_screen(text: str) -> None:
    """Draw a text over the last one on a terminal; one after the other elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        sys.stdout.write("\x1b[H\x1b[2J")
    print_now(_wrap_to_terminal(text))
