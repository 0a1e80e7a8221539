"""The modules of Liza as syntax trees, for the tests that read all of them. A process parses each one once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse_module(path: Path) -> ast.Module:
    """Return the tree of a module. Tests only read it."""
    return ast.parse(path.read_text())


@cache
def module_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, in the order of ``ast.walk``."""
    return tuple(ast.walk(parse_module(path)))
