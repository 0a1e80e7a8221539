"""Why a program could not work, before a session is spent on it: no login, a sandbox that cannot start, its age."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from liza.model.value_classes import Value
from liza.programs.presets import preset_table
from liza.programs.presets.command_line import inherit_variables
from liza.programs.presets.preset import Preset
from liza.programs.session.failure_patterns import resolve_log_path
from liza.system.limited_program import run_limited

PROBE_TIMEOUT = 20.0
"""Seconds for a probe; without an answer, nothing is known."""
_MAX_FILE = 1 << 20
_MAX_CAUSE = 300  # characters
_VERSION = re.compile(r"(?<![\w.])\d+(?:\.\d+)+")


class FaultKind(StrEnum):
    """What is wrong with a program."""

    LOGIN = "login"
    SANDBOX = "sandbox"
    OUTDATED = "outdated"


class ProgramFault(Value):
    """``text`` for a person, and ``next``, what mends it. ``certain``: the program itself says so, and no session can
    work."""

    kind: FaultKind
    text: str
    next: str
    certain: bool = False


def find_faults(
    preset: Preset, version: str, outside: Mapping[str, str], *, allowed: Sequence[str] = (), has_sandbox: bool = True
) -> tuple[ProgramFault, ...]:
    """Return the faults of an installed program, in the environment that its sessions get from ``outside``.

    ``allowed``: ``config.env_allow``. ``has_sandbox``: whether its sessions use its own. No probe asks a model.
    """
    environ = inherit_variables(preset, outside, allowed)
    faults = (
        find_missing_login(preset, environ),
        _find_broken_sandbox(preset, environ) if has_sandbox else None,
        _find_age(preset, version),
    )
    return tuple(fault for fault in faults if fault is not None)


def find_missing_login(preset: Preset, environ: Mapping[str, str]) -> ProgramFault | None:
    """Return the fault of a program without a login; None if it has one, or if that is unknown."""
    login = preset.login
    if not login.next or any(environ.get(name) for name in login.env):
        return None
    if login.status:
        output = _run(preset, login.status, environ)
        if output is None or re.search(login.missing, output[1]) is None:
            return None
        return ProgramFault(FaultKind.LOGIN, "not logged in", login.next, certain=True)
    home = environ.get("HOME", "/")
    if not login.files or any(_matches(path, sign, environ, home) for path, sign in login.files.items()):
        return None
    return ProgramFault(FaultKind.LOGIN, "no sign of a login", login.next)


def _find_broken_sandbox(preset: Preset, environ: Mapping[str, str]) -> ProgramFault | None:
    if not preset.sandbox:
        return None
    output = _run(preset, preset.sandbox, environ)
    if output is None or output[0] == 0:
        return None
    lines = [line.strip() for line in output[1].splitlines() if line.strip()]
    cause = (lines[-1] if lines else f"exit code {output[0]}")[:_MAX_CAUSE]
    return ProgramFault(
        FaultKind.SANDBOX, f"its sandbox cannot start: {cause}", "liza config set permissions bypass", certain=True
    )


def _find_age(preset: Preset, version: str) -> ProgramFault | None:
    tested, installed = _VERSION.match(preset.verified), _VERSION.search(version)
    if tested is None or installed is None or _numbers(installed) >= _numbers(tested):
        return None
    text = f"{installed.group()} is older than {tested.group()}, with which Liza was tested"
    return ProgramFault(FaultKind.OUTDATED, text, preset.install)


def _numbers(version: re.Match[str]) -> tuple[int, ...]:
    return tuple(map(int, version.group().split(".")))


def _run(preset: Preset, words: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str] | None:
    """Return exit code and output of the program's own command; None if there is no answer.

    It runs in the person's home: a project's settings may name commands.
    """
    executable = preset_table.find_executable(preset, environ.get("PATH"))
    if executable is None:
        return None
    try:
        home = Path(environ.get("HOME") or "/")
        result = run_limited([str(executable), *words], PROBE_TIMEOUT, directory=home, environ=environ)
    except OSError:
        return None
    return result.returncode, f"{result.stdout}{result.stderr}"


def list_logins(presets: Collection[Preset], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of the person in which programs have logins; none need exist. A box does not show them: a
    session has a copy of that of its own program.
    """
    home = environ.get("HOME") or str(Path.home())
    files = [path for preset in presets for path in preset.login.files]
    files += [
        f"${{{row.variable}:-{row.path}}}/{name}" if row.variable else f"{row.path}/{name}"
        for preset in presets
        for row in preset.state
        for name in row.renewed
    ]
    return tuple(dict.fromkeys(_find_file(path, environ, home) for path in files))


def _find_file(path: str, environ: Mapping[str, str], home: str) -> Path:
    return resolve_log_path(path.replace("~", home), environ, "")


def _matches(path: str, sign: str, environ: Mapping[str, str], home: str) -> bool:
    file = _find_file(path, environ, home)
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return re.search(sign, opened.read(_MAX_FILE)) is not None
    except OSError:
        return False
