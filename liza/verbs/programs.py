"""programs list · check · show · trust: known agent programs, whether they are installed, and whether they work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from liza.crew.caller import require_person
from liza.crew.crew import find_crew
from liza.programs.guards import guard_files
from liza.programs.presets import preset_files, preset_table
from liza.programs.presets.abilities import describe_way, list_abilities
from liza.programs.presets.preset import UNCONFINED_WARNING, Preset
from liza.programs.presets.preset_table import Presets
from liza.rules.errors import NoCrew
from liza.rules.guards.guard_paths import GUARDS_TOML
from liza.rules.paths import Paths
from liza.verbs.init import DEFAULT_PERMISSIONS
from liza.verbs.program_trial import TRIAL_LIMIT, trial

_MAX_PARALLEL = 8  # version commands at once; each is a process that mostly waits


def list_programs() -> dict[str, Any]:
    """Return every preset: ``name``, ``installed``, ``version``, ``command``, how to install it, and in ``way`` how its
    sessions are driven and why."""
    table = _table()
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        rows = list(pool.map(_row, table.rows.values()))
    return {"programs": rows, "notices": list(table.notices)}


def check_programs(name: str | None = None, *, run: bool = False, limit: float = TRIAL_LIMIT) -> dict[str, Any]:
    """As ``list_programs``, for the installed programs or the named one, with ``ok`` and ``problems``.

    No program at all is not ok. With ``run``, each program does a small task in a throw-away project within ``limit``
    seconds, and ``proofs`` has the results. Raises UsageError for an unknown name.
    """
    table = _table()
    presets = (
        [table.resolve(name, "liza programs check")] if name else [row for row in table.rows.values() if row.command]
    )
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        rows_by_preset = zip(presets, pool.map(_row, presets), strict=True)
        checked = [(preset, row) for preset, row in rows_by_preset if row["installed"] or name]
    permissions = _permissions()
    for preset, row in checked:
        row["problems"] = [] if row["installed"] else [preset_table.describe_missing(preset)]
        if run and row["installed"]:
            _try(preset, row, permissions, limit)
        row["ok"] = not row["problems"]
    rows = [row for _, row in checked]
    return {"programs": rows, "ok": bool(rows) and all(row["ok"] for row in rows), "notices": list(table.notices)}


def _try(preset: Preset, row: dict[str, Any], permissions: str, limit: float) -> None:
    result = trial(preset, permissions, limit)
    row["proofs"] = [{"what": check.what, "ok": check.ok, "said": check.evidence} for check in result.checks]
    row["seconds"] = round(result.seconds, 1)
    row["permissions"] = permissions
    row["problems"] = [] if result.ok else [result.failure or "it did not do its task"]


def _permissions() -> str:
    """Permissions of the crew of the current directory; without a crew, the default of `init`."""
    try:
        return find_crew().board.read().config.permissions
    except NoCrew:
        return DEFAULT_PERMISSIONS


def show_program(name: str) -> dict[str, Any]:
    """Return a preset with every field, and ``can``: what Liza can do with it. Raises UsageError for an unknown
    name."""
    table = _table()
    preset = table.rows[name] if name in table.rows else table.resolve(name, "liza programs show")
    abilities = [{"tier": ability.tier, "what": ability.what, "by": ability.by} for ability in list_abilities(preset)]
    lacks = "; ".join(text for text in (preset.lacks, "" if preset.has_confinement else UNCONFINED_WARNING) if text)
    fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.asdict(preset))
    return {**fields, **_row(preset), "lacks": lacks, "can": abilities}


def trust_project_programs() -> dict[str, Any]:
    """Trust this project's ``liza.toml`` and ``.liza/guards.toml`` with their present content.

    Return the ``commands`` that the first names, and the ``allowing_rules`` of the second.
    """
    crew = find_crew()
    require_person(crew, planner=False)
    guards, rights = crew.paths.liza / GUARDS_TOML, []
    has_guards = guards.is_file()
    if has_guards:
        rights = [row["name"] for row in guard_files.read_guard_file(guards)["rule"] if row.get("allow")]
    commands: tuple[str, ...] = ()
    sha256 = None
    if not has_guards or (crew.paths.root / "liza.toml").is_file():
        sha256, commands = preset_table.trust_project(crew.paths)
    files = ["liza.toml"] if sha256 else []
    if has_guards:
        guards_sha256 = preset_files.trust_file(guards, Path.home())
        files.append(f".liza/{GUARDS_TOML}")
        sha256 = sha256 or guards_sha256
    return {
        "trusted": files[0],
        "sha256": sha256,
        "commands": list(commands),
        "files": files,
        "allowing_rules": rights,
    }


def _table() -> Presets:
    try:
        return preset_table.load_presets(find_crew().paths)
    except NoCrew:
        return preset_table.load_presets(Paths(Path.cwd()))


def _row(preset: Preset) -> dict[str, Any]:
    version = preset_table.read_version(preset) if preset.command else None
    way = describe_way(preset)
    return {
        "name": preset.name,
        "installed": version is not None,
        "version": version if version != "present" else None,
        "command": preset.command,
        "confines": preset.has_confinement,
        "install": preset.install,
        "way": {"name": way.name, "reason": way.reason, "others": list(way.others)},
    }
