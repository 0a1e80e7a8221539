"""Measure directories on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from liza.model.paths import Paths


def measure_bytes(path: Path) -> int:
    """Return the bytes on disk of a directory. A file with several links counts once. Slow for large directories.

    What is removed meanwhile is not counted. Raises OSError.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for status in _walk(path):
        key = (status.st_dev, status.st_ino)
        if status.st_nlink == 1 or key not in seen:
            seen.add(key) if status.st_nlink > 1 else None
            total += status.st_blocks * 512
    return total


def measure_slot(paths: Paths, slot: str) -> int:
    """As ``measure_bytes``, for a slot and what its boxes have for themselves."""
    return measure_bytes(paths.slot(slot)) + measure_bytes(paths.box(slot).directory)


def _walk(path: Path) -> Iterator[os.stat_result]:
    directories = [os.fspath(path)]
    while directories:
        try:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    try:
                        yield entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue
