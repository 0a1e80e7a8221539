"""Bytes onto the disk in the ways that a crash cannot tear."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from liza import faults


def append(path: Path, data: bytes) -> None:
    """Appends and waits until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        _all(descriptor, data)
        faults.point("written", path.name)
        os.fdatasync(descriptor)
        faults.point("synced", path.name)
    finally:
        os.close(descriptor)


def aside(path: Path, data: bytes) -> None:
    """Writes a file that is not in use yet, and waits until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        _all(descriptor, data)
        faults.point("written", path.name)
        os.fsync(descriptor)
        faults.point("synced", path.name)
    finally:
        os.close(descriptor)


def swap(path: Path, data: bytes) -> None:
    """Replaces a small file in one step, without waiting for the disk: readers see the old one or the new one."""
    swap_from(path.parent, path, data)


def swap_from(directory: Path, path: Path, data: bytes) -> None:
    """The same, the new file being made in another directory of the same disk."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{path.name}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        if data:
            _reserve(descriptor, len(data))
        _all(descriptor, data)
    finally:
        os.close(descriptor)
    name = directory.name if path.name.isdecimal() else path.name
    faults.point("written", name)
    fresh.rename(path)
    faults.point("renamed", name)


def _reserve(descriptor: int, size: int) -> None:
    """Takes the blocks now: ext4 would otherwise write them out inside the rename, a millisecond each time."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fallocate(descriptor, 0, size)


def settle_directory(path: Path) -> None:
    """Waits until the disk has the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    view = view[os.write(descriptor, faults.portion(view)) :]
    faults.point("part")
    while view:
        view = view[os.write(descriptor, view) :]
