"""Patterns of modules are compiled at their first use, and work as compiled ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import liza
from liza.rules.lazy_pattern import lazy_pattern
from tests.unit.sources import parse_module


def test_a_lazy_pattern_is_like_the_compiled_one() -> None:
    lazy, compiled = lazy_pattern(r"(?P<key>[a-z]+)=(\d+)", re.IGNORECASE), re.compile(r"(?P<key>[a-z]+)=(\d+)", re.I)
    text = "A=1, b=2 c=x"
    assert lazy.pattern == compiled.pattern
    assert (lazy.flags, lazy.groups, lazy.groupindex) == (compiled.flags, compiled.groups, compiled.groupindex)
    assert [match.span() for match in lazy.finditer(text)] == [match.span() for match in compiled.finditer(text)]
    assert lazy.findall(text) == compiled.findall(text) == lazy.findall(text)
    assert lazy.sub("-", text) == compiled.sub("-", text)
    assert lazy.split(text) == compiled.split(text)
    assert lazy.fullmatch(text) is None
    found = lazy.match(text)
    assert found is not None
    assert found["key"] == "A"
    assert lazy_pattern(rb"x+").search(b"axx")


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that run when it is imported."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from at_import(child)


def test_no_module_compiles_a_pattern_when_it_is_imported() -> None:
    root = Path(liza.__file__).parent
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] != "demo" and not path.name.startswith("_")
        if "re.compile" in path.read_text()
        for node in at_import(parse_module(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile"
        if ast.unparse(node.func) == "re.compile"
    ]
    assert found == []
