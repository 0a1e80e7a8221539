"""The PATH of the tests themselves: no program of this machine changes what they see."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.tools import OPTIONAL, Tools, need_variable

UNNAMED = ("gh", "glab", "docker", "poetry", "pnpm", "claude", "codex")


def program(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def make_tools(directory: Path, **environ: str) -> Tools:
    directory.mkdir()
    return Tools(directory, environ)


def test_tests_find_only_the_optional_programs_they_name() -> None:
    assert [name for name in (*OPTIONAL, *UNNAMED) if shutil.which(name)] == []


@pytest.mark.needs("less")
def test_a_test_finds_the_optional_program_that_it_names() -> None:
    assert [name for name in OPTIONAL if shutil.which(name)] == ["less"]


def test_a_program_that_does_not_run_counts_as_missing(tmp_path: Path) -> None:
    shim = program(tmp_path / "shims", "uv", "echo uv: not found >&2; exit 127")
    real = program(tmp_path / "bin", "uv", "echo uv 1")
    with pytest.raises(pytest.skip.Exception, match=f"needs uv .fails: {shim} --version"):
        make_tools(tmp_path / "first", PATH=str(shim.parent)).require(["uv"])
    path = make_tools(tmp_path / "second", PATH=f"{shim.parent}:{real.parent}").require(["uv"])
    assert Path(shutil.which("uv", path=path) or "").resolve() == real


def test_a_missing_program_skips_or_fails_its_tests(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^needs tmux$"):
        make_tools(tmp_path / "first", PATH=str(tmp_path)).require(["tmux"])
    with pytest.raises(pytest.fail.Exception, match="needs git-lfs: LIZA_NEED_GIT_LFS is set"):
        make_tools(tmp_path / "second", PATH=str(tmp_path), LIZA_NEED_GIT_LFS="yes").require(["git-lfs"])


def test_the_build_server_skips_no_test_for_a_missing_program() -> None:
    text = (Path(__file__).parents[3] / ".ci" / "run").read_text()
    (names,) = re.findall(r"^for program in (.*); do$", text, re.M)
    assert {f"LIZA_NEED_{name}" for name in names.split()} == set(map(need_variable, OPTIONAL))
