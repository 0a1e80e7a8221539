"""programs list · check · show · trust: known agent programs, whether they are installed, and whether they work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from liza.box import support
from liza.crew.caller import require_person
from liza.crew.crew import find_crew
from liza.guards import guard_files
from liza.guards.rules.guard_rules import GUARDS_TOML
from liza.model.errors import NoCrew
from liza.model.model import Config
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.programs.presets import command_line, preset_files, preset_table
from liza.programs.presets.preset import UNCONFINED_WARNING, LaunchMode, Preset, Transport
from liza.programs.presets.preset_table import Presets
from liza.project import program_findings
from liza.project.program_findings import MAX_PARALLEL
from liza.project.program_trial import TRIAL_LIMIT, trial


def list_programs() -> dict[str, Any]:
    """Return every preset: ``name``, ``installed``, ``version``, ``command``, how to install it, in ``logs`` whether
    `liza logs` knows its output, and in ``way`` how its sessions are driven and why."""
    table = _table()
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        rows = list(pool.map(_row, table.rows.values()))
    return {"programs": rows, "notices": list(table.notices)}


def check_programs(name: str | None = None, *, run: bool = False, limit: float = TRIAL_LIMIT) -> dict[str, Any]:
    """As ``list_programs``, for the installed programs or the named one, with ``ok``, ``problems`` and ``remarks``.

    No program at all is not ok. With ``run``, each program without a problem, such as a missing login, does a small
    task in a throw-away project within ``limit`` seconds, and ``proofs`` has the results.
    Raises UsageError for an unknown name.
    """
    table = _table()
    presets = (
        [table.resolve(name, "liza programs check")] if name else [row for row in table.rows.values() if row.command]
    )
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        rows_by_preset = zip(presets, pool.map(_row, presets), strict=True)
        checked = [(preset, row) for preset, row in rows_by_preset if row["installed"] or name]
    config = _config()
    versions = {row["name"]: row["version"] or "" for _, row in checked if row["installed"]}
    faults = program_findings.find_all_faults([preset for preset, _ in checked], versions, config)
    for preset, row in checked:
        present = faults.get(preset.name, ())
        row["problems"] = [] if row["installed"] else [preset_table.describe_missing(preset)]
        row["problems"] += [f"{fault.text}: {fault.next}" for fault in present if fault.certain]
        row["remarks"] = [f"{fault.text}: {fault.next}" for fault in present if not fault.certain]
        if run and not row["problems"]:
            _try(preset, row, config, limit)
        row["ok"] = not row["problems"]
    rows = [row for _, row in checked]
    return {"programs": rows, "ok": bool(rows) and all(row["ok"] for row in rows), "notices": list(table.notices)}


def _try(preset: Preset, row: dict[str, Any], config: Config, limit: float) -> None:
    result = trial(preset, config, limit)
    row["proofs"] = [{"what": check.what, "ok": check.ok, "said": check.evidence} for check in result.checks]
    row["seconds"] = round(result.seconds, 1)
    row["permissions"] = support.session_permissions(config)
    row["boxed"] = support.choose_box_program(config.confinement) is not None
    row["problems"] = [] if result.ok else [result.failure or "it did not do its task"]


def _config() -> Config:
    """Settings of the crew of the current directory; without a crew, the defaults."""
    try:
        return find_crew().board.read().config
    except NoCrew:
        return Config()


def show_program(name: str) -> dict[str, Any]:
    """Return a preset with every field, and ``can``: what Liza can do with it. Raises UsageError for an unknown
    name."""
    table = _table()
    preset = table.rows[name] if name in table.rows else table.resolve(name, "liza programs show")
    abilities = [{"tier": ability.tier, "what": ability.what, "by": ability.by} for ability in list_abilities(preset)]
    lacks = "; ".join(text for text in (preset.lacks, "" if preset.has_prompts else UNCONFINED_WARNING) if text)
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
        "confines": preset.has_prompts,
        "install": preset.install,
        "logs": "read" if preset.events else "not read",
        "way": {"name": way.name, "reason": way.reason, "others": list(way.others)},
    }


class Ability(Value):
    """``by`` names the means; None if there is none. Tiers count from 1; every program has all abilities of tier 1."""

    tier: int
    what: str
    by: str | None


class SessionWay(Value):
    """How sessions without a terminal are driven: ``name``; ``reason`` for a person; ``others`` that can be chosen,
    each the value of ``--program``."""

    name: str
    reason: str
    others: tuple[str, ...] = ()


def describe_way(preset: Preset) -> SessionWay:
    """Return the default way of a program. Decision 024 gives the reason for the order."""
    if preset.via is Transport.ACP:
        return SessionWay("ACP", 'its row says via = "acp"')
    has_hooks = command_line.has_hooks(preset)
    name = "headless + hooks" if has_hooks else "headless"
    if preset.acp is None:
        return SessionWay(name, "it does not speak ACP" if has_hooks else "it has no hooks and does not speak ACP")
    gains = "hooks repeat the brief after a compaction" if has_hooks else "one process for each session"
    reason = f"{gains}; over ACP {preset.acp.lacks}" if preset.acp.lacks else gains
    return SessionWay(name, reason, (f"{preset.name}:acp",))


def list_abilities(preset: Preset) -> tuple[Ability, ...]:
    """Return all abilities, in order."""
    hooks = "a hook" if command_line.has_hooks(preset) else None
    again, usage = preset.resume, preset.usage
    counted = usage.input or usage.output or usage.cost or usage.pattern
    return (
        Ability(1, "start", f"{_start(preset.headless)}; at a terminal {_start(preset.interactive)}"),
        Ability(1, "is it ready", _ready(preset)),
        Ability(1, "is it alive", "its process, and those below it"),
        Ability(1, "send", hooks or "its terminal, otherwise the next session's brief"),
        Ability(1, "state", "liza verbs it calls, its output, its processor time"),
        Ability(2, "context", hooks or _file(preset)),
        Ability(2, "context at a session's start", hooks),
        Ability(2, "resume a session", _join_argv(again.id)),
        Ability(2, "resume the last session", _join_argv(again.latest)),
        Ability(2, "session id", _session(preset)),
        Ability(3, "fork a session", _join_argv(again.fork)),
        Ability(3, "run without a terminal", _join_argv((preset.command or preset.name, *preset.headless.args))),
        Ability(3, "run over ACP", _over_acp(preset)),
        Ability(3, "usage", (usage.file or f"its output, {usage.form}") if counted else None),
    )


def _over_acp(preset: Preset) -> str | None:
    """Return the command that speaks ACP, and whether it is the default; None if the program does not."""
    if preset.acp is None:
        return None
    words = _join_argv((preset.acp.command or preset.command, *preset.acp.args))
    return f"{words}; {'default' if preset.via is Transport.ACP else f'--program {preset.name}:acp'}"


def _start(mode: LaunchMode) -> str:
    descriptions = {"arg": "prompt as an argument", "stdin": "prompt on stdin", "none": "no prompt"}
    return descriptions[mode.prompt]


def _ready(preset: Preset) -> str:
    signs = ["a hook"] if command_line.has_hooks(preset) else []
    return ", ".join([*signs, "liza verbs it calls", *(["its prompt on the screen"] if preset.ready_prompt else [])])


def _file(preset: Preset) -> str | None:
    return f"a block in {preset.new_instructions_file}" if preset.new_instructions_file else None


def _session(preset: Preset) -> str | None:
    if preset.usage.session:
        return "its output"
    return preset.session_id_env or None


def _join_argv(words: tuple[str, ...]) -> str | None:
    return " ".join(words) or None
