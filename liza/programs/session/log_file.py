"""Log files for a program's output: readable by this user only, never written through a link, limited in size.

Of machine-readable events, people see the text in them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from liza.programs.session._shim import cap
from liza.system import untrusted_files

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT
__all__ = ["cap", "open_empty", "open_for_append", "read_last_lines", "read_tail"]


def open_for_append(path: Path) -> IO[str]:
    """Open a text file for appending. Raises OSError, NotRegularFile, also for a link."""
    return os.fdopen(untrusted_files.open_regular(path, _FLAGS), "a", encoding="utf-8", errors="backslashreplace")


def open_empty(path: Path) -> IO[bytes]:
    """Open a file empty, with O_APPEND, so that it can be truncated while another process writes.

    Raises OSError, NotRegularFile, also for a link.
    """
    return os.fdopen(untrusted_files.open_regular(path, _FLAGS | os.O_TRUNC), "ab", buffering=0)


def read_tail(path: Path, size: int = 1 << 16) -> str:
    """Return the last ``size`` bytes of a file of any size. Raises OSError, NotRegularFile."""
    with untrusted_files.open_to_read(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size).decode(errors="replace")


def read_last_lines(path: Path, size: int) -> str:
    """Return the last complete lines of a file, at most ``size`` bytes; a longer last line is cut at its start.

    Raises OSError, NotRegularFile.
    """
    tail = read_tail(path, size + 1)
    if len(tail.encode()) <= size:
        return tail
    _, _, complete = tail.partition("\n")
    return complete if complete.strip() else f"…{tail[2:]}"


def parse_object(line: str) -> dict[str, Any] | None:
    """Return the object in a line of output; None if it is text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


SPOKEN_KEYS = ("text", "message", "result", "content", "error", "detail")
"""Keys under which programs put the model's or their own text."""


_NOISE = re.compile(r"^at .*(?:[:(]\d+:\d+\)?|\(native.*|<anonymous>.*)$|^[\W_]+$|^'?(?:data|event): |\":.*\":")
"""Lines that explain nothing to a person: a stack frame, punctuation only, a part of an event."""


def extract_lines(text: str) -> Iterator[str]:
    """Yield the readable text, line by line; events without text are left out."""
    for line in text.splitlines():
        event = parse_object(line)
        for spoken in (line,) if event is None else _spoken_texts(event):
            # A surrogate half, from a character that was cut in two, cannot be encoded in a file.
            clean = spoken.encode("utf-8", "replace").decode()
            yield from (part for part in map(str.strip, clean.splitlines()) if part and not _NOISE.search(part))


def _spoken_texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _spoken_texts(item)
    if isinstance(value, dict):
        for key, item in value.items():
            if key in SPOKEN_KEYS and isinstance(item, str):
                yield item
            else:
                yield from _spoken_texts(item)
