"""Each outside library has one place that imports it."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.unit.sources import module_nodes

PACKAGE = Path(__file__).parents[3] / "liza"
PLACES = {
    "apprise": ("alarms/notice_sender.py",),
    "filelock": ("system/locks.py",),
    "git": ("git/git_start.py",),
    "mcp": ("mcp/mcp_server.py",),
    "psycopg": ("board/postgresql/connection.py",),
    "ruamel": ("board/text",),
    "jinja2": ("ui/web/pages.py",),
    "starlette": ("api/application.py", "ui/web"),
    "tree_sitter": ("guards/shell_parser.py",),
    "tree_sitter_bash": ("guards/shell_parser.py",),
    "typer": ("cli", "commands"),
    "uvicorn": ("system/http_listener.py",),
    "watchdog": ("board", "system/file_growth.py"),
}
"""Library → the files and directories that may import it."""


@cache
def _importers() -> dict[str, set[str]]:
    """Return the files that import each top-level package."""
    importers = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in module_nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for name in names:
                importers[name.partition(".")[0]].add(str(path.relative_to(PACKAGE)))
    return importers


@pytest.mark.parametrize("library", PLACES)
def test_an_outside_library_is_imported_in_one_place(library: str) -> None:
    importers = _importers().get(library, set())
    assert importers, f"nothing imports {library}"
    elsewhere = {name for name in importers if not any(Path(name).is_relative_to(place) for place in PLACES[library])}
    assert elsewhere == set()
