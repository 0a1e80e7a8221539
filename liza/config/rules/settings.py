"""Settings: unknown keys of ``config``, and settings that need the confirmation of a person. Pure.

A limit with a misspelt name has no effect, so unknown keys are reported. Agents can write the board. A setting that
decides what "tested" means, what an agent may do or what it may cost therefore keeps the value that a person set with a
Liza command, until a person confirms another one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from liza.model.configuration import (
    BreakerSettings,
    Budget,
    Config,
    Delivery,
    GuardSettings,
    LoopLimits,
    NotifySettings,
    QueueSettings,
    SlotLimits,
    TestProof,
)
from liza.model.setting_limits import hide_credentials, read_permissions
from liza.model.value_classes import decodable

NESTED_SETTINGS: Final = {
    "breaker": BreakerSettings,
    "budget": Budget,
    "delivery": Delivery,
    "guards": GuardSettings,
    "loop": LoopLimits,
    "notify": NotifySettings,
    "proof": TestProof,
    "queue": QueueSettings,
    "slots": SlotLimits,
}
"""The settings that are mappings of settings."""

NEEDS_CONFIRMATION: Final = (
    "integration_command", "integration_timeout", "merge_clean", "proof", "environment", "sandbox_setup",
    "sandbox_setup_files", "sandbox_copy", "sandbox_keep", "permissions", "budget", "loop", "breaker", "guards",
    "planning_rounds", "queue", "gates", "push", "notify", "gate_environment", "tests_write", "checkout",
    "proof_runs", "unproved_commands", "installed_changes", "env_allow",
    "confinement", "network", "shared", "generated",
)  # fmt: skip
"""Settings that need confirmation. Names that this version does not have are skipped."""

ACCEPT_COMMAND = "liza doctor --accept"
ALL_SETTINGS = "settings"
"""Name for all settings that need confirmation."""


class UnconfirmedSetting(msgspec.Struct, frozen=True):
    """A setting that was not changed by a person's command. ``used`` is in effect, ``on_board`` is on the board."""

    key: str
    used: Any
    on_board: Any

    @property
    def description(self) -> str:
        """Describe the change in one sentence for people."""
        return (
            f"config.{self.key} was changed outside of liza to {_format_value(self.key, self.on_board)}; "
            f"{_format_value(self.key, self.used)} is used until a person confirms that"
        )


def confirmable_values(config: Config) -> dict[str, Any]:
    """Return the settings that need confirmation, as JSON values."""
    wanted = {key: getattr(config, key) for key in NEEDS_CONFIRMATION if key in Config.__struct_fields__}
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(wanted))
    return values


def normalize(confirmed: Any) -> Any:
    """Return confirmed settings in their present form, if they are a mapping."""
    if isinstance(confirmed, dict) and isinstance(permissions := confirmed.get("permissions"), str):
        return {**confirmed, "permissions": read_permissions(permissions)}
    return confirmed


def are_valid(confirmed: object) -> bool:
    """Return whether ``confirmed`` is a mapping with values of the right types. Otherwise no board could be loaded."""
    if not isinstance(confirmed, Mapping):
        return False
    values = {
        **msgspec.to_builtins(Config()),
        **{key: confirmed[key] for key in NEEDS_CONFIRMATION if key in confirmed},
    }
    try:
        msgspec.convert(values, decodable(Config))
    except msgspec.ValidationError:
        return False
    return True


def find_unconfirmed(config: Config, confirmed: Mapping[str, Any]) -> tuple[UnconfirmedSetting, ...]:
    """Return the settings that differ from the confirmed values. A key that was never confirmed has its default."""
    now, usual = confirmable_values(config), confirmable_values(Config())
    wanted = {key: confirmed.get(key, usual[key]) for key in now}
    return tuple(UnconfirmedSetting(key, wanted[key], now[key]) for key in now if now[key] != wanted[key])


def effective_config(config: Config, confirmed: Mapping[str, Any]) -> Config:
    """Return the settings in effect: confirmed values where confirmation is needed, else the values on the board."""
    unconfirmed = find_unconfirmed(config, confirmed)
    if not unconfirmed:
        return config
    values = {**msgspec.to_builtins(config), **{setting.key: setting.used for setting in unconfirmed}}
    return msgspec.convert(values, decodable(Config))


def list_effective(config: Config) -> tuple[str, ...]:
    """Return the settings in effect that need confirmation and differ from their defaults, each with its value."""
    return tuple(f"{key} {_shown(key, value)!r}" for key, value in changed_settings(Config(), config).items())


def describe_effective(config: Config) -> str:
    """List the settings in effect that need confirmation and differ from their defaults."""
    given = "; ".join(list_effective(config)) or "none"
    return f"the settings in effect: {given} (all others have their default values)"


def changed_settings(before: Config, after: Config) -> dict[str, Any]:
    """Return the settings that need confirmation and differ, with their new values."""
    old, new = confirmable_values(before), confirmable_values(after)
    return {key: value for key, value in new.items() if value != old[key]}


def _format_value(key: str, value: Any) -> str:
    return "nothing" if value in (None, "", [], {}) else repr(_shown(key, value))


def _shown(key: str, value: Any) -> Any:
    """Return the value without the addresses and the command of notices: both may contain a credential."""
    if key != "notify":
        return value

    return hide_credentials(value)


def unknown_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys under ``config`` that no rule reads: ``key``, or ``budget.key`` one level below."""
    unknown = [key for key in config if key not in Config.__struct_fields__]
    for outer, kind in NESTED_SETTINGS.items():
        nested = config.get(outer)
        if isinstance(nested, Mapping):
            unknown += [f"{outer}.{key}" for key in nested if key not in kind.__struct_fields__]
    return tuple(unknown)


def describe_unknown_key(key: str) -> str:
    """Describe an unknown key, with the most similar setting. One level below, list all: there are few."""
    outer, _, name = key.partition(".")
    if not name or outer not in NESTED_SETTINGS:
        return f"config.{key} is no setting{_nearest(key, Config.__struct_fields__)}"
    names = NESTED_SETTINGS[outer].__struct_fields__
    idle = " and limits nothing" if outer == "budget" else ""
    return f"config.{key} is no setting{idle}{_nearest(name, names)} (config.{outer} has {_join_names(names)})"


def _nearest(word: str, names: tuple[str, ...]) -> str:
    matches = difflib.get_close_matches(word, names, 1)
    return f"; did you mean {matches[0]}?" if matches else ""


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def describe_unconfirmed(unconfirmed: Iterable[UnconfirmedSetting] | None) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the sentence and the next command of each setting that is not in effect.

    None: no setting was ever confirmed.
    """
    if unconfirmed is None:
        message = "no setting was ever confirmed by a person: every value under config: is in effect"
        yield ALL_SETTINGS, message, f"{ACCEPT_COMMAND} {ALL_SETTINGS}"
    for setting in unconfirmed or ():
        yield setting.key, setting.description, f"{ACCEPT_COMMAND} {setting.key}"
