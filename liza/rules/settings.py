"""Settings: keys of ``config`` that name none, and those that count only once a person has confirmed them. Pure.

A limit under a misspelt name limits nothing, so it is told. And a setting that decides what "tested" means, what an
agent may do, or what it may cost, is not changed by whoever can write the board: the value that a person gave it by a
command of Liza goes on to be used until a person confirms another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liza.rules.model import Budget, Config, Delivery, LoopLimits, TestProof

NESTED_SETTINGS: Final = {"budget": Budget, "delivery": Delivery, "loop": LoopLimits, "proof": TestProof}
"""The settings that are mappings of settings."""

NEEDS_CONFIRMATION: Final = (
    "integration_command", "integration_timeout", "merge_clean", "proof", "environment", "sandbox_setup",
    "sandbox_setup_files", "sandbox_copy", "sandbox_keep", "permissions", "budget", "loop",
)  # fmt: skip
"""The settings that a person confirms. One that this version does not have is passed over."""


class UnconfirmedSetting(msgspec.Struct, frozen=True):
    """A setting that was changed by other means than a command of a person: ``used`` counts, ``found`` stands there."""

    key: str
    used: Any
    found: Any

    @property
    def description(self) -> str:
        """A sentence for people."""
        return (
            f"config.{self.key} was changed outside of liza to {_format_value(self.found)}; "
            f"{_format_value(self.used)} is used until a person confirms that"
        )


def confirmable_values(config: Config) -> dict[str, Any]:
    """The settings that a person confirms, as JSON has them."""
    wanted = {key: getattr(config, key) for key in NEEDS_CONFIRMATION if key in Config.__struct_fields__}
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(wanted))
    return found


def are_valid(confirmed: object) -> bool:
    """Whether these can be the settings that a person has confirmed. With a value of another kind among them no board
    could be read."""
    if not isinstance(confirmed, Mapping):
        return False
    words = {**msgspec.to_builtins(Config()), **{key: confirmed[key] for key in NEEDS_CONFIRMATION if key in confirmed}}
    try:
        msgspec.convert(words, Config)
    except msgspec.ValidationError:
        return False
    return True


def find_unconfirmed(config: Config, confirmed: Mapping[str, Any]) -> tuple[UnconfirmedSetting, ...]:
    """The settings that differ from what a person has confirmed. A key that nobody ever confirmed counts as its
    default, as it was before there was such a setting."""
    now, usual = confirmable_values(config), confirmable_values(Config())
    wanted = {key: confirmed.get(key, usual[key]) for key in now}
    return tuple(UnconfirmedSetting(key, wanted[key], now[key]) for key in now if now[key] != wanted[key])


def effective_config(config: Config, confirmed: Mapping[str, Any]) -> Config:
    """The settings that count: the confirmed values, and the board's for everything else."""
    odd = find_unconfirmed(config, confirmed)
    if not odd:
        return config
    words = {**msgspec.to_builtins(config), **{one.key: one.used for one in odd}}
    return msgspec.convert(words, Config)


def describe_effective(config: Config) -> str:
    """Which settings count, by name: those that a person confirms and that are not as Liza has them by itself."""
    given = [f"{key} {value!r}" for key, value in changed_settings(Config(), config).items()]
    return f"the settings that count: {'; '.join(given) or 'none'} (all others as liza has them by itself)"


def changed_settings(before: Config, after: Config) -> dict[str, Any]:
    """The settings that a person confirms which differ, with their new values."""
    old, new = confirmable_values(before), confirmable_values(after)
    return {key: value for key, value in new.items() if value != old[key]}


def _format_value(value: Any) -> str:
    return "nothing" if value in (None, "", [], {}) else repr(value)


def unknown_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys in what stands under ``config`` that no rule reads: ``key``, or ``budget.key`` one level below."""
    found = [key for key in config if key not in Config.__struct_fields__]
    for outer, kind in NESTED_SETTINGS.items():
        inside = config.get(outer)
        if isinstance(inside, Mapping):
            found += [f"{outer}.{key}" for key in inside if key not in kind.__struct_fields__]
    return tuple(found)


def describe_unknown_key(key: str) -> str:
    """What is wrong with a key of ``unknown``, and which settings there are instead."""
    outer, _, name = key.partition(".")
    if not name or outer not in NESTED_SETTINGS:
        near = _nearest(key, Config.__struct_fields__)
        return f"config.{key} is no setting{near or f': there are {_join_names(Config.__struct_fields__)}'}"
    names = NESTED_SETTINGS[outer].__struct_fields__
    idle = " and limits nothing" if outer == "budget" else ""
    return f"config.{key} is no setting{idle}{_nearest(name, names)} (config.{outer} has {_join_names(names)})"


def _nearest(word: str, words: tuple[str, ...]) -> str:
    import difflib  # slow to import, and needed only by whoever misspelt something

    near = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _join_names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
