"""What the set-up leaves in a worktree, and git does not ignore, never comes into the work of an agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import commit_all, git, worktree_of
from tests.journeys.crews import APPROVE, BIN, Crew

SET_UP = (
    f"{sys.executable} -m venv --without-pip .venv && echo token > loose.json"
    " && mkdir -p hooks.d && echo '*' > hooks.d/.gitignore"  # ignores itself: git shows nothing of it
)
CODER = """\
echo x > "$LIZA_TASK.txt"
git status --porcelain > "$NOTES/status"
git add .
git add -A
git commit -q -m "$LIZA_TASK"
liza submit > "$NOTES/submitted"
"""


def type_command(command: str, directory: Path) -> None:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", command], cwd=directory, env=env, check=True)


def begun(tmp_path: Path, *options: str) -> tuple[Crew, str]:
    root = tmp_path / "project"
    (tmp_path / "notes").mkdir()
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("# A project\n")
    # The environment must be there, and what the tests leave must not.
    (root / "run-tests").write_text("#!/bin/sh\ntest -f .venv/pyvenv.cfg && test -f loose.json && mkdir left.d\n")
    (root / "run-tests").chmod(0o755)
    commit_all(root, "first")
    crew = Crew(root, tmp_path / "notes")
    return crew, crew.liza("init", "Everything is there", "--test", "./run-tests", "--setup", SET_UP, *options)


@pytest.mark.parametrize(
    "confinement", ["off", pytest.param("required", marks=[pytest.mark.needs("bwrap"), pytest.mark.campaign])]
)
def test_a_virtual_environment_of_the_set_up_is_never_merged(tmp_path: Path, confinement: str) -> None:
    shared = ("--share", str(tmp_path / "notes")) if confinement == "required" else ()
    crew, said = begun(tmp_path, "--confinement", confinement, *shared)
    assert (
        "left      .venv/, loose.json by the set-up, which git does not ignore: hidden from git in each worktree"
        in said
    )
    crew.configure(restart_after_crash=0.05, restart_after_handoff=0.05, grace=1)
    exclude = (crew.root / ".git" / "info" / "exclude").read_bytes()
    crew.add("a")
    crew.add("b", depends_on="a")
    try:
        crew.agent("coder-1", crew.script("coder", CODER))
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE, ready=False))
        for task in ("a", "b"):
            crew.wait_status(task, "MERGED")
    finally:
        crew.clean()
    assert crew.task("b").tested is True
    assert (crew.notes / "status").read_text().split() == ["??", "b.txt"]
    assert crew.git("ls-tree", "-r", "--name-only", "integration").split() == [
        "README.md",
        "a.txt",
        "b.txt",
        "run-tests",
    ]
    assert (crew.root / ".git" / "info" / "exclude").read_bytes() == exclude
    (crew.root / "loose.json").touch()
    assert crew.git("status", "--porcelain") == "?? loose.json"
    assert crew.git("for-each-ref", "refs/liza/salvage") == ""


@pytest.mark.campaign
def test_the_hint_of_a_submission_with_an_environment_works(tmp_path: Path) -> None:
    crew, _ = begun(tmp_path)
    crew.add("a")
    crew.liza("claim", "a", "--agent", "coder-1")
    there = worktree_of(crew.root, "a")
    type_command(SET_UP, there)
    (there / "a.txt").touch()
    refused = crew.liza("submit", code=1, cwd=there)
    assert "next: echo '*' > .venv/.gitignore && git add -A && git commit" in refused
    type_command("git add -A && git commit -q -m a", there)
    refused = crew.liza("submit", code=1, cwd=there)
    assert "the commit adds .venv (" in refused
    assert "it is a virtual environment" in refused
    type_command(refused.split("next: ", 1)[1], there)  # its last command is `liza submit`
    assert crew.status("a") == "READY_FOR_REVIEW"
    assert ".venv" not in crew.git("ls-tree", "-r", "--name-only", "task/a")
    assert (there / ".venv" / "pyvenv.cfg").exists()

    crew.add("nested", scope="nested.txt")
    crew.liza("claim", "nested", "--agent", "coder-3")
    there = worktree_of(crew.root, "nested")
    type_command("mkdir lib && touch lib/x && git -C lib init -q && git -C lib add x && git -C lib commit -qm x", there)
    type_command("git add -A && git commit -q -m nested", there)
    refused = crew.liza("submit", code=1, cwd=there)
    assert "the commit adds lib (1 file): it is a git repository of its own" in refused
    type_command(refused.split("next: ", 1)[1], there)
    assert "lib/x" in crew.git("ls-tree", "-r", "--name-only", "task/nested")

    crew.add("allowed", scope="allowed.txt and .venv")
    crew.liza("claim", "allowed", "--agent", "coder-2")
    there = worktree_of(crew.root, "allowed")
    type_command(f"{SET_UP} && git add -A && git commit -q -m x", there)
    shown = crew.liza("submit", cwd=there)
    assert "outside the scope: 1 file (loose.json 1)" in shown
    assert crew.status("allowed") == "READY_FOR_REVIEW"
