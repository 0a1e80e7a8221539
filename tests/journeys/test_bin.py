"""The programs of a checkout, in a small checkout of its own: real environments, and no package index."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("sh", "cksum", "dirname", "readlink", "git")
PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "liza"
version = "0"

[dependency-groups]
dev = [{dev}]
"""
# Builds an editable wheel with the standard library alone. Each command says its name and arguments, and fails when
# FAILS names it.
BACKEND = """\
import base64, hashlib, pathlib, zipfile
COMMANDS = ("liza", "liza-agent", "ruff", "mypy", "lint-imports", "pytest", "sphinx-build")

def build_editable(directory, config_settings=None, metadata_directory=None):
    files = {
        "liza.pth": str(pathlib.Path.cwd()),
        "liza-0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: liza\\nVersion: 0\\n",
        "liza-0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "liza-0.dist-info/entry_points.txt": "[console_scripts]\\n" + "".join(f"{n} = said:main\\n" for n in COMMANDS),
    }
    files["liza-0.dist-info/RECORD"] = "".join(f"{n},,\\n" for n in [*files, "liza-0.dist-info/RECORD"])
    name = "liza-0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""
SAID = """\
import os, pathlib, sys

def main():
    name = pathlib.Path(sys.argv[0]).name
    print("said:", " ".join([name, *sys.argv[1:]]), flush=True)
    return 1 if os.environ.get("FAILS") == name else 0
"""


class Checkout:
    """A checkout with the real ``bin/``, a project without needs, and a PATH without anything else."""

    def __init__(self, root: Path, path: Path, python: Path = Path(sys.executable)) -> None:
        self.root, self.path = root, path
        shutil.copytree(ROOT / "bin", root / "bin", ignore=shutil.ignore_patterns("__pycache__"))
        self.needs()
        (root / "backend.py").write_text(BACKEND)
        (root / "said.py").write_text(SAID)
        path.mkdir()
        for tool in TOOLS:
            (path / tool).symlink_to(str(shutil.which(tool)))
        (path / "python3").symlink_to(python.resolve())

    def needs(self, dev: str = "") -> None:
        (self.root / "pyproject.toml").write_text(PYPROJECT.format(dev=dev))

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LC_ALL", "TZ")}
        return {**kept, "PATH": str(self.path), "PIP_NO_INDEX": "1", **(more or {})}

    def start(self, *words: str, program: Path | None = None, **more: str) -> subprocess.Popen[str]:
        argv = [str(program or self.root / "bin" / "liza"), *words]
        return subprocess.Popen(
            argv,
            env=self.environ(more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, program: Path | None = None, **more: str) -> tuple[int, str, str]:
        process = self.start(*words, program=program, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def environments(self) -> list[Path]:
        return sorted(path for path in (self.root / ".liza-venv").iterdir() if path.is_dir())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "check out", tmp_path / "path")


def until(condition: Callable[[], bool], limit: float = 60) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


def kill_but_leave_its_steps(process: subprocess.Popen[str]) -> None:
    """kill -9 for the program and the process that it waits for; venv or pip below that one go on by themselves."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if children.exists():
        for pid in [*map(int, children.read_text().split()), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait()
    else:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.campaign
def test_the_first_run_creates_an_environment_that_later_ones_reuse(checkout: Checkout, tmp_path: Path) -> None:
    checkout.needs(dev='"no-such-package-anywhere"')
    code, out, err = checkout.run("status", "a b")
    assert (code, out) == (0, "said: liza status a b\n")
    assert err.count("\n") == 1
    assert "making a private Python environment" in err
    assert checkout.run("--version") == (0, "said: liza --version\n", "")
    assert checkout.run("--version", PYTHONHOME="/nonexistent") == (0, "said: liza --version\n", "")

    agent = checkout.root / "bin" / "liza-agent"
    assert checkout.run("coder-1", program=agent) == (0, "said: liza-agent coder-1\n", "")

    link = tmp_path / "link"
    link.symlink_to("path/second")
    (checkout.path / "second").symlink_to(checkout.root / "bin" / "liza")
    assert checkout.run("x", program=link) == (0, "said: liza x\n", "")

    code, _, err = checkout.run(program=checkout.root / "bin" / "test")
    assert code == 1, "a package that cannot be had"
    assert "no-such-package-anywhere" in err
    assert "set-up failed" in err
    assert not list((checkout.root / ".liza-venv").glob("*/stamp-test"))
    assert checkout.run("y") == (0, "said: liza y\n", "")


@pytest.mark.campaign
def test_an_interrupted_or_moved_environment_is_made_again_once(
    checkout: Checkout,
) -> None:
    process = checkout.start()
    home = checkout.root / ".liza-venv"
    until(lambda: any(home.glob("*/pyvenv.cfg")))
    kill_but_leave_its_steps(process)
    assert not list(home.glob("*/stamp-*"))

    processes = [checkout.start(str(number)) for number in range(3)]
    ends = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [out for out, _ in ends] == [f"said: liza {number}\n" for number in range(3)]
    assert sum(err.count("making a private") for _, err in ends) == 1

    checkout.root = checkout.root.rename(checkout.root.parent / "elsewhere")
    code, out, err = checkout.run()
    assert (code, out, err.count("making")) == (0, "said: liza\n", 1)


def test_a_python_that_is_too_old_is_named_with_version(checkout: Checkout) -> None:
    (checkout.path / "python3").unlink()
    (checkout.path / "python3").write_text("#!/bin/sh\necho 3.9.2\n")
    (checkout.path / "python3").chmod(0o755)
    code, out, err = checkout.run()
    assert (code, out) == (5, "")
    assert "Python 3.11 or newer is needed; found: 3.9.2" in err


def test_without_any_python_the_programs_report_that(checkout: Checkout) -> None:
    (checkout.path / "python3").unlink()
    code, _, err = checkout.run()
    assert code == 5
    assert "found: none" in err


def test_debians_missing_package_is_named_when_python_cannot_make_environments(checkout: Checkout) -> None:
    python = checkout.path / "python3"
    real = python.resolve()
    python.unlink()
    hide = (
        f"import runpy, sys; sys.modules['ensurepip'] = None; sys.executable = '{python}'; "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    python.write_text(
        f"""#!/bin/sh
case $1$2 in
  -I-m) echo "No module named $3" >&2; exit 1 ;;
  -I*) shift; exec {real} -I -c "{hide}" "$@" ;;
  *) exec {real} "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    code, _, err = checkout.run()
    assert code == 5
    assert "no ensurepip" in err
    assert f"apt install python3.{sys.version_info.minor}-venv" in err


def test_without_git_nothing_is_made(checkout: Checkout) -> None:
    (checkout.path / "git").unlink()
    code, _, err = checkout.run()
    assert code == 5
    assert "git is not installed" in err
    assert not (checkout.root / ".liza-venv").exists()


@pytest.mark.campaign
def test_the_test_program_runs_every_check_and_fails_with_any(
    checkout: Checkout,
) -> None:
    program = checkout.root / "bin" / "test"
    code, out, _ = checkout.run(program=program)
    assert code == 0
    said = [line for line in out.splitlines() if line.startswith("said: ")]
    checks = ["ruff", "ruff", "pytest", "pytest", "mypy", "lint-imports", "sphinx-build"]
    assert [line.split()[1] for line in said] == checks

    code, out, _ = checkout.run(program=program, FAILS="mypy")
    assert code == 1
    assert "FAILED  types" in out
    assert "ok      tests" in out

    assert checkout.run("-k", "a b", program=program)[:2] == (
        0,
        "said: pytest -n 4 -m not campaign and not real -k a b\n",
    )
    assert checkout.run("--campaign", program=program)[:2] == (0, "said: pytest -n 4 --dist worksteal -m campaign\n")
    assert checkout.run("-x", program=program, FAILS="pytest")[0] == 1

    (first,) = checkout.environments()
    checkout.needs(dev='"something-else"')
    code, out, err = checkout.run()
    assert (code, err.count("making")) == (0, 1)
    assert first in checkout.environments()
    assert len(checkout.environments()) == 2


@pytest.mark.needs("uv")
def test_uv_makes_the_environment_where_it_is_installed(checkout: Checkout) -> None:
    code, out, err = checkout.run(UV_OFFLINE="1", PATH=f"{checkout.path}:{os.environ['PATH']}")
    assert (code, out, err.count("\n")) == (0, "said: liza\n", 1)
    (made,) = checkout.environments()
    assert "uv" in (made / "pyvenv.cfg").read_text()
