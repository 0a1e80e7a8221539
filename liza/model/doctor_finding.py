"""A line of the report of `liza doctor`."""

from __future__ import annotations

from liza.model.value_classes import Value


class Finding(Value):
    """One line of the report. If ``ok`` is False the crew cannot work, and ``hint`` is a command."""

    about: str
    text: str
    ok: bool = True
    hint: str = ""
