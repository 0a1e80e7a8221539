"""What a project's own files say about how it is tested and set up."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from liza.rules.errors import LizaError


@dataclass(frozen=True)
class Detected:
    """A command, and the files that made us think so."""

    command: str
    because: tuple[str, ...]


def tests(root: Path) -> Detected | None:
    """The project's test command, or None where nothing tells."""
    if _package_script(root, "test"):
        return Detected("npm test", ("package.json",))
    if _make_target(root, "test"):
        return Detected("make test", ("Makefile",))
    if (root / "pytest.ini").is_file() or _mentions(root / "pyproject.toml", "pytest"):
        return Detected("python3 -m pytest -q", ("pyproject.toml",))
    if any((root / "tests").glob("test_*.py")):
        return Detected("python3 -m unittest discover -s tests -q", ("tests/",))
    for name, command in (("Cargo.toml", "cargo test"), ("go.mod", "go test ./..."), ("pom.xml", "mvn -q test")):
        if (root / name).is_file():
            return Detected(command, (name,))
    return None


def set_up(root: Path) -> Detected | None:
    """What must run once in a fresh checkout, or None."""
    for lock, command in (
        ("package-lock.json", "npm ci"),
        ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn install --frozen-lockfile"),
        ("uv.lock", "uv sync"),
        ("poetry.lock", "poetry install"),
    ):
        if (root / lock).is_file():
            return Detected(command, (lock,))
    return None


def _package_script(root: Path, name: str) -> bool:
    path = root / "package.json"
    if not path.is_file():
        return False
    try:
        scripts = json.loads(path.read_text(encoding="utf-8")).get("scripts", {})
    except (ValueError, AttributeError, UnicodeDecodeError) as wrong:
        raise LizaError(f"package.json cannot be read: {wrong}", "npm pkg fix") from wrong
    # What `npm init` writes is no test.
    return name in scripts and "no test specified" not in str(scripts[name])


def _make_target(root: Path, name: str) -> bool:
    path = root / "Makefile"
    return path.is_file() and any(line.startswith(f"{name}:") for line in path.read_text(errors="replace").splitlines())


def _mentions(path: Path, tool: str) -> bool:
    if not path.is_file():
        return False
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise LizaError(f"{path.name} cannot be read: {wrong}", f"python3 -m tomllib {path.name}") from wrong
    return (
        tool in str(found.get("tool", {}).keys())
        or tool in str(found.get("project", {}))
        or tool in str(found.get("dependency-groups", {}))
    )
