"""The wheel, installed by uv, and the sdist, installed by pip, into bare environments, without a network."""

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
from tests.conftest import git

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
    """A directory with the wheel of Liza, and wheels of all that it needs to be built and to run."""
    pytest.importorskip("hatchling", reason="the wheel's builder is not installed here")
    directory = tmp_path_factory.mktemp("packages")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=ROOT)
    for package in [*required("liza"), *required("hatchling")]:
        if package.name != "liza":
            write_wheel(package, directory)
    return directory


@pytest.fixture(scope="module")
def sdist(packages: Path) -> Path:
    """The sdist of Liza, in the same directory."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", packages, cwd=ROOT)
    (sdist,) = packages.glob("liza-*.tar.gz")
    return sdist


def test_a_wheel_carries_the_contracts_the_specs_and_the_presets(packages: Path) -> None:
    (wheel,) = packages.glob("liza-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"liza/_texts/{path}" for path in FILES} <= names
    assert [name for name in names if name.endswith("/presets.toml")]
    assert not [name for name in names if name.startswith(("tests/", ".liza-venv/"))]


@pytest.mark.campaign
def test_an_sdist_carries_the_tests_and_the_programs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {*FILES, "bin/test", "tests/conftest.py", "README.md", "CHANGELOG.md", "LICENSE"} <= names
    assert not [name for name in names if name.startswith((".git/", ".liza-venv/"))]


@pytest.mark.needs("uv")
def test_liza_runs_from_a_wheel_in_a_bare_environment(packages: Path, tmp_path: Path) -> None:
    (wheel,) = packages.glob("liza-*.whl")
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=empty)
    python = ("--python", environment / "bin" / "python")
    run("uv", "pip", "install", "-q", *python, "--no-index", "--find-links", packages, wheel, cwd=empty)
    run("uv", "pip", "check", "-q", *python, cwd=empty)
    check_program(environment / "bin" / "liza", empty)


@pytest.mark.campaign
def test_liza_runs_from_an_sdist_that_pip_installed(packages: Path, sdist: Path, tmp_path: Path) -> None:
    pytest.importorskip("ensurepip", reason="this Python creates no environments with pip")
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", environment, cwd=empty)
    pip = (environment / "bin" / "python", "-m", "pip")
    run(*pip, "install", "-q", "--no-compile", "--no-index", "--find-links", packages, sdist, cwd=empty)
    run(*pip, "check", cwd=empty)
    check_program(environment / "bin" / "liza", empty)


def check_program(program: Path, empty: Path) -> None:
    """Run an installed ``liza`` in an empty directory, and then in a new repository there."""
    assert run(program, "--version", cwd=empty) == f"liza {liza.__version__}\n"
    assert "git" in run(program, "doctor", cwd=empty, code=5)
    assert "script" in run(program, "programs", "list", cwd=empty)
    assert not list(empty.iterdir())

    git(empty, "init", "-q")
    git(empty, "commit", "-q", "--allow-empty", "-m", "first")
    run(program, "init", "a goal", "--test", "true", "--no-proof", cwd=empty)
    run(program, "validate", cwd=empty)
    assert (empty / ".liza" / "contracts" / "CORE.md").is_file()
