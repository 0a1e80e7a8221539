"""Whole files or none: written aside, synced, renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from liza import faults


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` with ``data`` in one step; a reader sees the old bytes or the new ones. Raises OSError."""
    aside = _aside(path.parent, data, mode)
    faults.point("synced", path.name)
    try:
        aside.replace(path)
        faults.point("renamed", path.name)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def write_first(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """Write ``path`` unless it exists; of several writers one wins, with its bytes whole. Whether this one did."""
    aside = _aside(path.parent, data, mode)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return True


def _aside(directory: Path, data: bytes, mode: int) -> Path:
    handle, name = tempfile.mkstemp(prefix=".aside-", dir=directory)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    return Path(name)
