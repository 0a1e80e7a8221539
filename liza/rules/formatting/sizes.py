"""Format sizes for people."""

from __future__ import annotations


def format_bytes(size: float) -> str:
    """Return ``512 bytes``, ``40 kB``, ``12 MB`` or ``1.5 GB``, in powers of 1000."""
    if size < 1000:
        return f"{int(size)} bytes"
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
