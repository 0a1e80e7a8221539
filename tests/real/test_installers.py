"""Real installers share the files of their caches, and copy them in slots: an edit there reaches nobody else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from liza.project import commands
from tests.real import rigs
from tests.real.rigs import Rig

pytestmark = pytest.mark.real

PACKAGE = '{"name": "x", "version": "1.0.0", "dependencies": {"is-odd": "3.0.1"}}\n'
PROJECT = '[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.11"\ndependencies = ["iniconfig==2.0.0"]\n'
MODULE = "node_modules/is-odd/index.js"
INSTALLERS = [
    (Rig("pnpm 9", "pnpm@9", "pnpm"), "pnpm install --silent", MODULE),
    (Rig("pnpm 12", "pnpm@12", "pnpm"), "pnpm install --silent", MODULE),
    (Rig("bun", "bun@1.3", "bun", after="node node_modules/bun/install.js"), "bun install --backend=copyfile", MODULE),
    (Rig("uv", "uv", "uv", python="3.11"), "uv sync -q", ".venv/lib/python3*/site-packages/iniconfig/__init__.py"),
]


@pytest.mark.parametrize(("rig", "command", "module"), INSTALLERS, ids=[row[0].name for row in INSTALLERS])
def test_an_edited_dependency_of_a_slot_changes_no_other_copy(
    rig: Rig, command: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = rigs.install(rig)
    if failure is not None:
        pytest.skip(failure)
    monkeypatch.setenv("PATH", f"{rig.path.parent}:{os.environ['PATH']}")
    for name in ("person", "s1", "merge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "package.json").write_text(PACKAGE)
        (tmp_path / name / "pyproject.toml").write_text(PROJECT)
    subprocess.run(["sh", "-c", command.replace(" --backend=copyfile", "")], cwd=tmp_path / "person", check=True)
    (persons,) = (tmp_path / "person").glob(module)
    assert persons.stat().st_nlink > 1
    assert commands.run_command(command, tmp_path / "s1", tmp_path / "log", 120, tmp_path / "person").passed
    (own,) = (tmp_path / "s1").glob(module)
    before = persons.read_text()
    with own.open("a") as file:
        file.write("// PATCHED\n")
    assert commands.run_command(command, tmp_path / "merge", tmp_path / "log", 120, tmp_path / "person").passed
    (tested,) = (tmp_path / "merge").glob(module)
    assert (persons.read_text(), tested.read_text()) == (before, before)
