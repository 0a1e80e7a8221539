"""The choice of a program for an agent: where it is named, what is remembered of it, and whether it is installed."""

from __future__ import annotations

from collections.abc import Mapping

from liza.model.configuration import Config
from liza.model.errors import ProgramMissing
from liza.model.paths import ROLES, role_of
from liza.model.value_classes import Value
from liza.programs.presets.preset import Preset
from liza.programs.presets.preset_table import (
    CODE_REVIEWER,
    REVIEWER,
    UP_PROGRAM,
    Presets,
    find_executable,
    require_executable,
)

TIER_VARIABLE = "LIZA_AGENT_TIER"
DEFAULT = "default"
"""The key of ``config.programs`` for all agents that have no other."""
ONLY_INSTALLED = "the only one installed"


class ProgramChoice(Value):
    """A program, the spec that named it, and the source of the spec: ``--program``, ``liza.toml``, ``built in``, …

    ``is_default``: it is the built-in default, and no source names a program.
    """

    preset: Preset
    spec: str
    source: str
    is_default: bool = False

    @property
    def model(self) -> str | None:
        """The model that the spec names; None: the program's own configuration chooses it."""
        return self.preset.chosen_model or None


def choose_program(
    option: str | None, env: Mapping[str, str], who: str, config: Config, presets: Presets
) -> ProgramChoice:
    """Choose the program for ``who``, an agent or a role, from the first source that names one.

    The sources in order: option; environment; what was chosen last, on the board; the roles of the project and of the
    user, then the programs of both; the built-in default, or the one program that is installed instead of it. Raises
    UsageError.
    """
    role = who if who in ROLES else role_of(who)
    tier = env.get(TIER_VARIABLE) or None
    candidates: list[tuple[str | None, str]] = [
        (option, "--program"),
        (_program_of_tier(tier, role, presets), f"{TIER_VARIABLE}={tier}"),
        *((config.programs.get(key) or None, f"config.programs.{key}") for key in remembered_keys(who, role)),
    ]
    layers = (*presets.project, presets.user)
    candidates += [(layer.roles.get(role), f"{layer.source}, {role}") for layer in layers]
    candidates += [(layer.program, layer.source) for layer in layers]
    spec, source = next(((spec, source) for spec, source in candidates if spec is not None), (None, ""))
    if spec is not None:
        return ProgramChoice(presets.resolve(spec), spec, source)
    default = presets.built_in.program or ""
    installed = () if find_executable(presets.rows[default]) else list_installed(presets)
    if len(installed) == 1:
        return ProgramChoice(presets.resolve(installed[0]), installed[0], ONLY_INSTALLED)
    return ProgramChoice(presets.resolve(default), default, presets.built_in.source, is_default=True)


def remembered_keys(who: str, role: str) -> tuple[str, ...]:
    """Return the keys of ``config.programs`` that concern an agent or a role, the nearest first."""
    return tuple(dict.fromkeys((who, role, *((REVIEWER,) if role == CODE_REVIEWER else ()), DEFAULT)))


def remember_programs(before: Mapping[str, str], for_all: str | None, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return ``config.programs`` after a choice: one for all replaces everything, one for a role that of its agents.

    ``chosen``: by role or agent.
    """
    after = {} if for_all else dict(before)
    for who in chosen:
        names = {REVIEWER, who} if who == CODE_REVIEWER else {who}
        after = {key: spec for key, spec in after.items() if key not in names and key.rpartition("-")[0] != who}
    return {**({DEFAULT: for_all} if for_all else {}), **after, **chosen}


def require_choice(choice: ProgramChoice, started: Preset, presets: Presets, typed: str = UP_PROGRAM) -> None:
    """Check that ``started``, what a session of the choice starts, is installed.

    Raises ProgramMissing with the programs that are installed; ``typed`` is the command before a program's name.
    """
    if find_executable(started) is not None:
        return
    others = list_installed(presets)
    if choice.is_default and others:
        names = f"{', '.join(others[:-1])} and {others[-1]}"
        missing = f"no program is chosen, and {choice.spec} is not installed; {names} are"
        raise ProgramMissing(missing, f"{typed} {others[0]}")
    require_executable(started, typed=typed, others=others)


def list_installed(presets: Presets) -> tuple[str, ...]:
    """Return the names of the programs that are installed, in the order of the table."""
    return tuple(row.name for row in presets.rows.values() if row.command and find_executable(row) is not None)


def _program_of_tier(tier: str | None, role: str, presets: Presets) -> str | None:
    """Return the tier's program for a role; a value that is no tier is taken as a program."""
    if tier is None:
        return None
    for layer in (*presets.project, presets.user, presets.built_in):
        if tier in layer.tiers:
            return layer.tiers[tier].get(role) or layer.tiers[tier].get("default")
    return tier
