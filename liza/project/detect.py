"""Detect the set-up and test commands of a project from its files."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from liza.git.runner import Git
from liza.model.errors import LizaError
from liza.project.rules import project_kinds
from liza.project.rules.project_kinds import REQUIREMENT_FILES, Project, ProjectFiles

_DEPENDENCY_FILES = (*REQUIREMENT_FILES, "setup.cfg", "tox.ini")
_PROJECT_FILES = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock",
    "pyproject.toml", "setup.py", "pytest.ini", "conftest.py", "tests/conftest.py", "uv.lock", "poetry.lock",
    "pdm.lock", "Pipfile.lock", "Cargo.toml", "go.mod", "pom.xml", "gradlew", "mix.exs", "Makefile", *_DEPENDENCY_FILES,
)  # fmt: skip
_MONOREPO_GROUPS = ("packages", "apps", "services", "libs")
"""Directories of a monorepo whose subdirectories are its parts."""
_MAX_PARTS = 8  # parts that are read
_MAX_TEST_FILES = 20  # files of tests that are read
_FOR_PYTEST = re.compile(r"(?m)^(?:async )?def test_|^\s*(?:import|from) pytest\b")
"""A test that unittest does not find, or that needs pytest."""


def read_project(root: Path, git: Git) -> Project:
    """Detect how the project is tested and set up. Raises LizaError for a file that cannot be parsed, GitFailed."""
    facts = _read_files(root, git)
    project = project_kinds.detect_project(facts)
    if project.test is not None:
        return project
    parts = {str(path.relative_to(root)): _read_files(path, git) for path in _find_parts(root, git)}
    return project_kinds.detect_project(facts, parts)


def read_directory(directory: Path, git: Git) -> Project:
    """Detect the commands of one directory of the project. Raises LizaError for a file that cannot be parsed."""
    return project_kinds.detect_project(_read_files(directory, git))


def find_submodules(git: Git) -> tuple[str, ...]:
    """Paths of the submodules in the index. Raises GitFailed."""
    lines = git.names("ls-files", "-s", "-z")
    return tuple(line.partition("\t")[2] for line in lines if line.startswith("160000 "))


def _read_files(root: Path, git: Git) -> ProjectFiles:
    files = frozenset(name for name in _PROJECT_FILES if (root / name).is_file())
    at_top = root == git.directory
    tests = sorted(path for path in (root / "tests").glob("test_*.py") if path.is_file())
    return ProjectFiles(
        files=files,
        package_json=_read_package_json(root / "package.json") if "package.json" in files else {},
        pyproject=_read_pyproject(root / "pyproject.toml") if "pyproject.toml" in files else {},
        makefile=_text(root / "Makefile") if "Makefile" in files else "",
        requirements="\n".join(_text(root / name) for name in _DEPENDENCY_FILES if name in files),
        python_tests=bool(tests),
        pytest_tests=any(_FOR_PYTEST.search(_text(path)) for path in tests[:_MAX_TEST_FILES]),
        submodules=find_submodules(git) if at_top and (root / ".gitmodules").is_file() else (),
        ignored_venv=git.ok("check-ignore", "-q", str(root / ".venv" / "x")),
    )


def _find_parts(root: Path, git: Git) -> Iterator[Path]:
    """Directories with tracked files and a project file: one level down, or two levels below _MONOREPO_GROUPS."""
    names = {Path(name) for name in git.names("ls-files", "-z")}
    top_level = {name.parts[0] for name in names if len(name.parts) > 1}
    second_level = {
        "/".join(name.parts[:2]) for name in names if len(name.parts) > 2 and name.parts[0] in _MONOREPO_GROUPS
    }
    directories = sorted(
        name for name in (*top_level, *second_level) if not name.startswith(".") and name not in _MONOREPO_GROUPS
    )
    parts = (root / path for path in directories if any((root / path / name).is_file() for name in _PROJECT_FILES))
    yield from list(parts)[:_MAX_PARTS]


def _text(path: Path, encoding: str | None = None) -> str:
    """Read a text. Raises LizaError if the file cannot be read, UnicodeDecodeError if ``encoding`` does not match."""
    try:
        return path.read_text(encoding=encoding or "utf-8", errors="strict" if encoding else "replace")
    except OSError as error:
        reason = error.strerror or error
        raise LizaError(f"{path.name} cannot be read: {reason}", f"ls -lL {shlex.quote(str(path))}") from error


def _read_package_json(path: Path) -> Mapping[str, Any]:
    try:
        package = json.loads(_text(path, "utf-8"))
        package.get("scripts", {})
    except (ValueError, AttributeError, UnicodeDecodeError, RecursionError) as error:
        raise LizaError(f"package.json cannot be read: {error}", "npm pkg fix") from error
    return dict(package)


def _read_pyproject(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(path, "utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LizaError(f"{path.name} cannot be read: {error}", f"python3 -m tomllib {path.name}") from error
