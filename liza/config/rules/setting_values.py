"""Single settings by their dotted names, such as ``queue.batch``: list, parse and change them. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from liza.config.rules import settings
from liza.model.configuration import Config
from liza.model.errors import Refused, UsageError
from liza.model.invariants import MERGE_CLEAN_VALUES, check_entry
from liza.model.model import State
from liza.model.setting_limits import VALUES
from liza.model.type_errors import allowed_words, find_problem
from liza.model.value_classes import Value, decodable, replace
from liza.text.formats import did_you_mean

LIST_COMMAND: Final = "liza config get"
_NO_VALUE: Final = ("null", "none")
_PROGRAM_KEY: Final = re.compile(r"default|reviewer|(?:planner|coder|code-reviewer)(?:-[1-9]\d*)?")
_MAPPINGS: Final = {"programs": "default", "generated": "package-lock.json"}
"""Settings that are mappings with free keys, each with an example: ``programs.coder`` is one value of them."""


class SettingValue(Value):
    """One setting: the value in effect, the default, and the value on the board if that is not in effect."""

    name: str
    value: Any
    default: Any
    on_board: Any = None
    unconfirmed: bool = False


def setting_names() -> tuple[str, ...]:
    """Return the dotted names of all settings, in the order of the model."""
    names: list[str] = []
    for key in Config.__struct_fields__:
        kind = settings.NESTED_SETTINGS.get(key)
        names += [key] if kind is None else [f"{key}.{name}" for name in kind.__struct_fields__]
    return tuple(names)


def setting_choices(name: str) -> tuple[str, ...]:
    """Return the words that a setting can be set to; empty if its values are no words of a list."""
    checked: dict[str, tuple[str, ...]] = {"merge_clean": MERGE_CLEAN_VALUES, "permissions": (*VALUES, "null")}
    return checked.get(name) or allowed_words(Config, name)


def list_settings(in_effect: Config, written: Config) -> tuple[SettingValue, ...]:
    """Return all settings. ``written``: the settings on the board, of which unconfirmed ones are not in effect."""
    return tuple(get_setting(in_effect, written, name) for name in setting_names())


def get_setting(in_effect: Config, written: Config, name: str) -> SettingValue:
    """Return one setting, or all values of a nested one, such as ``queue``. Raises UsageError for an unknown name."""
    check_name(name)
    value, on_board = _value_at(in_effect, name), _value_at(written, name)
    if value == on_board:
        return SettingValue(name, value, _value_at(Config(), name))
    return SettingValue(name, value, _value_at(Config(), name), on_board, True)


def check_name(name: str) -> None:
    """Raise UsageError if no setting has this name."""
    outer, dot, rest = name.partition(".")
    if outer == "programs" and rest and not _PROGRAM_KEY.fullmatch(rest):
        raise UsageError(
            f"config.{name}: {rest!r} is no role and no agent, such as coder, reviewer, coder-2, or default",
            f"{LIST_COMMAND} programs",
        )
    if name in Config.__struct_fields__ or (outer in _MAPPINGS and rest):
        return
    kind = settings.NESTED_SETTINGS.get(outer)
    if kind is not None and rest in kind.__struct_fields__:
        return
    if dot and kind is not None:
        raise UsageError(settings.describe_unknown_key(name), LIST_COMMAND)
    # Also names of nested settings without their outer name: ``batch`` is ``queue.batch``.
    nested = [other for other in setting_names() if other.endswith(f".{name}")]
    suggestion = f"; did you mean {nested[0]}?" if nested else did_you_mean(name, setting_names())
    raise UsageError(f"config.{name} is no setting{suggestion}", LIST_COMMAND)


def change_setting(state: State, name: str, text: str | None) -> State:
    """Return the board with a setting changed. ``text`` is typed by a person; None: the default value.

    A text, a number, true or false, null, or JSON; a list of texts can be typed as ``a,b``. Raises UsageError for an
    unknown name or a value that the setting cannot have, Refused for a setting that Liza writes itself.
    """
    check_name(name)
    if name.partition(".")[0] == "proof":
        raise Refused("config.proof is the result of the last proof of the tests", "liza doctor --tests")
    config = _with_default(state.config, name) if text is None else _with_text(state.config, name, text)
    changed = replace(state, config=config)
    existing = {str(violation) for violation in check_entry("config", "config", state.config, state)}
    for violation in check_entry("config", "config", config, changed):
        if str(violation) not in existing:
            raise UsageError(
                f"config.{violation.field} is {violation.actual}, expected {violation.expected}",
                f"{LIST_COMMAND} {name}",
            )
    return changed


def _with_default(config: Config, name: str) -> Config:
    outer, _, inner = name.partition(".")
    if outer in _MAPPINGS and inner:
        values = {key: value for key, value in getattr(config, outer).items() if key != inner}
        return _converted(config, outer, values)
    return _converted(config, name, _value_at(Config(), name))


def _with_text(config: Config, name: str, text: str) -> Config:
    """Return the settings with the first reading of ``text`` that fits the type of the setting."""
    failure = ""
    for value in _readings(text):
        try:
            return _converted(config, name, value)
        except msgspec.ValidationError as error:
            problem = find_problem(error, Config)
            failure = failure or (f"expected {problem.expected}" if problem.path == name else str(problem))
    hint = f"{LIST_COMMAND} {name}"
    if name in _MAPPINGS:
        hint = f"liza config set {name}.{_MAPPINGS[name]} {shlex.quote(text)}"
    raise UsageError(f"config.{name} cannot be {text!r}: {failure}", hint)


def _readings(text: str) -> Iterator[Any]:
    """What a typed text can mean: nothing, JSON, the text itself, texts separated by commas."""
    if text.lower() in _NO_VALUE:
        yield None
    with suppress(msgspec.DecodeError, RecursionError):
        yield msgspec.json.decode(text)
    yield text
    yield [part.strip() for part in text.split(",") if part.strip()]


def _converted(config: Config, name: str, value: Any) -> Config:
    """Return the settings with one value, which is a JSON value. Raises msgspec.ValidationError."""
    outer, _, inner = name.partition(".")
    values: dict[str, Any] = msgspec.to_builtins(config)
    values[outer] = {**msgspec.to_builtins(getattr(config, outer)), inner: value} if inner else value
    return msgspec.convert(values, decodable(Config))


def _value_at(config: Config, name: str) -> Any:
    """Return the value of a setting as a JSON value; None for a key that a mapping does not have."""
    outer, _, inner = name.partition(".")
    value = getattr(config, outer)
    if not inner:
        return _all_values(value)
    return value.get(inner) if isinstance(value, dict) else msgspec.to_builtins(getattr(value, inner))


def _all_values(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _all_values(getattr(value, name)) for name in value.__struct_fields__}
    return msgspec.to_builtins(value)
