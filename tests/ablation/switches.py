"""Patches modules of Liza right after they are loaded, before anybody copies a name out of them.

Standard library only: the interpreters of commands under test load this at their start (see ``site/``).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "ABLATION_WITHOUT"
"""The variable that tells commands which defence is off. Not one of LIZA_: those are the product's own."""

VARIABLES = (NAME, "PYTHONPATH")
"""What a command under test needs in its environment to have a defence switched off."""

Switch = Callable[[Any], Any]


def found(module: ModuleType, path: str) -> tuple[Any, str]:
    """Where ``path`` (a name, or ``Class.name``) stands in a module. Raises AttributeError."""
    *way, name = path.split(".")
    place: Any = module
    for step in way:
        place = getattr(place, step)
    getattr(place, name)
    return place, name


def arm(switches: Mapping[str, Switch]) -> None:
    """From now on each ``module:name`` is replaced by what its switch makes of it, as soon as the module is there."""
    wanted: dict[str, list[tuple[str, Switch]]] = {}
    for target, switch in switches.items():
        module, path = target.split(":")
        wanted.setdefault(module, []).append((path, switch))
    late = [module for module in wanted if module in sys.modules]
    if late:
        raise RuntimeError(f"{late[0]} was loaded before its defence could be switched off")
    sys.meta_path.insert(0, _Finder(wanted))


class _Finder(MetaPathFinder):
    def __init__(self, wanted: dict[str, list[tuple[str, Switch]]]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._wanted:
            return None
        patches = self._wanted.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader, patches)
        return spec


class _Patching(Loader):
    def __init__(self, real: Loader, patches: list[tuple[str, Switch]]) -> None:
        self._real, self._patches = real, patches

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        for path, switch in self._patches:
            place, name = found(module, path)
            setattr(place, name, switch(getattr(place, name)))
