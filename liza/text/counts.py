"""Numbers with their noun or unit, for messages. Pure."""

from __future__ import annotations


def count_noun(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 task``, ``3 tasks``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_bytes(size: float) -> str:
    """Return ``512 bytes``, ``40 kB``, ``12 MB`` or ``1.5 GB``, in powers of 1000."""
    if size < 1000:
        return f"{int(size)} bytes"
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
