"""PAUSE, CHECKPOINT and ABORT, which every supervisor obeys: their names and texts. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from liza.model.errors import UsageError
from liza.model.value_classes import Value

SIGNALS: Final = ("ABORT", "CHECKPOINT", "PAUSE")
"""From the strongest to the weakest."""
_HEADER: Final = re.compile(r"\A\d{4}-\d\d-\d\dT\S+ \S+\n")
"""First line of a signal: time and author. A signal that a person made by hand may lack it."""


class Signal(Value):
    """A signal that is set. ``text`` is what was written.

    ``author`` and ``reason`` are its header and the rest in one line; empty if they are missing. ``time`` is None if it
    is not known.
    """

    name: str
    text: str
    author: str
    reason: str
    time: datetime | None


def check_name(name: str) -> str:
    """Return the name of a signal. Raises UsageError if there is no such signal."""
    if name not in SIGNALS:
        raise UsageError(f"{name!r} is not a signal; signals are {', '.join(SIGNALS)}", "liza pause --help")
    return name


def parse_signal(name: str, text: str, time: datetime | None) -> Signal:
    """Return a signal with what its text says."""
    return Signal(name, text, _parse_author(text), _parse_reason(text), time)


def _parse_author(text: str) -> str:
    """Return who set a signal; empty without a header."""
    header = _HEADER.match(text)
    return header[0].split()[1] if header else ""


def _parse_reason(text: str) -> str:
    """Return the reason in one line, without the header."""
    return " ".join(_HEADER.sub("", text).split())
