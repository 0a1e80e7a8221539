"""The files that say how programs are driven: what each says, what is wrong in it, and whether it is to be believed.

A tracked ``liza.toml`` comes with a clone, so it is the word of a stranger: until the person trusts it, it may choose
among programs that are known without it, and change nothing of what one runs.
"""

from __future__ import annotations

import difflib
import hashlib
import shlex
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from liza.programs.presets import preset, preset_values
from liza.programs.presets.preset import Preset
from liza.rules.errors import Missing, UsageError
from liza.rules.paths import ROLES
from liza.system import atomic

BUILT_IN = Path(__file__).with_name("presets.toml")
TRUST_COMMAND = "liza programs trust"
HARMLESS_KEYS = frozenset({"ready_timeout"})  # names let messages into shells, signs and codes say who is sent away
_LARGEST = 1 << 20  # bytes
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
}
_LIST_KEYS = {
    "calls": _keys(preset.ToolCallFormat),
    "dialogs": _keys(preset.Dialog),
    "failures": _keys(preset.FailurePattern),
}


@dataclass(frozen=True)
class Layer:
    """One file's word: rows, and which program for which role, in general, and in each tier."""

    source: str
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None
    tiers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: Path | None = None


def read_layer(file: Path, source: str) -> Layer:
    """What ``file`` says; nothing where there is none. Raises Usage for what does not parse, for unknown keys and for
    values that no program can have, NoFile for what is no file or too large for one that a person wrote."""
    try:
        said = tomllib.loads((atomic.read_if_exists(file, _LARGEST) or b"").decode())
    except (OSError, ValueError) as error:
        raise _file_error(file, str(error)) from error
    except RecursionError as error:
        raise _file_error(file, "its values are nested too deeply") from error
    _check_keys(file, "", said, _TOP_KEYS)
    rows = _read_tables(file, said, "programs", None)
    for name, row in rows.items():
        _check_keys(file, f" [programs.{name}]", row, (*_ROW_KEYS, "like"))
        for key, inner in _TABLE_KEYS.items():
            _check_keys(file, f" [programs.{name}.{key}]", row.get(key, {}), inner)
        for key, inner in _LIST_KEYS.items():
            said_of = row.get(key, [])
            for one in said_of if isinstance(said_of, list) else [said_of]:
                _check_keys(file, f" [[programs.{name}.{key}]]", one, inner)
        for what in preset_values.find_errors(row):
            raise _file_error(file, f"[programs.{name}] {what}")
    tiers = _read_tables(file, said, "tiers", (*_ROLES, "default"))
    roles = said.get("roles", {})
    _check_keys(file, " [roles]", roles, _ROLES)
    _check_specs(
        file, [said.get("program"), *roles.values(), *(spec for tier in tiers.values() for spec in tier.values())]
    )
    tiers = {name: _normalize_roles(file, f" [tiers.{name}]", tier) for name, tier in tiers.items()}
    return Layer(source, rows, _normalize_roles(file, " [roles]", roles), said.get("program"), tiers, file)


def _normalize_roles(file: Path, where: str, said: Mapping[str, str]) -> dict[str, str]:
    """The reviewer under its own name, by which a person may call it, as with ``--program``."""
    if REVIEWER in said and CODE_REVIEWER in said:
        raise _file_error(file, f"{where.strip()} {REVIEWER} and {CODE_REVIEWER} are one, and said twice")
    return {CODE_REVIEWER if role == REVIEWER else role: spec for role, spec in said.items()}


def _read_tables(
    file: Path, said: Mapping[str, Any], key: str, known: Collection[str] | None
) -> dict[str, dict[str, Any]]:
    tables = said.get(key, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise _file_error(file, f"[{key}.NAME] has to be a table")
    for name, table in tables.items():
        if known is not None:
            _check_keys(file, f" [{key}.{name}]", table, known)
    return tables


def _check_keys(file: Path, where: str, table: Any, known: Collection[str]) -> None:
    if not isinstance(table, dict):
        raise _file_error(file, f"{where.strip()} has to be a table")
    for key in table:
        if key not in known:
            raise _file_error(file, f"{where.strip()} {key!r} is no key{did_you_mean(key, known)}".strip())


def _check_specs(file: Path, specs: list[Any]) -> None:
    for spec in specs:
        if spec is not None and not isinstance(spec, str):
            raise _file_error(file, f"a program is named by a string, not by {spec!r}")


def _file_error(file: Path, what: str) -> UsageError:
    return UsageError(f"{file}: {what}", f"${{EDITOR:-vi}} {shlex.quote(str(file))}")


def did_you_mean(word: str, known: Collection[str]) -> str:
    """``; did you mean 'command'?``, or nothing where nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def merge_row(name: str, layers: list[Layer]) -> Preset:
    """The row ``name``, joined from all layers, a later one's keys over an earlier one's. Raises Usage."""
    joined: dict[str, Any] = {}
    found = Preset(name=name)
    for layer in layers:
        row = dict(layer.rows.get(name, {}))
        if not row:
            continue
        like = row.pop("like", None)
        if like is not None:
            joined = _base_row(name, like, layers)
        joined = _merge_tables(joined, row)
        # After each, so that the file is named in which the fault lies.
        try:
            found = msgspec.convert({**joined, "name": name}, Preset)
        except msgspec.ValidationError as error:
            raise _file_error(layer.file or Path(layer.source), f"[programs.{name}]: {error}") from error
    return found


def _base_row(name: str, like: Any, layers: list[Layer]) -> dict[str, Any]:
    """The row that a row is like: one that is like another in turn would make a riddle of the table."""
    found: dict[str, Any] = {}
    for layer in layers if isinstance(like, str) else ():
        found = _merge_tables(found, layer.rows.get(like, {}))
    if not found or like == name or "like" in found:
        raise UsageError(f"[programs.{name}] is like {like!r}, which is no row of its own", "liza programs list")
    return found


def _merge_tables(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(below)
    for key, value in above.items():
        old = joined.get(key)
        joined[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return joined


def drop_untrusted(layer: Layer, known: Collection[str]) -> tuple[Layer, tuple[str, ...]]:
    """The layer of a stranger without what decides what runs; and what was left out, for a person."""
    left_out: list[str] = []
    rows: dict[str, dict[str, Any]] = {}
    for name, row in layer.rows.items():
        kept = {key: value for key, value in row.items() if key in HARMLESS_KEYS and name in known}
        left_out += [f"programs.{name}.{key}" for key in row if key not in kept]
        if kept:
            rows[name] = kept
    roles = {role: spec for role, spec in layer.roles.items() if spec in known}
    left_out += [f"roles.{role}" for role in layer.roles if role not in roles]
    tiers = {name: {role: spec for role, spec in tier.items() if spec in known} for name, tier in layer.tiers.items()}
    left_out += [f"tiers.{name}.{role}" for name in tiers for role in layer.tiers[name] if role not in tiers[name]]
    program = layer.program if layer.program in known else None
    left_out += ["program"] if layer.program and program is None else []
    notices = (f"{layer.source} says what programs run ({', '.join(left_out)}); not heeded until: {TRUST_COMMAND}",)
    return Layer(layer.source, rows, roles, program, tiers, layer.file), notices if left_out else ()


def trust_file(file: Path, home: Path) -> str:
    """Let a project's ``liza.toml``, as it is now, say what programs run; any change to it ends that. Its sha256."""
    if not file.is_file():
        raise Missing(f"{file} is not there", "liza programs list")
    kept = _trust_file(home)
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not is_trusted(file, home):
        known = kept.read_text() if kept.exists() else ""
        atomic.write(kept, f"{known}{_trust_line(file)}\n".encode())
    return _trust_line(file).partition(" ")[0]


def is_trusted(file: Path, home: Path) -> bool:
    """Whether the person trusts this file with these very bytes."""
    kept = _trust_file(home)
    return file.is_file() and kept.is_file() and _trust_line(file) in kept.read_text().splitlines()


def _trust_line(file: Path) -> str:
    return f"{hashlib.sha256(atomic.read_if_exists(file, _LARGEST) or b'').hexdigest()} {file.resolve()}"


def _trust_file(home: Path) -> Path:
    return home / ".config" / "liza" / "trusted"
