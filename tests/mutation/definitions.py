"""Which functions depend on what a statement at the level of a module defines: a constant, a table, a class."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_DEPTH = 3
"""How many definitions in a row are followed: a table that is made of another one."""


@dataclass(frozen=True)
class Part:
    """A function, or a statement outside of functions: the lines it has, the names that it defines and uses."""

    path: str
    first: int
    last: int
    defined: frozenset[str]
    used: frozenset[str]
    is_function: bool


class Definitions:
    """The parts of modules. Names are compared without their modules: an import may give a name to anything."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._parts = [part for path, text in texts.items() for part in parts_of(path, text)]

    def users(self, path: str, line: int) -> list[Part]:
        """Return the functions that use what the innermost part on a line of a module defines, directly or not."""
        around = [part for part in self._parts if part.path == path and part.first <= line <= part.last]
        names = min(around, key=lambda part: part.last - part.first).defined if around else frozenset()
        for _ in range(_DEPTH):
            made_of = (part.defined for part in self._parts if not part.is_function and part.used & names)
            names = names.union(*made_of)
        return [part for part in self._parts if part.is_function and part.used & names]


def parts_of(path: str, text: str) -> Iterator[Part]:
    """Yield the parts of a module: functions and methods, statements of the module and of its classes."""
    yield from _parts(path, ast.parse(text).body, frozenset())


def _parts(path: str, body: list[ast.stmt], classes: frozenset[str]) -> Iterator[Part]:
    for node in body:
        last = node.end_lineno or node.lineno
        if isinstance(node, ast.ClassDef):
            yield from _parts(path, node.body, classes | {node.name})
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Part(path, node.lineno, last, frozenset({node.name}), _used(node), True)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            yield from _parts(path, [child for child in ast.walk(node) if _is_definition(child)], classes)
        elif _is_definition(node):
            yield Part(path, node.lineno, last, classes | _targets(node), _used(node), False)


def _is_definition(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _targets(node: ast.AST) -> frozenset[str]:
    names = (child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
    return frozenset(name.id for name in names)


def _used(node: ast.AST) -> frozenset[str]:
    """Return the names and attributes that a node uses, without those of annotations."""
    names: set[str] = set()
    waiting = [node]
    while waiting:
        child = waiting.pop()
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            names.add(child.id)
        elif isinstance(child, ast.Attribute):
            names.add(child.attr)
        skipped = {getattr(child, name, None) for name in ("annotation", "returns")}
        waiting += [other for other in ast.iter_child_nodes(child) if other not in skipped]
    return frozenset(names)
