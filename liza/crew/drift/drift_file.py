"""The last look at what happened to the repository outside of Liza: read without a git, by whoever shows alarms."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.rules.paths import Paths
from liza.rules.reports.intrusions import Repository
from liza.system import atomic

Stamp = list[list[int] | None]


class LastLook(msgspec.Struct, frozen=True):
    """What was seen, and what the files were like that it came from. ``branches``: where the branches of people were,
    by ref."""

    stamp: Stamp
    seen: Repository
    branches: dict[str, str] = {}


def read(paths: Paths) -> LastLook:
    """What the last look saw; nothing where nobody has looked. Raises OSError."""
    try:
        return msgspec.json.decode(_place(paths).read_bytes(), type=LastLook)
    except (FileNotFoundError, msgspec.DecodeError):
        # Whoever looks next makes it anew.
        return LastLook([], Repository())


def write(paths: Paths, look: LastLook) -> None:
    """Keep a look for the others. Raises OSError."""
    atomic.write(_place(paths), msgspec.json.encode(look))


def _place(paths: Paths) -> Path:
    return paths.tx / "repository"
