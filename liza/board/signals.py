"""PAUSE, CHECKPOINT and ABORT: files in ``.liza/`` that a person can touch and every supervisor obeys."""

from __future__ import annotations

import re
from typing import Final

from liza.rules.errors import UsageError
from liza.rules.paths import Paths
from liza.system import files

SIGNALS: Final = ("ABORT", "CHECKPOINT", "PAUSE")
"""From the strongest to the weakest."""

_MAX_REASON: Final = 1 << 16  # bytes of a reason
_HEADER: Final = re.compile(r"\A\d{4}-\d\d-\d\dT\S+ \S+\n")
"""When it was raised, and by whom; a person may have made the file without it."""


def raise_signal(paths: Paths, name: str, text: str = "") -> None:
    """Raises a signal; ``text`` says why. Raised twice, the newer text stays. Raises Usage for an unknown name."""
    files.replace_unsynced_via(paths.tx, paths.signal(_check_name(name)), text.encode())


def clear_signal(paths: Paths, name: str) -> bool:
    """Takes a signal down; False where it did not stand. Raises Usage for an unknown name."""
    try:
        paths.signal(_check_name(name)).unlink()
    except FileNotFoundError:
        return False
    return True


def active_signals(paths: Paths) -> tuple[str, ...]:
    """The signals that stand, the strongest first."""
    return tuple(name for name in SIGNALS if paths.signal(name).exists())


def read_signal_text(paths: Paths, name: str) -> str | None:
    """Why a signal was raised; None where it does not stand."""
    try:
        return paths.signal(_check_name(name)).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def read_reason(paths: Paths, name: str) -> str:
    """The reason that was given for a signal, in one line; empty where it does not stand, has none, or cannot be read.
    Raises Usage for an unknown name."""
    try:
        text = files.read_limited(paths.signal(_check_name(name)), _MAX_REASON).decode(errors="replace")
    except OSError:
        return ""
    return " ".join(_HEADER.sub("", text).split())


def _check_name(name: str) -> str:
    if name not in SIGNALS:
        raise UsageError(f"{name!r} is no signal: {', '.join(SIGNALS)}", "liza pause --help")
    return name
