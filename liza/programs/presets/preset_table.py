"""The table of all programs, the choice of one for an agent, and the files that the table is merged from.

A tracked ``liza.toml`` comes with a clone, so its author is unknown. Until a person trusts it, it may only choose among
programs that are known without it, and change nothing of what they run.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
import shutil
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from liza.model.errors import Missing, ProgramMissing, UsageError
from liza.model.paths import ROLES, Paths
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable, field
from liza.programs.presets import preset
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import value_at
from liza.programs.rules.program_spec import MODEL, ProgramSpec, Transport, parse_spec
from liza.system import atomic, untrusted_files
from liza.system.limited_program import run_limited

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
        """Return the program of ``NAME[@MODEL]``, also with ``:acp`` or ``:headless``, or of ``NAME:COMMAND ARGS``.

        The last form is for a program whose command a person gives.

        ``typed`` is the command before it, for a hint. ``directory``: a relative path in COMMAND starts there; default:
        the repository. Raises UsageError.
        """
        parts = parse_spec(spec)
        name, given = parts.name, parts.command
        row = self.rows.get(name)
        if row is None:
            raise self._unknown(spec.strip(), name, typed)
        if given is not None and self.built_in.rows.get(name, {"command": "its own"}).get("command"):
            raise UsageError(f"{name!r} has its own command; {given!r} cannot replace it", "liza programs list")
        base = directory if given is not None and directory is not None else self.root
        row = _select(row, parts)
        words = [row.command, *row.args] if given is None else _split_command(spec, given, typed, base)
        if not words[0]:
            raise UsageError(f"{name!r} needs a command: {name}:COMMAND", "liza programs list")
        return msgspec.structs.replace(row, command=_absolute(words[0], base), args=tuple(words[1:]))

    def _unknown(self, spec: str, name: str, typed: str) -> UsageError:
        if name in self.untrusted_names:
            file = self.root / "liza.toml"
            return UsageError(f"{name!r} is defined only in {file}, which is not trusted: read it first", TRUST_COMMAND)
        if "/" in name.partition(" ")[0]:
            exists = Path(_absolute(spec.partition(" ")[0], self.root)).is_file()
            hint = f"{typed} {shlex.quote(f'script:{spec}')}" if exists else "liza programs list"
            return UsageError(f"{spec!r} is a path, not the name of a program", hint)
        suggestion = did_you_mean(name, self.rows.keys())
        return UsageError(f"unknown program {name!r}{suggestion}", "liza programs list")


def load_presets(paths: Paths, home: Path | None = None) -> Presets:
    """Load the table: built in < ``~/.config/liza/programs.toml`` < ``liza.toml`` < ``.liza/programs.toml``.

    Raises UsageError for a file that does not parse, an unknown key, or a value of the wrong type.
    """
    home = home or Path.home()
    return _load_layers(paths, home, trusted=is_trusted(paths.root / "liza.toml", home))


def _load_layers(paths: Paths, home: Path, *, trusted: bool) -> Presets:
    built_in = read_built_in()
    user = read_layer(home / ".config" / "liza" / "programs.toml", "~/.config/liza/programs.toml")
    project = read_layer(paths.root / "liza.toml", "liza.toml")
    own = read_layer(paths.liza / "programs.toml", ".liza/programs.toml")
    notices: tuple[str, ...] = ()
    project_names = {*project.rows}
    if not trusted:
        project, notices = drop_untrusted(project, {*built_in.rows, *user.rows})
    layers = [built_in, user, project, own]
    names = dict.fromkeys(name for layer in layers for name in layer.rows)
    rows = {name: merge_row(name, layers) for name in names}
    return Presets(rows, built_in, user, (own, project), paths.root, notices, frozenset(project_names - rows.keys()))


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
    specs = [spec for spec in named if spec and (":" in spec or "@" in spec)]
    return trust_file(paths.root / "liza.toml", home), tuple(dict.fromkeys([*rows, *specs]))


def find_executable(preset: Preset, path: str | None = None) -> Path | None:
    """Return the path of the executable, by ``path`` or PATH; None if it does not exist or is not executable."""
    executable = shutil.which(preset.command, path=path)
    return Path(executable) if executable else None


def require_executable(
    preset: Preset, path: str | None = None, typed: str = UP_PROGRAM, others: Collection[str] = ()
) -> Path:
    """As ``find_executable``. Raises ProgramMissing with a hint; ``typed`` is the command before a program's name, and
    ``others`` are installed programs."""
    executable = find_executable(preset, path)
    if executable is None:
        instead = next((f"{typed} {name}" for name in others if name != preset.name), "")
        if preset.install:
            hint = ", or: ".join(filter(None, (preset.install, instead)))
        else:
            hint = _suggest_fix(preset.command, typed) or instead or "liza programs list"
        installed = f"; installed: {', '.join(others)}" if others else ""
        raise ProgramMissing(f"{preset.name}: {describe_missing(preset)}{installed}", hint)
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


_VERSION_LIMIT = 20.0
"""Seconds for the version command of a program."""


def read_version(preset: Preset, path: str | None = None) -> str | None:
    """Return the output of the program's version command; ``present`` without such a command; None if not installed."""
    executable = find_executable(preset, path)
    if executable is None or not preset.version:
        return "present" if executable else None
    try:
        result = run_limited([str(executable), *preset.version], _VERSION_LIMIT)
    except OSError:
        return "present"
    first_line = (result.stdout.strip() or result.stderr.strip()).partition("\n")[0]
    return first_line if result.returncode == 0 and first_line else "present"


def _select(row: Preset, parts: ProgramSpec) -> Preset:
    """Return the row with the transport and the model of a spec. Raises UsageError."""
    row = row if parts.transport is None else _select_transport(row, parts.transport)
    return _select_model(row, parts.model) if parts.model else row


def _select_transport(row: Preset, via: Transport) -> Preset:
    if via is Transport.ACP and row.acp is None:
        raise UsageError(f"{row.name!r} does not speak ACP, as far as Liza knows", f"liza programs show {row.name}")
    return msgspec.structs.replace(row, via=via)


def _select_model(row: Preset, model: str) -> Preset:
    """Return the row with the model that its sessions use. Raises UsageError if it takes none."""
    if not takes_model(row):
        raise UsageError(
            f"{row.name!r} takes no model: Liza knows no argument that passes {model!r} to it",
            f"liza programs show {row.name}",
        )
    return msgspec.structs.replace(row, chosen_model=model)


def takes_model(row: Preset) -> bool:
    """Return whether a model can be passed to sessions that are driven as the row says."""
    if row.via is Transport.ACP and row.acp is not None:
        acp = row.acp
        in_session = any(MODEL in value for value in (acp.model, *acp.options.values()))
        return bool(acp.model_args or acp.model_env) or in_session
    return bool(row.model or row.model_env)


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


BUILT_IN = Path(__file__).with_name("presets.toml")
TRUST_COMMAND = "liza programs trust"
# The only keys allowed untrusted. Even process_names is not: a shell's name in it would allow typing into a shell.
HARMLESS_KEYS = frozenset({"ready_timeout"})
_LARGEST = 1 << 20  # maximum file size, in bytes
_TOP_KEYS = ("program", "roles", "tiers", "programs")
REVIEWER, CODE_REVIEWER = "reviewer", "code-reviewer"
_ROLES = (*ROLES, REVIEWER)


def _keys(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


_ROW_KEYS = tuple(key for key in _keys(Preset) if key not in ("name", "chosen_model"))
_TABLE_KEYS = {
    "interactive": _keys(preset.LaunchMode),
    "headless": _keys(preset.LaunchMode),
    "permissions": _keys(preset.Permissions),
    "resume": _keys(preset.ResumeStyle),
    "hooks": _keys(preset.HookSettings),
    "usage": _keys(preset.UsageFormat),
    "journal": _keys(preset.ConversationLogFormat),
    "acp": _keys(preset.AcpSettings),
}
_LIST_KEYS = {
    "dialogs": _keys(preset.Dialog),
    "failures": _keys(preset.FailurePattern),
    "state": _keys(preset.StateDirectory),
}


class Layer(Value):
    """The contents of one file: rows, the program for each role, the general program, and each tier's programs."""

    source: str
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None
    tiers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: Path | None = None


@cache
def read_built_in() -> Layer:
    """Read the table that comes with Liza: once per process, because parsing its 41 KB takes 8 ms."""
    return read_layer(BUILT_IN, "built in")


def read_layer(file: Path, source: str) -> Layer:
    """Read ``file``; the result is empty if it does not exist.

    Raises UsageError if it cannot be parsed, or has unknown keys or values that are invalid for any program;
    NotRegularFile if it is no regular file or larger than 1 MiB.
    """
    try:
        document = tomllib.loads((untrusted_files.read_if_exists(file, _LARGEST, follow_links=True) or b"").decode())
    except (OSError, ValueError) as error:
        raise _file_error(file, str(error)) from error
    except RecursionError as error:
        raise _file_error(file, "its values are nested too deeply") from error
    _check_keys(file, "", document, _TOP_KEYS)
    rows = _read_tables(file, document, "programs", None)
    for name, row in rows.items():
        _check_keys(file, f" [programs.{name}]", row, (*_ROW_KEYS, "like"))
        for key, inner in _TABLE_KEYS.items():
            _check_keys(file, f" [programs.{name}.{key}]", row.get(key, {}), inner)
        for key, inner in _LIST_KEYS.items():
            value = row.get(key, [])
            for table in value if isinstance(value, list) else [value]:
                _check_keys(file, f" [[programs.{name}.{key}]]", table, inner)
        # A test reads the rows that come with Liza: to compile their expressions takes 50 ms of each command.
        for reason in find_errors(row) if file != BUILT_IN else ():
            raise _file_error(file, f"[programs.{name}] {reason}")
    tiers = _read_tables(file, document, "tiers", (*_ROLES, "default"))
    roles = document.get("roles", {})
    _check_keys(file, " [roles]", roles, _ROLES)
    _check_specs(
        file, [document.get("program"), *roles.values(), *(spec for tier in tiers.values() for spec in tier.values())]
    )
    tiers = {name: _normalize_roles(file, f" [tiers.{name}]", tier) for name, tier in tiers.items()}
    return Layer(source, rows, _normalize_roles(file, " [roles]", roles), document.get("program"), tiers, file)


def _normalize_roles(file: Path, section: str, specs: Mapping[str, str]) -> dict[str, str]:
    """Rename the role ``reviewer`` to ``code-reviewer``: both names are accepted, as for ``--program``."""
    if REVIEWER in specs and CODE_REVIEWER in specs:
        raise _file_error(file, f"{section.strip()} {REVIEWER} and {CODE_REVIEWER} are the same role: keep one")
    return {CODE_REVIEWER if role == REVIEWER else role: spec for role, spec in specs.items()}


def _read_tables(
    file: Path, document: Mapping[str, Any], key: str, valid_keys: Collection[str] | None
) -> dict[str, dict[str, Any]]:
    tables = document.get(key, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise _file_error(file, f"[{key}.NAME] must be a table")
    for name, table in tables.items():
        if valid_keys is not None:
            _check_keys(file, f" [{key}.{name}]", table, valid_keys)
    return tables


def _check_keys(file: Path, section: str, table: Any, valid_keys: Collection[str]) -> None:
    if not isinstance(table, dict):
        raise _file_error(file, f"{section.strip()} must be a table")
    for key in table:
        if key not in valid_keys:
            raise _file_error(file, f"{section.strip()} unknown key {key!r}{did_you_mean(key, valid_keys)}".strip())


def _check_specs(file: Path, specs: list[Any]) -> None:
    for spec in specs:
        if spec is not None and not isinstance(spec, str):
            raise _file_error(file, f"a program must be a string, not {spec!r}")


def _file_error(file: Path, reason: str) -> UsageError:
    return UsageError(f"{file}: {reason}", f"${{EDITOR:-vi}} {shlex.quote(str(file))}")


def did_you_mean(word: str, names: Collection[str]) -> str:
    """Return ``; did you mean 'command'?``, or an empty string if no known word is similar."""
    matches = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def merge_row(name: str, layers: list[Layer]) -> Preset:
    """Return the row ``name``, merged from all layers; a later layer's keys override earlier ones. Raises
    UsageError."""
    merged: dict[str, Any] = {}
    preset_row = Preset(name=name)
    for layer in layers:
        row = dict(layer.rows.get(name, {}))
        if not row:
            continue
        like = row.pop("like", None)
        if like is not None:
            merged = _base_row(name, like, layers)
        merged = _merge_tables(merged, row)
        # Convert after each layer, so that an error names the file that caused it.
        try:
            preset_row = msgspec.convert({**merged, "name": name}, decodable(Preset))
        except msgspec.ValidationError as error:
            reason = describe_decode_error(error, Preset)
            raise _file_error(layer.file or Path(layer.source), f"[programs.{name}]: {reason}") from error
    return preset_row


def _base_row(name: str, like: Any, layers: list[Layer]) -> dict[str, Any]:
    """Return the row that ``like`` names. It must not have a ``like`` of its own: chains are not supported."""
    base: dict[str, Any] = {}
    for layer in layers if isinstance(like, str) else ():
        base = _merge_tables(base, layer.rows.get(like, {}))
    if not base or like == name or "like" in base:
        raise UsageError(
            f"[programs.{name}] like is {like!r}; it must name another row, without a like", "liza programs list"
        )
    return base


def _merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def drop_untrusted(layer: Layer, trusted_names: Collection[str]) -> tuple[Layer, tuple[str, ...]]:
    """Return an untrusted layer without the keys that decide what runs, and a notice with the keys left out."""
    left_out: list[str] = []
    rows: dict[str, dict[str, Any]] = {}
    for name, row in layer.rows.items():
        harmless = {key: value for key, value in row.items() if key in HARMLESS_KEYS and name in trusted_names}
        left_out += [f"programs.{name}.{key}" for key in row if key not in harmless]
        if harmless:
            rows[name] = harmless
    roles = {role: spec for role, spec in layer.roles.items() if spec in trusted_names}
    left_out += [f"roles.{role}" for role in layer.roles if role not in roles]
    tiers = {
        name: {role: spec for role, spec in tier.items() if spec in trusted_names} for name, tier in layer.tiers.items()
    }
    left_out += [f"tiers.{name}.{role}" for name in tiers for role in layer.tiers[name] if role not in tiers[name]]
    program = layer.program if layer.program in trusted_names else None
    left_out += ["program"] if layer.program and program is None else []
    notices = (f"{layer.source} sets what programs run ({', '.join(left_out)}); ignored until: {TRUST_COMMAND}",)
    return Layer(layer.source, rows, roles, program, tiers, layer.file), notices if left_out else ()


def trust_file(file: Path, home: Path) -> str:
    """Trust the project's ``liza.toml`` with its present contents; any change ends the trust. Return its sha256."""
    if not file.is_file():
        raise Missing(f"{file} does not exist", "liza programs list")
    trust_list = _trust_file(home)
    trust_list.parent.mkdir(parents=True, exist_ok=True)
    if not is_trusted(file, home):
        lines = trust_list.read_text() if trust_list.exists() else ""
        atomic.write(trust_list, f"{lines}{_trust_line(file)}\n".encode())
    return _trust_line(file).partition(" ")[0]


def is_trusted(file: Path, home: Path) -> bool:
    """Return whether the person trusts this file with exactly these bytes."""
    trust_list = _trust_file(home)
    return file.is_file() and trust_list.is_file() and _trust_line(file) in trust_list.read_text().splitlines()


def _trust_line(file: Path) -> str:
    data = untrusted_files.read_if_exists(file, _LARGEST, follow_links=True) or b""
    return f"{hashlib.sha256(data).hexdigest()} {file.resolve()}"


def _trust_file(home: Path) -> Path:
    return home / ".config" / "liza" / "trusted"


MAX_READY_TIMEOUT = 86_400  # seconds that a program may have to become ready
_EXPRESSIONS = {
    "failures.*.match": re.MULTILINE,
    "acp.failures.*.match": re.MULTILINE,
    "input_line": re.MULTILINE,
    "answers": 0,
    "noise": 0,
    "refusal": 0,
    "exit_line": 0,
    "login.missing": 0,
    "login.files.*": 0,
    "usage.pattern": 0,
}
"""The regular expressions of a row, by path, with their flags. None may match an empty text."""
_TEXT_LIST_KEYS = ("process_names", "instructions", "env_allow", "login_signs")


def find_errors(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors in the values of a row, each with its key. Wrong types are reported when the row is
    converted."""
    timeout = row.get("ready_timeout", 1)
    if isinstance(timeout, int) and not 0 < timeout <= MAX_READY_TIMEOUT:
        yield f"ready_timeout is {timeout}; it must be from 1 to {MAX_READY_TIMEOUT} seconds"
    for key in _TEXT_LIST_KEYS:
        if any(isinstance(value, str) and not value.strip() for value in _as_list(row.get(key))):
            yield f"{key} has an empty entry, which matches everything"
    for table in _as_tables(row.get("dialogs")):
        if any(isinstance(value, str) and not value.strip() for value in table.values()):
            yield "dialogs has an entry with an empty text, which matches everything"
    for path, flags in _EXPRESSIONS.items():
        values = value_at(row, path)
        for value in values if isinstance(values, list) else [values or None]:
            yield from (f"{path.replace('.*', '')} {reason}" for reason in _expression_errors(value, flags))
    line = row.get("input_line")
    if isinstance(line, str) and line and "(?P<typed>" not in line:
        yield "input_line needs a group (?P<typed>…) for the text in the line"
    yield from (f"input_empty {reason}" for reason in _expression_errors(row.get("input_empty"), may_match_empty=True))
    for key in ("model", "model_env", "acp.model_args", "acp.model_env"):
        value = value_at(row, key)
        texts = list(value.values()) if isinstance(value, dict) else _as_list(value)
        if texts and not any(isinstance(text, str) and MODEL in text for text in texts):
            yield f"{key} has no {MODEL}, where the name of the model goes"
    codes = row.get("exit_codes")
    for code in codes if isinstance(codes, dict) else ():
        if not (code.isascii() and code.isdecimal() and int(code[:4]) <= 255):
            yield f"exit_codes has {code!r}; an exit code is a number from 0 to 255"
    yield from (
        f"{key} has a null character, which cannot be passed to a program" for key in row if _has_null(row[key])
    )


def _expression_errors(value: object, flags: int = 0, *, may_match_empty: bool = False) -> Iterator[str]:
    """Yield the error in an expression; unless ``may_match_empty``, it must not match the empty text."""
    if not isinstance(value, str):
        return
    try:
        if re.compile(value, flags).search("") and not may_match_empty:
            yield f"{value!r} matches an empty text, and so every text"
    except (re.error, OverflowError, RecursionError) as error:
        yield f"{value!r} is not a valid regular expression: {error}"


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_tables(value: object) -> list[dict[str, Any]]:
    return [item for item in _as_list(value) if isinstance(item, dict)]


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_null(item) for item in (*value, *value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value
