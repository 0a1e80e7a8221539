"""programs list · check · show: which agent programs there are, and which of them are here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from liza.programs import presets
from liza.programs.preset import Preset
from liza.programs.presets import Presets
from liza.rules.errors import NoCrew
from liza.rules.paths import Paths
from liza.verbs.caller import human_or
from liza.verbs.crew import find_crew

_AT_ONCE = 8  # they are asked for their versions, and each is a process that mostly waits


def listed() -> dict[str, Any]:
    """Every program of the tables: ``name``, ``installed``, ``version``, ``command``, and how to install it."""
    table = _table()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(_row, table.rows.values()))
    return {"programs": rows, "notices": list(table.notices)}


def checked(name: str | None = None) -> dict[str, Any]:
    """As ``listed``, of the programs that are installed or of the one that is named, with ``ok`` and ``problems``.

    Raises Usage for an unknown one.
    """
    table = _table()
    wanted = [table.named(name)] if name else [row for row in table.rows.values() if row.command]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = [row for row in pool.map(_row, wanted) if row["installed"] or name]
    for row in rows:
        problems = [] if row["installed"] else [f"{row['command']!r} is not there, or not executable"]
        row["problems"] = problems
        row["ok"] = not problems
    return {"programs": rows, "ok": all(row["ok"] for row in rows), "notices": list(table.notices)}


def shown(name: str) -> dict[str, Any]:
    """A program's row, with every field. Raises Usage for an unknown one."""
    preset = _table().named(name) if ":" in name else _row_of(_table(), name)
    found: dict[str, Any] = {**msgspec.structs.asdict(preset), **_row(preset)}
    return found


def trusted() -> dict[str, Any]:
    """A person has read this project's ``liza.toml``, and lets it, as it is now, say what programs run."""
    crew = find_crew()
    human_or(crew, planner=False)
    return {"trusted": "liza.toml", "sha256": presets.trust(crew.paths)}


def _row_of(table: Presets, name: str) -> Preset:
    return table.rows[name] if name in table.rows else table.named(name)


def _table() -> Presets:
    try:
        return presets.load(find_crew().paths)
    except NoCrew:
        return presets.load(Paths(Path.cwd()))


def _row(preset: Preset) -> dict[str, Any]:
    version = presets.installed(preset) if preset.command else None
    return {
        "name": preset.name,
        "installed": version is not None,
        "version": version if version != "present" else None,
        "command": preset.command,
        "install": preset.install,
    }
