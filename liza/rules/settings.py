"""What is said of keys of ``config`` that name no setting: a limit under a misspelt name limits nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liza.rules.model import Budget, Config, Delivery, TestProof

NESTED: Final = {"budget": Budget, "delivery": Delivery, "proof": TestProof}
"""The settings that are mappings of settings."""


def unknown(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys in what stands under ``config`` that no rule reads: ``key``, or ``budget.key`` one level below."""
    found = [key for key in config if key not in Config.__struct_fields__]
    for outer, kind in NESTED.items():
        inside = config.get(outer)
        if isinstance(inside, Mapping):
            found += [f"{outer}.{key}" for key in inside if key not in kind.__struct_fields__]
    return tuple(found)


def told(key: str) -> str:
    """What is wrong with a key of ``unknown``, and which settings there are instead."""
    outer, _, name = key.partition(".")
    if not name or outer not in NESTED:
        near = _nearest(key, Config.__struct_fields__)
        return f"config.{key} is no setting{near or f': there are {_listed(Config.__struct_fields__)}'}"
    names = NESTED[outer].__struct_fields__
    idle = " and limits nothing" if outer == "budget" else ""
    return f"config.{key} is no setting{idle}{_nearest(name, names)} (config.{outer} has {_listed(names)})"


def _nearest(word: str, words: tuple[str, ...]) -> str:
    import difflib  # slow to import, and needed only by whoever misspelt something

    near = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)
