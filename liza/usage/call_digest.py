"""Short forms of a tool call: a digest to compare it, and a summary for a person. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_SUMMARY = 100


def digest(value: Any) -> str:
    """Return a short digest of a value, to compare values."""
    return hashlib.sha1(json.dumps(value, sort_keys=True, default=str).encode(), usedforsecurity=False).hexdigest()[:16]


def summarize_call(values: Any) -> str:
    """Return the call in one line.

    Programs may cut a text within a surrogate pair; the remaining half cannot be encoded and is replaced.
    """
    summary = " ".join(" ".join(_strings(values)).split())[:_MAX_SUMMARY]
    return summary.encode(errors="replace").decode()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
