"""Numbers with their noun, for messages. Pure."""

from __future__ import annotations


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 task``, ``3 tasks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
