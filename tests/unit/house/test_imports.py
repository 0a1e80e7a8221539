"""Imports stand at the top of a module, but for a few with a reason, and they form no circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.unit.sources import parse_text

ROOT = Path(__file__).parents[3]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "liza").rglob("*.py"))
}
REASONS = {
    "liza.client": "a served command needs none of it",
    "liza.cli.entry_points": "a hook needs no crew, which takes 60 ms",
    "liza.commands.host": "an optional package",
    "liza.commands.serve": "a package of the server may be missing, which has a message of its own",
    "liza.board.file_store.file_board": "watchdog, 20 ms, which only processes that wait need",
    "liza.board.postgresql.postgres_board": "watchdog, 20 ms, which only processes that wait need",
    "liza.box.support": "an optional package",
    "liza.commands.ui": "an optional package, and 0.2 s that the lists of all commands do not spend",
    "liza.view.status": "only a crew on several hosts has hosts",
    "liza.board.opening": "an optional package",
    "liza.commands.board": "an optional package",
    "liza.commands.join": "an optional package",
    "liza.project.init": "an optional package",
    "liza.recovery.doctor": "an optional package",
    "liza.commands.web": "an optional package, and modules of the server that the other commands do not need",
    "liza.alarms.notice_sender": "an optional package",
    "liza.git.git_start": "50 ms, and most commands start no git",
    "liza.commands.submit": "40 modules, and supervisors, that the submission of a run does not need",
    "liza.commands.merge": "40 modules that a merge does not need which returns no request",
    "liza.commands.verdict": "40 modules that the verdict of an agent does not need",
    "liza.supervisor.main": "an optional package",
    "liza.programs.session._shim": "a session outside of a box has no socket",
}
"""The modules with imports inside functions."""


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    for alias in node.names:
        name = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        yield name if name in MODULES else name.rpartition(".")[0]


def test_modules_import_inside_functions_only_for_a_reason() -> None:
    inside = [
        (name, node.lineno)
        for name, path in MODULES.items()
        for function in ast.walk(parse_text(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in _imports(function)
    ]
    assert {name for name, _ in inside} == set(REASONS)
    assert len(inside) <= 60


def test_imports_form_no_circle() -> None:
    graph = {
        name: {target for node in _imports(parse_text(path.read_text())) for target in _targets(node)} & set(MODULES)
        for name, path in MODULES.items()
        # The client imports the command line for a direct run. The server imports what both sides have in common.
        if name != "liza.client"
    }
    while leaves := {name for name, targets in graph.items() if not targets & set(graph)}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert graph == {}


def test_a_hook_loads_no_git_and_no_board() -> None:
    code = "import sys; import liza.commands.hook; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    loaded = set(said.split())
    assert "liza.commands.hook" in loaded
    assert {
        name for name in loaded if name.split(".")[0] in ("git", "ruamel") or name.startswith("liza.board")
    } == set()
