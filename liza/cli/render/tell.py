"""Printing: data on stdout, notices on stderr, JSON where it was asked for."""

from __future__ import annotations

import os
import shutil
import sys
from datetime import UTC, datetime
from typing import IO, Any, TextIO

from liza.cli.render.columns import coloured, escaped, harmless, width, wrapped
from liza.crew.liza_path import as_typed
from liza.crew.result import Result

MIN_WIDTH = 40
"""Cells; in a narrower terminal lines are broken as if it had so many."""


def out(text: str) -> None:
    """Write a text to stdout, ended by one newline, with nothing in it that steers a terminal; nothing for no text."""
    if text:
        shown = _shown(text)
        sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")


def _shown(text: str) -> str:
    return coloured(text) if colours() else harmless(text)


def text(words: str) -> None:
    """As ``out``; at a terminal broken between words to its width."""
    out(_fitted(words))


def _fitted(words: str) -> str:
    return wrapped(words, _width()) if sys.stdout.isatty() else words


def _width() -> int:
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)


def notice(text: str) -> None:
    """Say something beside the data, on stderr."""
    sys.stdout.flush()
    sys.stderr.write(harmless(text) + "\n")


def json(value: Any) -> None:
    """Write a value as JSON to stdout: structs as mappings, times as RFC 3339."""
    import msgspec

    out(escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def answer(said: Result, as_json: bool) -> None:
    """What a verb answered: one line for what is so now, one for what comes next."""
    if as_json:
        json(said.plain())
        return
    what = " ".join(word for word in (said.task, said.status) if word)
    out(said.told or (f"{what}: {said.result}" if what else said.result))
    if said.next:
        out(f"next: {as_typed(said.next)}")


def colours(stream: IO[str] | None = None) -> bool:
    """Whether colours are wanted: a terminal, and neither NO_COLOR nor TERM=dumb."""
    asked = stream or sys.stdout
    return asked.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def clock(when: datetime | None = None) -> str:
    """The time of day by the clock of this machine, HH:MM:SS; default: now."""
    return f"{(when or datetime.now(UTC)).astimezone():%H:%M:%S}"


def deaf(now: str) -> None:
    """Say once on stderr that nobody reads stdout any more, and what is so now; all further output goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        _written(f"nobody reads this output any more; {now}\n", sys.stderr)
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def line(value: Any) -> None:
    """Write a value as one line of JSON, at once."""
    import msgspec

    live(escaped(msgspec.json.encode(value).decode()) + "\n")


def live(text: str) -> None:
    """Write a text to stdout at once: somebody watches."""
    shown = _shown(text)
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


def row(before: str, text: str) -> None:
    """Write a line at once; at a terminal broken between words to its width, the rest below ``text``."""
    live(wrapped(before + text, _width(), width(before)) if sys.stdout.isatty() else before + text)


def screen(text: str) -> None:
    """Draw a text over the last one on a terminal; one after the other elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        sys.stdout.write("\x1b[H\x1b[2J")
    live(_fitted(text))
