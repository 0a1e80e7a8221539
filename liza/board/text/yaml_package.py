"""Import ruamel.yaml's C parser without the rest of the package, and the package where it is needed.

Importing any module of ruamel.yaml runs its ``__init__``, which loads the loaders, dumpers and resolvers. They take 7
to 10 ms of CPU time, and a board is read without them.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib import util
from types import ModuleType
from typing import Any, Final

_NAME: Final = "ruamel.yaml"
_guard = threading.Lock()
_unfinished: list[ModuleType] = []
"""The package while its ``__init__`` has not run."""


def import_parser() -> Any:
    """Return the class CParser of the C extension."""
    with _guard:
        if _NAME not in sys.modules:
            spec = util.find_spec(_NAME)
            if spec is not None and spec.loader is not None:
                package = sys.modules[_NAME] = util.module_from_spec(spec)
                setattr(sys.modules["ruamel"], "yaml", package)  # noqa: B010 - as an import does
                _unfinished.append(package)
        return importlib.import_module("_ruamel_yaml").CParser


def import_package() -> Any:
    """Return the package ruamel.yaml, complete. Call this before any other import from it by name."""
    with _guard:
        if _unfinished:
            package = _unfinished[0]
            assert package.__spec__ is not None
            assert package.__spec__.loader is not None
            package.__spec__.loader.exec_module(package)
            _unfinished.clear()
        return importlib.import_module(_NAME)
