"""programs list · check · show · trust: known agent programs, whether they are installed, and whether they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from liza.box import support
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew
from liza.guards import guard_files
from liza.guards.rules.guard_rules import GUARDS_TOML
from liza.model.configuration import Config
from liza.model.errors import Finding, LizaError, NoCrew
from liza.model.paths import ROLES, Paths
from liza.model.setting_limits import PROMPTS
from liza.model.value_classes import Value
from liza.programs.presets import command_line, preset_table, program_choice
from liza.programs.presets.command_line import started_program
from liza.programs.presets.preset import UNCONFINED_WARNING, LaunchMode, Preset
from liza.programs.presets.preset_table import Presets
from liza.programs.rules.program_spec import Transport
from liza.programs.session.program_faults import FaultKind, ProgramFault, find_faults
from liza.usage import account_files


class TrialCheck(Value):
    """One check of a trial: whether it passed, and the evidence."""

    what: str
    ok: bool
    evidence: str


class Trial(Value):
    """Result of a trial; ``failure`` is the reason why the program did not submit its task."""

    checks: tuple[TrialCheck, ...]
    seconds: float
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return all(proof.ok for proof in self.checks)


RunTrial = Callable[[Preset, Config], Trial]


def list_programs() -> dict[str, Any]:
    """Return every preset: ``name``, ``installed``, ``version``, ``command``, how to install it, in ``logs`` whether
    `liza logs` knows its output, in ``way`` how its sessions are driven and why, in ``takes_model`` whether a model can
    be named, and in ``is_run`` whether its row was tried with the program and a model."""
    table = _table()
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        rows = list(pool.map(_row, table.rows.values()))
    return {"programs": rows, "notices": list(table.notices)}


def check_programs(name: str | None = None, trial: RunTrial | None = None) -> dict[str, Any]:
    """As ``list_programs``, for the installed programs or the named one, with ``ok``, ``problems`` and ``remarks``.

    No program at all is not ok. With ``trial``, it is called for each program without a problem, such as a missing
    login, and ``proofs`` has the results.
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
    faults = find_all_faults([preset for preset, _ in checked], versions, config)
    for preset, row in checked:
        present = faults.get(preset.name, ())
        row["problems"] = [] if row["installed"] else [preset_table.describe_missing(preset)]
        row["problems"] += [f"{fault.text}: {fault.next}" for fault in present if fault.certain]
        row["remarks"] = [f"{fault.text}: {fault.next}" for fault in present if not fault.certain]
        if trial is not None and not row["problems"]:
            _try(preset, row, config, trial)
        row["ok"] = not row["problems"]
    rows = [row for _, row in checked]
    return {"programs": rows, "ok": bool(rows) and all(row["ok"] for row in rows), "notices": list(table.notices)}


def _try(preset: Preset, row: dict[str, Any], config: Config, trial: RunTrial) -> None:
    result = trial(preset, config)
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
        guards_sha256 = preset_table.trust_file(guards, Path.home())
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


_NOT_RUN = "not run"
"""Words of ``verified`` in the row of a program that was never tried with a model."""


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
        "takes_model": preset_table.takes_model(preset),
        "is_run": _NOT_RUN not in preset.verified,
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
    usage = preset.usage
    counted = usage.input or usage.output or usage.cost or usage.pattern
    return (
        Ability(1, "start", f"{_start(preset.headless)}; at a terminal {_start(preset.interactive)}"),
        Ability(1, "is it ready", _ready(preset)),
        Ability(1, "is it alive", "its process, and those below it"),
        Ability(1, "send", hooks or "its terminal, otherwise the next session's brief"),
        Ability(1, "state", "liza verbs it calls, its output, its processor time"),
        Ability(2, "context", hooks or _file(preset)),
        Ability(2, "context at a session's start", hooks),
        Ability(2, "resume a session", _join_argv(preset.resume.id)),
        Ability(2, "session id", _session(preset)),
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


MAX_PARALLEL = 4
"""Commands of programs at once; each is a process that mostly waits."""


def read_versions(presets: Sequence[Preset]) -> dict[str, str]:
    """Return the version of each installed program, by its name."""
    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        versions = pool.map(preset_table.read_version, presets)
    return {preset.name: version for preset, version in zip(presets, versions, strict=True) if version is not None}


def find_all_faults(
    presets: Sequence[Preset], versions: Mapping[str, str], config: Config
) -> dict[str, tuple[ProgramFault, ...]]:
    """Return the faults of each installed program, by its name.

    A program with accounts has no fault of its login: its sessions use that of an account.
    """
    installed = [preset for preset in presets if preset.name in versions]
    with_accounts = _list_programs_with_accounts()

    def find(preset: Preset) -> tuple[ProgramFault, ...]:
        has_sandbox = support.session_permissions(config) == PROMPTS
        version = versions[preset.name]
        faults = find_faults(preset, version, os.environ, allowed=config.env_allow, has_sandbox=has_sandbox)
        return tuple(fault for fault in faults if fault.kind is not FaultKind.LOGIN or preset.name not in with_accounts)

    with ThreadPoolExecutor(MAX_PARALLEL) as pool:
        return {preset.name: faults for preset, faults in zip(installed, pool.map(find, installed), strict=True)}


def list_findings(
    faults: Mapping[str, Sequence[ProgramFault]], used: Collection[str] = (), *, before: bool = False
) -> list[Finding]:
    """Return the faults as findings. ``used``: programs of the crew, which cannot work with a certain fault of one.

    ``before``: there is no crew yet, whose settings can be changed.
    """
    return [
        Finding(name, fault.text, not (fault.certain and name in used), _next(fault, name, before=before))
        for name, of_program in faults.items()
        for fault in of_program
    ]


def find_crew_faults(crew: Crew) -> list[Finding]:
    """Return the findings about the programs that the crew would run."""
    table, config = preset_table.load_presets(crew.paths), crew.board.read().config
    choices = (program_choice.choose_program(None, os.environ, role, config, table) for role in ROLES)
    presets = {choice.spec: started_program(choice.preset) for choice in choices}
    rows = list({preset.name: preset for preset in presets.values() if preset.command}.values())
    return list_findings(find_all_faults(rows, read_versions(rows), config), [row.name for row in rows])


def _next(fault: ProgramFault, name: str, *, before: bool) -> str:
    if before and fault.kind is FaultKind.SANDBOX:
        return f'liza init "…" --program {name} --permissions bypass'
    return fault.next


def _list_programs_with_accounts() -> frozenset[str]:
    try:
        return frozenset(name for name, rows in account_files.read_accounts(Path.home()).rows.items() if rows)
    except LizaError:
        return frozenset()  # `check_accounts` reports it.
