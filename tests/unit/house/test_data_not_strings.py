"""Events, kinds, outcomes, phases, statuses and reasons are compared with members of enums, not with literals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.model.transitions import add_event, apply_verb, has_done
from tests.unit.sources import nodes_of, parse_text

ROOT = Path(__file__).parents[3]
MODULES = sorted((ROOT / "liza").rglob("*.py"))
FIELDS = frozenset({"event", "kind", "meaning", "outcome", "phase", "reason", "status", "trigger"})
RECORDERS = frozenset(function.__name__ for function in (add_event, apply_verb, has_done))
"""Functions whose second argument is an event of a history."""
ALLOWED = {
    ("liza/programs/event_readers.py", "status"): "words of the programs' output",
    ("liza/model/type_errors.py", "reason"): "msgspec tells a wrong time only by its message",
    ("liza/git/branch_moves.py", "kind"): "words and letters of git's porcelain output",
    ("liza/git/survey.py", "kind"): "letters of git's porcelain output",
}


def _field(node: ast.expr) -> str | None:
    """Return the field that an expression reads: ``x.kind``, ``kind``, ``x["kind"]`` or ``x[i].kind``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return None


def _is_literal(node: ast.expr) -> bool:
    """Return whether an expression is a text, or a collection with one. The empty text means that there is no value."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(_is_literal, node.elts))
    if isinstance(node, ast.Call) and _field(node.func) in ("frozenset", "set", "tuple"):
        return any(map(_is_literal, node.args))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def _compared_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield each field that is compared with a literal, and the comparison with its line."""
    for node in nodes_of(parse_text(text)):
        if isinstance(node, ast.Compare):
            operands = (node.left, *node.comparators)
            field = next((field for operand in operands if (field := _field(operand)) in FIELDS), None)
            if field is not None and any(map(_is_literal, operands)):
                yield field, f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Match) and (field := _field(node.subject)) in FIELDS and field is not None:
            patterns = (part for case in node.cases for part in ast.walk(case.pattern))
            if any(isinstance(part, ast.MatchValue) and _is_literal(part.value) for part in patterns):
                yield field, f"{node.lineno}: match {ast.unparse(node.subject)}"
        elif isinstance(node, ast.Call) and _field(node.func) in RECORDERS and any(map(_is_literal, node.args[1:2])):
            yield "event", f"{node.lineno}: {ast.unparse(node)}"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_enum_fields_are_compared_with_members_and_not_literals() -> None:
    assert MODULES
    found = [(_name(path), *compared) for path in MODULES for compared in _compared_fields(path.read_text())]
    assert [f"{name}:{line}" for name, field, line in found if (name, field) not in ALLOWED] == []
    assert set(ALLOWED) - {(name, field) for name, field, _ in found} == set()


def test_one_module_defines_how_a_person_is_written() -> None:
    assert [_name(path) for path in MODULES if re.search(r"""["']human:""", path.read_text())] == [
        "liza/model/paths.py"
    ]


@pytest.mark.parametrize(
    "text",
    [
        'event.event == "claim"',
        '"claim" != history[-1].event',
        'alarm["kind"] in ("damaged", KIND)',
        'outcome not in frozenset({"moved"})',
        'has_done(task, "stop", run)',
        'match result.outcome:\n    case "moved" | "lost":\n        pass',
    ],
)
def test_the_check_finds_a_comparison_with_a_literal(text: str) -> None:
    assert len(list(_compared_fields(text))) == 1


@pytest.mark.parametrize("text", ["event.event == E.CLAIM", 'task.reason == ""', 'name == "claim"', "kind in KINDS"])
def test_the_check_leaves_other_comparisons_alone(text: str) -> None:
    assert list(_compared_fields(text)) == []
