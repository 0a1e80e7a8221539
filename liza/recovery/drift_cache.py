"""Cached result of the last drift detection. Readers that show alarms need no git."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.model.paths import Paths
from liza.model.value_classes import decodable
from liza.recovery.rules.drift_alarms import RepositoryDrift
from liza.system import atomic, untrusted_files
from liza.text.undecoded import encode_json

RepositoryStamp = list[list[int] | None]


class CachedDrift(msgspec.Struct, frozen=True):
    """Result of a detection and the stamp of the files that it was computed from."""

    stamp: RepositoryStamp
    seen: RepositoryDrift


def read_cache(paths: Paths) -> CachedDrift:
    """Return the last result, or an empty one. Raises NotRegularFile, OSError."""
    try:
        return msgspec.json.decode(untrusted_files.read(_cache_path(paths)), type=decodable(CachedDrift))
    except (FileNotFoundError, msgspec.DecodeError, RecursionError):
        # The next detection writes it again.
        return CachedDrift([], RepositoryDrift())


def write_cache(paths: Paths, result: CachedDrift) -> None:
    """Store a result. Raises OSError, WriteFailed."""
    atomic.write(_cache_path(paths), encode_json(result))


def _cache_path(paths: Paths) -> Path:
    return paths.tx / "repository"
