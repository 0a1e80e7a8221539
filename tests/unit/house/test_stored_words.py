"""What files and boards of earlier versions mean: the words in them, and the fields that they do not have.

A changed value or default would change every crew that exists. tests/data/stored_words.json has them by class.
"""

from __future__ import annotations

import enum
import importlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from liza.model.value_classes import FrozenStruct
from tests.unit.sources import pure_modules

ROOT = Path(__file__).parents[3]
STORED: dict[str, dict[str, Any]] = json.loads((ROOT / "tests" / "data" / "stored_words.json").read_text())


def stored_classes() -> dict[str, type]:
    """All enums of strings and all structs for files in the rules, by name: no name exists twice."""
    classes: dict[str, type] = {}
    for path in pure_modules(ROOT):
        module = importlib.import_module(
            ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        )
        own = (kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__)
        classes |= {kind.__name__: kind for kind in own if issubclass(kind, enum.StrEnum | FrozenStruct)}
    return classes


def meaning(kind: type) -> dict[str, Any]:
    """The values of an enum, or the defaults of a struct, as JSON."""
    if issubclass(kind, enum.StrEnum):
        return {name: member.value for name, member in kind.__members__.items()}
    assert issubclass(kind, msgspec.Struct)
    names = kind.__struct_fields__[len(kind.__struct_fields__) - len(kind.__struct_defaults__) :]
    defaults = {
        name: value.factory() if hasattr(value, "factory") else value
        for name, value in zip(names, kind.__struct_defaults__, strict=True)
        if value is not msgspec.NODEFAULT
    }
    written: dict[str, Any] = json.loads(msgspec.json.encode(defaults))
    return written


CLASSES = stored_classes()


@pytest.mark.parametrize("name", STORED)
def test_words_and_defaults_that_files_rely_on_stay(name: str) -> None:
    now = meaning(CLASSES[name])
    assert {key: now.get(key, "missing") for key in STORED[name]} == STORED[name]
