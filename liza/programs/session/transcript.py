"""The last words of a program for a person: of events that are meant for machines only what somebody said in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

SPOKEN_KEYS = ("text", "message", "result", "content", "error", "detail")
"""Keys under which programs put what the model, or they themselves, say."""


_NOISE = re.compile(r"^at .*(?:[:(]\d+:\d+\)?|\(native.*|<anonymous>.*)$|^[\W_]+$|^'?(?:data|event): |\":.*\":")
"""What explains nothing to a person: a frame of a stack, punctuation alone, half of an event."""


def extract_lines(text: str) -> Iterator[str]:
    """What was said, line by line; an event that says nothing is left out."""
    for line in text.splitlines():
        event = _parse_event(line)
        for one in (line,) if event is None else _spoken_texts(event):
            # Half of a character that was cut in two can stand in no file.
            whole = one.encode("utf-8", "replace").decode()
            yield from (said for said in map(str.strip, whole.splitlines()) if said and not _NOISE.search(said))


def _parse_event(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _spoken_texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _spoken_texts(one)
    if isinstance(value, dict):
        for key, one in value.items():
            if key in SPOKEN_KEYS and isinstance(one, str):
                yield one
            else:
                yield from _spoken_texts(one)
