"""programs list · check · show: which agent programs there are, which of them are here, and whether they work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import find_crew
from liza.programs.presets import preset_table
from liza.programs.presets.abilities import list_abilities
from liza.programs.presets.preset import UNCONFINED_WARNING, Preset
from liza.programs.presets.preset_table import Presets
from liza.rules.errors import NoCrew
from liza.rules.paths import Paths
from liza.verbs.init import InitOptions
from liza.verbs.program_trial import TRIAL_LIMIT, trial

_MAX_PARALLEL = 8  # they are asked for their versions, and each is a process that mostly waits


def list_programs() -> dict[str, Any]:
    """Every program of the tables: ``name``, ``installed``, ``version``, ``command``, and how to install it."""
    table = _table()
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        rows = list(pool.map(_row, table.rows.values()))
    return {"programs": rows, "notices": list(table.notices)}


def check_programs(name: str | None = None, *, run: bool = False, limit: float = TRIAL_LIMIT) -> dict[str, Any]:
    """As ``listed``, of the programs that are installed or of the one that is named, with ``ok`` and ``problems``;
    none at all is not ok.

    With ``run``, each of them does a small task in a project that is thrown away, within ``limit`` seconds, and
    ``proofs`` says what it showed. Raises Usage for an unknown one.
    """
    table = _table()
    wanted = (
        [table.resolve(name, "liza programs check")] if name else [row for row in table.rows.values() if row.command]
    )
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        asked = zip(wanted, pool.map(_row, wanted), strict=True)
        found = [(preset, row) for preset, row in asked if row["installed"] or name]
    permissions = _permissions()
    for preset, row in found:
        row["problems"] = [] if row["installed"] else [preset_table.describe_missing(preset)]
        if run and row["installed"]:
            _try(preset, row, permissions, limit)
        row["ok"] = not row["problems"]
    rows = [row for _, row in found]
    return {"programs": rows, "ok": bool(rows) and all(row["ok"] for row in rows), "notices": list(table.notices)}


def _try(preset: Preset, row: dict[str, Any], permissions: str, limit: float) -> None:
    done = trial(preset, permissions, limit)
    row["proofs"] = [{"what": one.what, "ok": one.ok, "said": one.evidence} for one in done.checks]
    row["seconds"] = round(done.seconds, 1)
    row["permissions"] = permissions
    row["problems"] = [] if done.ok else [done.failure or "it did not do its task"]


def _permissions() -> str:
    """What the crew that one stands in allows its programs; outside one, what `init` would."""
    try:
        return find_crew().board.read().config.permissions
    except NoCrew:
        return InitOptions().permissions


def show_program(name: str) -> dict[str, Any]:
    """A program's row, with every field, and ``can``: what Liza can do with it. Raises Usage for an unknown one."""
    table = _table()
    preset = table.rows[name] if name in table.rows else table.resolve(name, "liza programs show")
    able = [{"tier": one.tier, "what": one.what, "by": one.by} for one in list_abilities(preset)]
    lacks = "; ".join(one for one in (preset.lacks, "" if preset.has_confinement else UNCONFINED_WARNING) if one)
    found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(preset))
    return {**found, **_row(preset), "lacks": lacks, "can": able}


def trust_project_programs() -> dict[str, Any]:
    """A person has read this project's ``liza.toml``, and lets it, as it is, say what programs run: ``commands``."""
    crew = find_crew()
    require_person(crew, planner=False)
    sha256, commands = preset_table.trust_project(crew.paths)
    return {"trusted": "liza.toml", "sha256": sha256, "commands": list(commands)}


def _table() -> Presets:
    try:
        return preset_table.load_presets(find_crew().paths)
    except NoCrew:
        return preset_table.load_presets(Paths(Path.cwd()))


def _row(preset: Preset) -> dict[str, Any]:
    version = preset_table.read_version(preset) if preset.command else None
    return {
        "name": preset.name,
        "installed": version is not None,
        "version": version if version != "present" else None,
        "command": preset.command,
        "confines": preset.has_confinement,
        "install": preset.install,
    }
