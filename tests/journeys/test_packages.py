"""The wheel and the sdist, installed by pip into bare environments, without a network."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import liza
from tests.conftest import git, variant

ROOT = Path(__file__).parents[2]
FILES = (
    "contracts/CORE.md",
    "contracts/MULTI_AGENT_MODE.md",
    "docs/reference/accounts.md",
    "examples/listing_model.py",
    "examples/worker.py",
    "specs/architecture/roles.md",
    "specs/protocols/task-lifecycle.md",
)
"""Some of the texts that Liza reads from its package."""
LIMIT = 300


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    """Run a command with this PATH; return its output. It has to exit with ``code``."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def required(name: str) -> Iterator[Distribution]:
    """Yield what a package of this environment needs, without extras: itself, and the same for each requirement."""
    packaging = pytest.importorskip("packaging.requirements")
    todo, done = [name], set()
    while todo:
        package = distribution(todo.pop())
        if package.name.lower() in done:
            continue
        done.add(package.name.lower())
        yield package
        for text in package.requires or ():
            requirement = packaging.Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)


def write_wheel(package: Distribution, directory: Path) -> None:
    """Write an installed package as a wheel again: its files as they are, without programs and bytecode."""
    (wheel_file,) = [file for file in package.files or () if file.name == "WHEEL"]
    tags = [line.removeprefix("Tag: ") for line in wheel_file.read_text().splitlines() if line.startswith("Tag: ")]
    pythons = ".".join(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    name = wheel_file.parent.name.removesuffix(".dist-info")
    with zipfile.ZipFile(directory / f"{name}-{pythons}-{tags[0].partition('-')[2]}.whl", "w") as wheel:
        for file in package.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in ("RECORD", "INSTALLER"):
                wheel.write(str(file.locate()), str(file))
        wheel.writestr(f"{wheel_file.parent}/RECORD", "")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist of Liza, and wheels of all that they need to be built and to run."""
    pytest.importorskip("hatchling", reason="the wheel's builder is not installed here")
    pytest.importorskip("ensurepip", reason="this Python creates no environments with pip")
    directory = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "hatchling", "build", "-d", directory, cwd=ROOT)
    for package in [*required("liza"), *required("hatchling")]:
        if package.name != "liza":
            write_wheel(package, directory)
    return directory


def test_a_wheel_carries_the_contracts_the_specs_and_the_presets(packages: Path) -> None:
    (wheel,) = packages.glob("liza-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"liza/_texts/{path}" for path in FILES} <= names
    assert [name for name in names if name.endswith("/presets.toml")]
    assert not [name for name in names if name.startswith(("tests/", ".liza-venv/"))]


def test_an_sdist_carries_the_tests_and_the_programs(packages: Path) -> None:
    (sdist,) = packages.glob("liza-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*FILES, "bin/test", "tests/conftest.py", "README.md", "CHANGELOG.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith((".git/", ".liza-venv/"))]


@pytest.mark.parametrize("kind", [".whl", variant(".tar.gz")])
def test_liza_runs_from_a_bare_environment(packages: Path, tmp_path: Path, kind: str) -> None:
    (package,) = packages.glob(f"liza-*{kind}")
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", environment, cwd=empty)
    program = environment / "bin" / "liza"
    pip = (environment / "bin" / "python", "-m", "pip")
    run(*pip, "install", "-q", "--no-compile", "--no-index", "--find-links", packages, package, cwd=empty)
    run(*pip, "check", cwd=empty)
    assert run(program, "--version", cwd=empty) == f"liza {liza.__version__}\n"
    assert "git" in run(program, "doctor", cwd=empty, code=5)
    assert "script" in run(program, "programs", "list", cwd=empty)
    assert not list(empty.iterdir())

    git(empty, "init", "-q")
    git(empty, "commit", "-q", "--allow-empty", "-m", "first")
    run(program, "init", "a goal", "--test", "true", "--no-proof", cwd=empty)
    run(program, "validate", cwd=empty)
    assert (empty / ".liza" / "contracts" / "CORE.md").is_file()
