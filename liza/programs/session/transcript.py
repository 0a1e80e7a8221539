"""The readable part of a program's output: of machine-readable events, only the text in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

SPOKEN_KEYS = ("text", "message", "result", "content", "error", "detail")
"""Keys under which programs put the model's or their own text."""


_NOISE = re.compile(r"^at .*(?:[:(]\d+:\d+\)?|\(native.*|<anonymous>.*)$|^[\W_]+$|^'?(?:data|event): |\":.*\":")
"""Lines that explain nothing to a person: a stack frame, punctuation only, a part of an event."""


def extract_lines(text: str) -> Iterator[str]:
    """Yield the readable text, line by line; events without text are left out."""
    for line in text.splitlines():
        event = _parse_event(line)
        for spoken in (line,) if event is None else _spoken_texts(event):
            # A surrogate half, from a character that was cut in two, cannot be encoded in a file.
            clean = spoken.encode("utf-8", "replace").decode()
            yield from (part for part in map(str.strip, clean.splitlines()) if part and not _NOISE.search(part))


def _parse_event(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


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
