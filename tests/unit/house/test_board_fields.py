"""Every field of the board has a writer and a reader, outside of the model and the form of the file."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

import liza
from liza.model import configuration, model
from tests.unit.sources import module_nodes

PACKAGE = Path(liza.__file__).parent
SETTINGS = frozenset(
    (
        configuration.Config,
        configuration.Budget,
        configuration.Delivery,
        configuration.LoopLimits,
        configuration.BreakerSettings,
        configuration.GuardSettings,
        configuration.Gate,
        configuration.QueueSettings,
        configuration.SlotLimits,
        configuration.NotifySettings,
    )
)
"""What a person writes: with `liza config set` and `liza edit`."""
WRITTEN_OTHERWISE = MappingProxyType(
    {
        "Task.review_cycles_total": "verdict reject: by the name of the field",
        "Timeline.deadline": "a person: liza edit",
        "Timeline.checkpoint_at": "a person: liza edit",
    }
)
READ_OTHERWISE = MappingProxyType(
    {
        "BreakerTrip.resolved_by": "liza breaker: all fields of a trip",
        "BreakerTrip.root_cause": "liza breaker: all fields of a trip",
        "Task.supersedes": "liza task show: by the name of the field",
        "Task.rescope_reason": "liza task show: by the name of the field",
        "Sprint.metrics": "people and scripts that read the file; no rule reads counts that follow from the tasks",
    }
)
"""Fields whose name alone does not show the writer or the reader: field → which command it is."""


def fields() -> list[tuple[type[msgspec.Struct], str]]:
    structs = [
        value
        for module in (model, configuration)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
    ]
    return [(struct, name) for struct in structs for name in struct.__struct_fields__]


@cache
def uses() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Names that are read as attributes, and those that are given as keywords: name → modules."""
    read, written = defaultdict(set), defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        module = path.relative_to(PACKAGE).as_posix()
        if module in ("model/model.py", "model/configuration.py") or module.startswith("demo/"):
            continue
        for node in module_nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read[node.attr].add(module)
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    written[keyword.arg or ""].add(module)
    return read, written


@pytest.mark.parametrize(
    ("struct", "name"), fields(), ids=lambda value: value if isinstance(value, str) else value.__name__
)
def test_each_field_of_the_board_is_written_and_read(struct: type[msgspec.Struct], name: str) -> None:
    read, written = uses()
    field = f"{struct.__name__}.{name}"
    assert read[name] or field in READ_OTHERWISE, f"nothing reads {field}"
    assert written[name] or struct in SETTINGS or field in WRITTEN_OTHERWISE, f"nothing writes {field}"


def test_the_tables_name_only_fields_that_need_it() -> None:
    read, written = uses()
    names = {f"{struct.__name__}.{name}" for struct, name in fields()}
    assert names >= READ_OTHERWISE.keys() | WRITTEN_OTHERWISE.keys()
    assert [field for field in READ_OTHERWISE if read[field.rpartition(".")[2]]] == []
    assert [field for field in WRITTEN_OTHERWISE if written[field.rpartition(".")[2]]] == []
