"""Real package managers resolve a conflict in their lock file. All packages are directories: no network is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.project.rules import lock_files
from tests.conftest import commit_all
from tests.journeys.crews import Crew, begun
from tests.real import rigs
from tests.real.rigs import Rig

pytestmark = pytest.mark.real

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RIGS = {
    "npm": Rig("npm", "npm@11", "npm"),
    "pnpm": Rig("pnpm", "pnpm@10", "pnpm"),
    "yarn": Rig("yarn", "yarn@1", "yarn"),
    "uv": Rig("uv", "uv", "uv", python=PYTHON),
}
LOCKS = {"npm": "package-lock.json", "pnpm": "pnpm-lock.yaml", "yarn": "yarn.lock", "uv": "uv.lock"}
CHECKS = {
    "npm": "npm ci --offline --no-audit --no-fund",
    "pnpm": "pnpm install --offline --frozen-lockfile",
    "yarn": "yarn install --offline --frozen-lockfile",
    "uv": "uv lock --offline --check",
}
"""The tests of the project: each refuses a lock file that does not fit the project."""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _begin_node(root: Path) -> None:
    _write(root / "package.json", json.dumps({"name": "root", "private": True, "workspaces": ["packages/*"]}))
    _write(root / "pnpm-workspace.yaml", "packages:\n  - packages/*\n")
    for task in ("a", "b", "c", "z"):
        _write(root / f"libs/of-{task}/package.json", json.dumps({"name": f"of-{task}", "version": "1.0.0"}))


def _add_node(root: Path, task: str) -> None:
    needs = {f"of-{task}": f"file:../../libs/of-{task}"}
    member = {"name": f"part-{task}", "version": "1.0.0", "dependencies": needs}
    _write(root / f"packages/part-{task}/package.json", json.dumps(member))


def _begin_python(root: Path) -> None:
    head = f'[project]\nname = "root"\nversion = "1"\nrequires-python = ">={PYTHON}"\n'
    _write(root / "pyproject.toml", f'{head}[tool.uv.workspace]\nmembers = ["packages/*"]\n')


def _add_python(root: Path, task: str) -> None:
    text = f'[project]\nname = "part-{task}"\nversion = "1"\nrequires-python = ">={PYTHON}"\n'
    _write(root / f"packages/part-{task}/pyproject.toml", text)


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path, str], None]]] = {
    "npm": (_begin_node, _add_node),
    "pnpm": (_begin_node, _add_node),
    "yarn": (_begin_node, _add_node),
    "uv": (_begin_python, _add_python),
}


def _lock(crew: Crew, there: Path, command: str) -> None:
    """Make the lock file as a coder does, and commit everything."""
    subprocess.run(["sh", "-c", command], cwd=there, check=True)
    commit_all(there, "lock")


def _approve(crew: Crew, task: str, agent: str, change: Callable[[Path, str], None], command: str) -> None:
    crew.add(task)
    crew.prepare("claim", task, "--agent", agent)
    there = crew.paths.task_link(task).resolve()
    change(there, task)
    _lock(crew, there, command)
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "fine", "--task", task)


@pytest.mark.parametrize("name", list(KINDS))
def test_a_package_manager_resolves_a_conflict_in_its_lock_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, (begin, change) = RIGS[name], KINDS[name]
    failed = rigs.install(rig)
    if failed is not None:
        pytest.skip(failed)
    monkeypatch.setenv("PATH", f"{rig.path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_OFFLINE", "1")
    crew = begun(tmp_path)
    begin(crew.root)
    change(crew.root, "z")
    _write(crew.root / ".gitignore", "node_modules\n.venv\n")
    command = lock_files.propose_generated([LOCKS[name]])[LOCKS[name]]
    _lock(crew, crew.root, command)
    crew.liza("init", "All parts", "--test", CHECKS[name], "--setup", "true", "--no-proof")
    assert json.loads(crew.liza("config", "get", "generated")) == {LOCKS[name]: command}
    for number, task in enumerate(("a", "b", "c")):
        _approve(crew, task, f"coder-{number + 1}", change, command)
    crew.liza("merge", "a")
    assert f"re-made: {LOCKS[name]} by " in crew.liza("merge", "b")
    lock = crew.git("show", f"integration:{LOCKS[name]}")
    assert [task for task in ("a", "b", "z") if f"of-{task}" in lock or f"part-{task}" in lock] == ["a", "b", "z"]
    crew.liza("config", "set", f"generated.{LOCKS[name]}", f"{command} --no-such-option=x && exit 1")
    crew.run("merge", "c")
    failure = crew.task("c").history[-1].detail or ""
    assert failure.startswith(f"conflict with integration in {LOCKS[name]}\n`{command} --no-such-option=x")
    assert f"cannot make {LOCKS[name]} again: exit " in failure
