"""The files that describe programs: their contents, their errors, and whether they are trusted.

A tracked ``liza.toml`` comes with a clone, so its author is unknown. Until a person trusts it, it may only choose among
programs that are known without it, and change nothing of what they run.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
import tomllib
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from liza.model.errors import Missing, UsageError
from liza.model.paths import ROLES
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable, field
from liza.programs.presets import preset
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import value_at
from liza.system import atomic, untrusted_files

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


_ROW_KEYS = tuple(key for key in _keys(Preset) if key != "name")
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
