"""Findings about installed programs: their versions, and why one could not work, before a session is spent on it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from liza.box import support
from liza.crew.crew import Crew
from liza.model.doctor_finding import Finding
from liza.model.errors import LizaError
from liza.model.model import Config
from liza.model.paths import ROLES
from liza.model.permissions import PROMPTS
from liza.programs.presets import preset_table
from liza.programs.presets.acp_session import started_program
from liza.programs.presets.preset import Preset
from liza.programs.session.program_faults import FaultKind, ProgramFault, find_faults
from liza.usage import account_files

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
    choices = (preset_table.choose_program(None, os.environ, role, config, table) for role in ROLES)
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
