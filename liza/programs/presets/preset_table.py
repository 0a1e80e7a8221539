"""The table of programs, and which of them an agent gets."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from liza.programs.presets import preset_files
from liza.programs.presets.preset import Preset
from liza.programs.presets.preset_files import Layer
from liza.rules.errors import ProgramMissing, UsageError
from liza.rules.model import Config
from liza.rules.paths import Paths

TIER_VARIABLE = "LIZA_AGENT_TIER"


@dataclass(frozen=True)
class Presets:
    """All rows, joined; the layers that choose among them, the project's nearest first; and notices for a person."""

    rows: Mapping[str, Preset]
    built_in: Layer
    user: Layer
    project: tuple[Layer, ...]
    root: Path
    notices: tuple[str, ...] = ()
    untrusted_names: frozenset[str] = frozenset()
    """Names of rows that stand only in a file that is not trusted."""

    def resolve(self, spec: str, typed: str = "liza up --program") -> Preset:
        """The program of ``NAME``, or of ``NAME:COMMAND ARGS`` for one whose command a person gives.

        ``typed`` are the words in front of it, for a hint. Raises Usage.
        """
        name, colon, rest = spec.strip().partition(":")
        row = self.rows.get(name)
        if row is None:
            raise self._unknown(spec.strip(), name, typed)
        open_row = not self.built_in.rows.get(name, {"command": "its own"}).get("command")
        if colon and not open_row:
            raise UsageError(f"{name!r} has a command of its own, and {rest!r} cannot replace it", "liza programs list")
        words = _split_command(spec, rest) if colon else [row.command, *row.args]
        if not words[0]:
            raise UsageError(f"{name!r} needs a command", f"{typed} {name}:./agent.sh")
        command = _absolute(words[0], self.root)
        return msgspec.structs.replace(row, command=command, args=tuple(words[1:]))

    def _unknown(self, spec: str, name: str, typed: str) -> UsageError:
        if name in self.untrusted_names:
            file = self.root / "liza.toml"
            return UsageError(
                f"{name!r} stands only in {file}, which is not trusted: read it first", preset_files.TRUST_COMMAND
            )
        if "/" in spec.partition(" ")[0]:
            way = f"{typed} {shlex.quote(f'script:{spec}')}"
            return UsageError(f"{spec!r} is a path, and not the name of a program", way)
        near = preset_files.did_you_mean(name, self.rows.keys())
        return UsageError(f"{name!r} is no program that is known{near}", "liza programs list")


@dataclass(frozen=True)
class ProgramChoice:
    """A program, the words that named it, and where they came from: ``--program``, ``liza.toml``, ``built in``, …"""

    preset: Preset
    spec: str
    source: str


def load_presets(paths: Paths, home: Path | None = None) -> Presets:
    """The table: built in < ``~/.config/liza/programs.toml`` < ``liza.toml`` < ``.liza/programs.toml``.

    Raises Usage for a file that does not parse, an unknown key, or a value of the wrong kind.
    """
    home = home or Path.home()
    return _load_layers(paths, home, trusted=preset_files.is_trusted(paths.root / "liza.toml", home))


def _load_layers(paths: Paths, home: Path, *, trusted: bool) -> Presets:
    built_in = preset_files.read_layer(preset_files.BUILT_IN, "built in")
    user = preset_files.read_layer(home / ".config" / "liza" / "programs.toml", "~/.config/liza/programs.toml")
    theirs = preset_files.read_layer(paths.root / "liza.toml", "liza.toml")
    own = preset_files.read_layer(paths.liza / "programs.toml", ".liza/programs.toml")
    notices: tuple[str, ...] = ()
    said = {*theirs.rows}
    if not trusted:
        theirs, notices = preset_files.drop_untrusted(theirs, {*built_in.rows, *user.rows})
    layers = [built_in, user, theirs, own]
    names = dict.fromkeys(name for layer in layers for name in layer.rows)
    rows = {name: preset_files.merge_row(name, layers) for name in names}
    return Presets(rows, built_in, user, (own, theirs), paths.root, notices, frozenset(said - rows.keys()))


def choose_program(
    option: str | None, env: Mapping[str, str], role: str, config: Config, presets: Presets
) -> ProgramChoice:
    """The program for an agent of ``role``, from the nearest that says one: the option, the environment, the project's
    role, the user's role, the project, the user, the built-in default. Raises Usage."""
    tier = env.get(TIER_VARIABLE) or None
    roles = {
        preset_files.CODE_REVIEWER if name == preset_files.REVIEWER else name: of
        for name, of in config.programs.items()
    }
    board = Layer("config.programs", roles=roles, program=config.programs.get("default"))
    project = (board, *presets.project)
    ways: list[tuple[str | None, str]] = [
        (option, "--program"),
        (_program_of_tier(tier, role, presets), f"{TIER_VARIABLE}={tier}"),
    ]
    ways += [(layer.roles.get(role), f"{layer.source}, {role}") for layer in (*project, presets.user)]
    ways += [(layer.program, layer.source) for layer in (*project, presets.user, presets.built_in)]
    spec, because = next((spec, because) for spec, because in ways if spec)
    return ProgramChoice(presets.resolve(spec), spec, because)


def _program_of_tier(tier: str | None, role: str, presets: Presets) -> str | None:
    """A tier names a table of roles; a word that is no tier is taken as a program."""
    if tier is None:
        return None
    for layer in (*presets.project, presets.user, presets.built_in):
        if tier in layer.tiers:
            return layer.tiers[tier].get(role) or layer.tiers[tier].get("default")
    return tier


def trust_project(paths: Paths, home: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """Let this project's ``liza.toml``, as it is now, say what programs run. Its sha256, and the commands in it.

    Raises Missing, and Usage for a file that would be refused when it is read.
    """
    home = home or Path.home()
    table = _load_layers(paths, home, trusted=True)
    _, theirs = table.project
    rows = [
        shlex.join((row.command, *row.args, *row.headless.args)) for name in theirs.rows if (row := table.rows[name])
    ]
    named = [
        theirs.program,
        *theirs.roles.values(),
        *(spec for tier in theirs.tiers.values() for spec in tier.values()),
    ]
    specs = [spec for spec in named if spec and ":" in spec]
    return preset_files.trust_file(paths.root / "liza.toml", home), tuple(dict.fromkeys([*rows, *specs]))


def find_executable(preset: Preset, path: str | None = None) -> Path | None:
    """Where the executable lies, by ``path`` or PATH; None when it is not there, or not executable."""
    found = shutil.which(preset.command, path=path)
    return Path(found) if found else None


def require_executable(preset: Preset, path: str | None = None) -> Path:
    """As ``find``. Raises ProgramMissing with what to do about it."""
    found = find_executable(preset, path)
    if found is None:
        own = "liza up --program script:./agent.sh"
        way = f"{preset.install}, or: {own}" if preset.install else _suggest_fix(preset.command) or own
        raise ProgramMissing(f"{preset.name}: {describe_missing(preset)}", way)
    return found


def _suggest_fix(command: str) -> str | None:
    """What makes a file that is there a command that can be run."""
    if not Path(command).is_file():
        return None
    if "/" not in command:
        return f"liza up --program {shlex.quote(f'script:./{command}')}"
    return f"chmod +x {shlex.quote(command)}"


def describe_missing(preset: Preset) -> str:
    """Why its executable was not found, where it was not."""
    file = Path(preset.command)
    if "/" not in preset.command:
        here = f", and ./{preset.command} is another" if file.exists() else ""
        return f"{preset.command!r} is no command on PATH{here}"
    if file.is_dir():
        return f"{preset.command!r} is a directory"
    return f"{preset.command!r} is {'not executable' if file.exists() else 'not there'}"


def read_version(preset: Preset, path: str | None = None) -> str | None:
    """The program's version in its own words; ``present`` when it has none to tell; None when it is not installed."""
    found = find_executable(preset, path)
    if found is None or not preset.version:
        return "present" if found else None
    try:
        # A version is no reason to fail, whatever bytes it is told in.
        said = subprocess.run(
            [found, *preset.version],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "present"
    first = (said.stdout.strip() or said.stderr.strip()).partition("\n")[0]
    return first if said.returncode == 0 and first else "present"


def _split_command(spec: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{spec!r}: {error}", "liza up --program 'script:./agent.sh --flag'") from error
    return words or [""]


def _absolute(command: str, root: Path) -> str:
    """A path is taken from the project's root, for a session runs elsewhere; a bare name is left to PATH."""
    command = str(Path(command).expanduser()) if command.startswith("~") else command
    return str(root / command) if "/" in command else command
