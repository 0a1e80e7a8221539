"""Detect the set-up and test commands of a project, and its environments of packages, from its files."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from liza.config.rules import test_proof
from liza.git.runner import Git
from liza.model import clean_environment
from liza.model.clean_environment import RemovedVariable
from liza.model.errors import LizaError
from liza.model.value_classes import Value, replace
from liza.project.rules import project_kinds
from liza.project.rules.project_kinds import REQUIREMENT_FILES, Project, ProjectCommand, ProjectFiles

_DEPENDENCY_FILES = (*REQUIREMENT_FILES, "setup.cfg", "tox.ini")
_PROJECT_FILES = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock",
    "pyproject.toml", "setup.py", "pytest.ini", "conftest.py", "tests/conftest.py", "tests/__init__.py", "uv.lock",
    "poetry.lock", "pdm.lock", "Pipfile.lock", "Cargo.toml", "go.mod", "pom.xml", "gradlew", "mix.exs", "Makefile",
    *_DEPENDENCY_FILES,
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


_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_MAX_BYTES = 1 << 20  # bytes of a file that are searched for a path


class OtherCopy(Value):
    """Files outside of a worktree that tests there may load instead of its sources.

    ``text`` says where they are. ``directory``: the directory of the checkout that they are, or were made from.
    ``sources``: the sources that have a copy; empty for all below ``directory``.
    """

    text: str
    directory: Path
    sources: tuple[str, ...] = ()

    def choose_sources(self, names: Iterable[str], root: Path) -> frozenset[str]:
        """Return those of the sources of the checkout ``root`` that have a copy here."""
        return frozenset(self.sources or (name for name in names if (root / name).is_relative_to(self.directory)))


def find_checkout_links(environment: Path, root: Path) -> tuple[OtherCopy, ...]:
    """Find the files of an environment that make Python import from ``root`` or from an installed copy of it.

    Without any, the environment holds only dependencies.
    """
    root_path = root.resolve()
    links = []
    for site in _find_sites(environment):
        for name, target in _import_targets(site):
            real = Path(os.path.realpath(site / target))
            if real.is_relative_to(root_path) and not real.is_relative_to(environment.resolve()):
                links.append(OtherCopy(f"{name} leads to {real}", real))
    return tuple(dict.fromkeys(links))


def find_other_copies(
    slot: Path, root: Path, programs: Iterable[Path], sources: Collection[str], tracked: Iterable[str]
) -> tuple[OtherCopy, ...]:
    """Return what tests in a slot may load instead of its ``sources``, by the environments of ``programs`` and by the
    packages of Node above the slot. An environment in the slot is the work of its set-up.

    The slot has the sources as they are.
    """
    slot, root = slot.resolve(), root.resolve()
    suffixes = test_proof.installed_suffixes(sources, tracked)
    prefixes = dict.fromkeys(program.parent.parent for program in programs if program.parent.name == "bin")
    copies: list[OtherCopy] = []
    for prefix in prefixes:
        if prefix.resolve().is_relative_to(slot):
            continue
        links = find_checkout_links(prefix, root)
        copies += [
            replace(link, text=f"{prefix}: {link.text}") for link in links if not link.directory.is_relative_to(slot)
        ]
        for site in _find_sites(prefix):
            installed = sorted(suffix for suffix in suffixes if (site / suffix).is_file())
            copied = {name: site / end for end in installed for name in sources if f"/{name}".endswith(f"/{end}")}
            # Another package can have the name of one of the project, but none of its files.
            if any(_is_same(slot / name, file) for name, file in copied.items()):
                copies.append(OtherCopy(f"the installed {next(iter(copied.values()))}", root, tuple(copied)))
    modules = tuple(name for name in sources if name.endswith(_NODE_SUFFIXES))
    return (*copies, *(_find_linked_packages(slot, root, modules) if modules else ()))


def _find_linked_packages(slot: Path, root: Path, modules: Sequence[str]) -> Iterator[OtherCopy]:
    for directory in (slot, *slot.parents):
        packages = directory / "node_modules"
        for link in sorted((*packages.glob("*"), *packages.glob("@*/*"))):
            real = link.resolve()
            if real.is_relative_to(root) and not real.is_relative_to(slot) and "node_modules" not in real.parts:
                below = tuple(name for name in modules if (root / name).is_relative_to(real))
                yield OtherCopy(f"{link} leads to {real}", real, below)


def _is_same(source: Path, file: Path) -> bool:
    text = _read_start(source)
    return bool(text.strip()) and _read_start(file) == text


def _find_sites(environment: Path) -> list[Path]:
    return sorted(environment.glob("lib*/python3*/*-packages"))


def _import_targets(site: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(site.glob("*.pth")):
        lines = _read_start(path).splitlines()
        yield from (
            (path.name, line.strip()) for line in lines if line.strip() and not line.startswith(("import", "#"))
        )
    for path in sorted(site.glob("*.egg-link")):
        yield path.name, _read_start(path).partition("\n")[0].strip()
    for path in sorted(site.glob("__editable___*_finder.py")):
        yield from ((path.name, target) for target in _finder_directories(_read_start(path)))
    for path in sorted(site.glob("*.dist-info/direct_url.json")):
        target = install_source(path.parent)
        if target is not None:
            yield f"{path.parent.name}/{path.name}", str(target)


def install_source(info: Path) -> Path | None:
    """Directory that a distribution was installed from, or None; ``info`` is its ``.dist-info`` directory."""
    try:
        url = urlsplit(json.loads(_read_start(info / "direct_url.json"))["url"])
    except (ValueError, KeyError, TypeError):
        return None
    return Path(os.path.realpath(unquote(url.path))) if url.scheme == "file" else None


def _finder_directories(finder: str) -> Iterator[str]:
    """Directories in the MAPPING table of an editable install's finder module."""
    for line in finder.splitlines():
        name, _, table = line.partition("=")
        if name.partition(":")[0].strip() == "MAPPING":
            try:
                mapping = ast.literal_eval(table.strip())
            except (ValueError, SyntaxError):
                return
            yield from (str(directory) for directory in mapping.values())


def _read_start(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def describe_removed(removed: tuple[RemovedVariable, ...]) -> str:
    """Describe the removed variables and PATH entries in one line."""
    entries = [f"{variable.value or '(empty)'} ({variable.why})" for variable in removed if variable.name == "PATH"]
    others = [variable.name for variable in removed if variable.name != "PATH"]
    path = f"from PATH {', '.join(dict.fromkeys(entries))}" if entries else ""
    return "; ".join(filter(None, (", ".join(dict.fromkeys(others)), path)))


def usable_environment(root: Path, setup: ProjectCommand | None) -> tuple[str | None, str]:
    """Return the activated environment if it can be used, else None and the reason.

    It can be used if it holds dependencies only and no set-up creates another.
    """
    active = clean_environment.active_environment(os.environ)
    if active is None:
        return None, ""
    if setup is not None:
        return None, f"{active} is activated but not used: the set-up creates the environment"
    links = find_checkout_links(Path(active), root)
    if links:
        return None, f"{active} is activated but not used: it has this checkout installed ({links[0].text})"
    return active, ""
