"""Tests that behave differently where CI is set run in gates and sessions as they are green at `liza init`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import commit_all, git
from tests.journeys.crews import APPROVE, WORK, Crew

WANTS_TOKEN = '[ -z "${CI:-}" ] || { echo no token; exit 1; }\n'
WANTS_CI = '[ "${CI:-}" = true ] || { echo this is no CI; exit 1; }\n'
RED = "echo red; exit 1\n"


def begun(tmp_path: Path, script: str, code: int = 0) -> tuple[Crew, str]:
    root = tmp_path / "project"
    (tmp_path / "notes").mkdir()
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("# A project\n")
    (root / "run-tests").write_text(f'#!/bin/sh\necho "${{CI-none}}" >> {tmp_path}/seen\n{script}')
    (root / "run-tests").chmod(0o755)
    commit_all(root, "first")
    crew = Crew(root, tmp_path / "notes")
    # A set-up gets no variables of gates: CI changes what package managers install.
    setup = '[ -z "${CI:-}" ]'
    return crew, crew.liza("init", "Everything is there", "--test", "./run-tests", "--setup", setup, code=code)


def merge_one(crew: Crew) -> str:
    """Let scripted agents do one task. Return what the coder saw as CI."""
    crew.configure(restart_after_crash=0.05, restart_after_handoff=0.05, grace=1)
    crew.add("a")
    try:
        crew.agent("coder-1", crew.script("coder", f'echo "${{CI-none}}" > "$NOTES/ci"\n{WORK}'))
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE, ready=False))
        crew.wait_status("a", "MERGED")
    finally:
        crew.clean()
    assert crew.task("a").tested is True
    return (crew.notes / "ci").read_text().strip()


@pytest.mark.campaign
def test_gates_and_sessions_run_with_ci(tmp_path: Path) -> None:
    crew, said = begun(tmp_path, WANTS_CI)
    assert "config.gate_environment" not in said
    assert merge_one(crew) == "true"
    assert (tmp_path / "seen").read_text().split() == ["true", "true"]


@pytest.mark.campaign
def test_tests_that_are_red_with_ci_go_on_without_it(tmp_path: Path) -> None:
    crew, said = begun(tmp_path, WANTS_TOKEN)
    assert "variables the tests are red with CI=true: gates and sessions go without (config.gate_environment)" in said
    assert crew.state().config.gate_environment == ()
    assert merge_one(crew) == "none"
    # The first two runs are with a brief and without the variables, two more find which of them is the cause.
    assert (tmp_path / "seen").read_text().split() == ["true", "none", "true", "none", "none"]


def test_tests_that_are_red_either_way_are_refused(tmp_path: Path) -> None:
    crew, told = begun(tmp_path, RED, code=1)
    assert "the tests are red on integration: ./run-tests" in told
    assert (tmp_path / "seen").read_text().split() == ["true", "none"]
    assert not crew.paths.state.exists()


def test_a_variable_that_would_redirect_git_is_refused(tmp_path: Path) -> None:
    crew, _ = begun(tmp_path, "true\n")
    refused = crew.liza("config", "set", "gate_environment", "CI=true,GIT_DIR=/x", code=2)
    assert "config.gate_environment is 'GIT_DIR', expected NAME=VALUE" in refused
    crew.liza("config", "set", "gate_environment", "CI=true,MODE=test")
    assert crew.state().config.gate_environment == ("CI=true", "MODE=test")
