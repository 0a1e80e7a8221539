"""The modules of Liza as syntax trees, for the tests that read all of them. A process parses each one once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse_text(text: str) -> ast.Module:
    """Return the tree of a module with this text. Tests only read it."""
    return ast.parse(text)


def parse_module(path: Path) -> ast.Module:
    """Return the tree of a module. Tests only read it."""
    return parse_text(path.read_text())


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, in the order of ``ast.walk``."""
    return tuple(ast.walk(tree))


def module_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, in the order of ``ast.walk``."""
    return nodes_of(parse_module(path))


def pure_modules(root: Path) -> list[Path]:
    """Return the modules without disk, processes and clock, sorted: `model`, `text`, and the rules of each package."""
    package = root / "liza"
    rules = [*package.rglob("rules/*.py"), *package.rglob("rules.py")]
    return sorted({*rules, *(package / "model").rglob("*.py"), *(package / "text").rglob("*.py")})
