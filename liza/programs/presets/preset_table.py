"""The table of all programs, and the choice of one for an agent."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from liza.model.configuration import Config
from liza.model.errors import ProgramMissing, UsageError
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.programs.presets import preset_files
from liza.programs.presets.preset import Preset, Transport
from liza.programs.presets.preset_files import Layer

TIER_VARIABLE = "LIZA_AGENT_TIER"
UP_PROGRAM = "liza up --program"
"""The command before the name of a program, in hints."""


class Presets(Value):
    """All rows, merged; the layers that choose among them, the project's nearest first; and notices for a person."""

    rows: Mapping[str, Preset]
    built_in: Layer
    user: Layer
    project: tuple[Layer, ...]
    root: Path
    notices: tuple[str, ...] = ()
    untrusted_names: frozenset[str] = frozenset()
    """Names of rows that only an untrusted file defines."""

    def resolve(self, spec: str, typed: str = UP_PROGRAM, directory: Path | None = None) -> Preset:
        """Return the program of ``NAME``, of ``NAME:acp`` or ``NAME:headless``, or of ``NAME:COMMAND ARGS``.

        The last form is for a program whose command a person gives.

        ``typed`` is the command before it, for a hint. ``directory``: a relative path in COMMAND starts there; default:
        the repository. Raises UsageError.
        """
        name, colon, rest = spec.strip().partition(":")
        row = self.rows.get(name)
        if row is None:
            raise self._unknown(spec.strip(), name, typed)
        open_row = not self.built_in.rows.get(name, {"command": "its own"}).get("command")
        if colon and rest.strip() in tuple(Transport):
            return _select_transport(row, Transport(rest.strip()))
        if colon and not open_row:
            raise UsageError(f"{name!r} has its own command; {rest!r} cannot replace it", "liza programs list")
        base = directory if colon and directory is not None else self.root
        words = _split_command(spec, rest, typed, base) if colon else [row.command, *row.args]
        if not words[0]:
            raise UsageError(f"{name!r} needs a command", f"{typed} {name}:./agent.sh")
        command = _absolute(words[0], base)
        return msgspec.structs.replace(row, command=command, args=tuple(words[1:]))

    def _unknown(self, spec: str, name: str, typed: str) -> UsageError:
        if name in self.untrusted_names:
            file = self.root / "liza.toml"
            return UsageError(
                f"{name!r} is defined only in {file}, which is not trusted: read it first", preset_files.TRUST_COMMAND
            )
        if "/" in spec.partition(" ")[0]:
            hint = f"{typed} {shlex.quote(f'script:{spec}')}"
            return UsageError(f"{spec!r} is a path, not the name of a program", hint)
        suggestion = preset_files.did_you_mean(name, self.rows.keys())
        return UsageError(f"unknown program {name!r}{suggestion}", "liza programs list")


class ProgramChoice(Value):
    """A program, the spec that named it, and the source of the spec: ``--program``, ``liza.toml``, ``built in``, …"""

    preset: Preset
    spec: str
    source: str


def load_presets(paths: Paths, home: Path | None = None) -> Presets:
    """Load the table: built in < ``~/.config/liza/programs.toml`` < ``liza.toml`` < ``.liza/programs.toml``.

    Raises UsageError for a file that does not parse, an unknown key, or a value of the wrong type.
    """
    home = home or Path.home()
    return _load_layers(paths, home, trusted=preset_files.is_trusted(paths.root / "liza.toml", home))


def _load_layers(paths: Paths, home: Path, *, trusted: bool) -> Presets:
    built_in = preset_files.read_built_in()
    user = preset_files.read_layer(home / ".config" / "liza" / "programs.toml", "~/.config/liza/programs.toml")
    project = preset_files.read_layer(paths.root / "liza.toml", "liza.toml")
    own = preset_files.read_layer(paths.liza / "programs.toml", ".liza/programs.toml")
    notices: tuple[str, ...] = ()
    project_names = {*project.rows}
    if not trusted:
        project, notices = preset_files.drop_untrusted(project, {*built_in.rows, *user.rows})
    layers = [built_in, user, project, own]
    names = dict.fromkeys(name for layer in layers for name in layer.rows)
    rows = {name: preset_files.merge_row(name, layers) for name in names}
    return Presets(rows, built_in, user, (own, project), paths.root, notices, frozenset(project_names - rows.keys()))


def choose_program(
    option: str | None, env: Mapping[str, str], role: str, config: Config, presets: Presets
) -> ProgramChoice:
    """Choose the program for an agent of ``role`` from the first source that names one.

    The sources in order: option, environment, project's role, user's role, project, user, built-in default. Raises
    UsageError.
    """
    tier = env.get(TIER_VARIABLE) or None
    roles = {
        preset_files.CODE_REVIEWER if name == preset_files.REVIEWER else name: spec
        for name, spec in config.programs.items()
    }
    board = Layer("config.programs", roles=roles, program=config.programs.get("default"))
    project = (board, *presets.project)
    candidates: list[tuple[str | None, str]] = [
        (option, "--program"),
        (_program_of_tier(tier, role, presets), f"{TIER_VARIABLE}={tier}"),
    ]
    candidates += [(layer.roles.get(role), f"{layer.source}, {role}") for layer in (*project, presets.user)]
    candidates += [(layer.program, layer.source) for layer in (*project, presets.user, presets.built_in)]
    spec, source = next((spec, source) for spec, source in candidates if spec)
    return ProgramChoice(presets.resolve(spec), spec, source)


def _program_of_tier(tier: str | None, role: str, presets: Presets) -> str | None:
    """Return the tier's program for a role; a value that is no tier is taken as a program."""
    if tier is None:
        return None
    for layer in (*presets.project, presets.user, presets.built_in):
        if tier in layer.tiers:
            return layer.tiers[tier].get(role) or layer.tiers[tier].get("default")
    return tier


def trust_project(paths: Paths, home: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """Trust this project's ``liza.toml`` with its present contents. Return its sha256, and the commands in it.

    Raises Missing, and UsageError for a file that would be rejected when it is read.
    """
    home = home or Path.home()
    table = _load_layers(paths, home, trusted=True)
    _, project = table.project
    rows = [
        shlex.join((row.command, *row.args, *row.headless.args)) for name in project.rows if (row := table.rows[name])
    ]
    named = [
        project.program,
        *project.roles.values(),
        *(spec for tier in project.tiers.values() for spec in tier.values()),
    ]
    specs = [spec for spec in named if spec and ":" in spec]
    return preset_files.trust_file(paths.root / "liza.toml", home), tuple(dict.fromkeys([*rows, *specs]))


def find_executable(preset: Preset, path: str | None = None) -> Path | None:
    """Return the path of the executable, by ``path`` or PATH; None if it does not exist or is not executable."""
    executable = shutil.which(preset.command, path=path)
    return Path(executable) if executable else None


def require_executable(preset: Preset, path: str | None = None, typed: str = UP_PROGRAM) -> Path:
    """As ``find_executable``. Raises ProgramMissing with a hint; ``typed`` is the command before a program's name."""
    executable = find_executable(preset, path)
    if executable is None:
        own = f"{typed} script:./agent.sh"
        hint = f"{preset.install}, or: {own}" if preset.install else _suggest_fix(preset.command, typed) or own
        raise ProgramMissing(f"{preset.name}: {describe_missing(preset)}", hint)
    return executable


def _suggest_fix(command: str, typed: str) -> str | None:
    """Return a command that makes an existing file runnable, or uses it."""
    if not Path(command).is_file():
        return None
    if "/" not in command:
        return f"{typed} {shlex.quote(f'script:./{command}')}"
    return f"chmod +x {shlex.quote(command)}"


def describe_missing(preset: Preset) -> str:
    """Return why its executable was not found."""
    file = Path(preset.command)
    if "/" not in preset.command:
        note = f"; ./{preset.command} exists, but is not on PATH" if file.exists() else ""
        return f"{preset.command!r} is not a command on PATH{note}"
    if file.is_dir():
        return f"{preset.command!r} is a directory"
    return f"{preset.command!r} is {'not executable' if file.exists() else 'missing'}"


def read_version(preset: Preset, path: str | None = None) -> str | None:
    """Return the output of the program's version command; ``present`` without such a command; None if not installed."""
    executable = find_executable(preset, path)
    if executable is None or not preset.version:
        return "present" if executable else None
    try:
        # Undecodable bytes in the output are replaced: a version is no reason to fail.
        result = subprocess.run(
            [executable, *preset.version],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "present"
    first_line = (result.stdout.strip() or result.stderr.strip()).partition("\n")[0]
    return first_line if result.returncode == 0 and first_line else "present"


def _select_transport(row: Preset, via: Transport) -> Preset:
    if via is Transport.ACP and row.acp is None:
        raise UsageError(f"{row.name!r} does not speak ACP, as far as Liza knows", f"liza programs show {row.name}")
    return msgspec.structs.replace(row, via=via)


def _split_command(spec: str, command: str, typed: str, base: Path) -> list[str]:
    path = command.strip()
    # A path with spaces or an apostrophe needs no quotes of its own: `script:$(pwd)/agent.sh` works in each directory.
    with suppress(OSError):  # A command with long arguments is no name of a file.
        if "/" in path and Path(_absolute(path, base)).is_file():
            return [path]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{spec!r}: {error}", f"{typed} 'script:./agent.sh --flag'") from error
    return words or [""]


def _absolute(command: str, root: Path) -> str:
    """Make a path absolute, because a session runs elsewhere; a bare name is left to PATH."""
    command = str(Path(command).expanduser()) if command.startswith("~") else command
    return str(root / command) if "/" in command else command
