"""Some place for a command line to be made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liza.programs.presets import command_line


def ground(permissions: str, **more: Any) -> command_line.SessionScope:
    """Some place to work at, of which a test says what it is about."""
    where = {
        "cwd": Path("/r/w"),
        "run_dir": Path("/r/.liza/run/x"),
        "writable_dirs": [],
        "liza_path": Path("/b/liza"),
        **more,
    }
    return command_line.SessionScope(permissions=permissions, **where)
