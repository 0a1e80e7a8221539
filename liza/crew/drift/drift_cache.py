"""The last look at what happened to the repository outside of Liza: read without a git, by whoever shows alarms."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.rules.paths import Paths
from liza.rules.reports.drift_alarms import RepositoryDrift
from liza.system import atomic

RepositoryStamp = list[list[int] | None]


class CachedDrift(msgspec.Struct, frozen=True):
    """What was seen, and what the files were like that it came from. ``branches``: where the branches of people were,
    by ref."""

    stamp: RepositoryStamp
    seen: RepositoryDrift
    branches: dict[str, str] = {}


def read_cache(paths: Paths) -> CachedDrift:
    """What the last look saw; nothing where nobody has looked. Raises OSError."""
    try:
        return msgspec.json.decode(_cache_path(paths).read_bytes(), type=CachedDrift)
    except (FileNotFoundError, msgspec.DecodeError):
        # Whoever looks next makes it anew.
        return CachedDrift([], RepositoryDrift())


def write_cache(paths: Paths, look: CachedDrift) -> None:
    """Keep a look for the others. Raises OSError."""
    atomic.write(_cache_path(paths), msgspec.json.encode(look))


def _cache_path(paths: Paths) -> Path:
    return paths.tx / "repository"
