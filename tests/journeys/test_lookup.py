"""The programs that Liza runs itself are the machine's, whatever lies in the directory that it works in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from liza.system.installation import liza_argv
from tests.conftest import commit_all, variant
from tests.journeys.crews import Crew

PATHS = {
    "relative": "./bin-of-the-project:{path}",
    "current directory": ".:{path}",
    "empty": ":{path}:",
    "absolute, in the worktree": "{worktree}/bin-of-the-project:{path}",
    "absolute, in the slot": "{slot}/bin-of-the-project:{path}",
}
ALWAYS = ("absolute, in the worktree",)


def planted(place: Path, seen: Path) -> None:
    """Programs in a directory that write down that they ran."""
    place.mkdir(exist_ok=True)
    for name in ("git", "env", "sh", "tmux", "ps"):
        (place / name).write_text(f"#!/bin/sh\necho {name} >> {seen}\nexit 1\n")
        (place / name).chmod(0o755)


ROWS = [path if name in ALWAYS else variant(path, name=name) for name, path in PATHS.items()]


@pytest.mark.parametrize("path", ROWS)
def test_no_command_runs_programs_that_agents_commit(crew: Crew, path: str) -> None:
    there = crew.work_by_hand("task-1")
    seen = crew.notes / "ran"
    for place in (there, there / "bin-of-the-project", crew.root, crew.root / "bin-of-the-project"):
        planted(place, seen)
    commit_all(there, "programs")
    # GIT_TRACE is one that the runner clears, for which it needs env(1).
    odd = {"PATH": path.format(path=os.environ["PATH"], worktree=there, slot=there.resolve()), "GIT_TRACE": "0"}
    crew.liza("submit", cwd=there, **odd)
    crew.liza("status", cwd=there, **odd)
    crew.liza("verdict", "approve", "good", "--task", "task-1", cwd=there, **odd)
    crew.liza("diff", "task-1", cwd=there, **odd)
    crew.liza("merge", "task-1", **odd)
    assert crew.status("task-1") == "MERGED"
    assert not seen.exists(), seen.read_text()


def test_liza_imports_no_module_from_the_persons_checkout(crew: Crew) -> None:
    (crew.root / "msgspec.py").write_text(f"open({str(crew.notes / 'ran')!r}, 'w')\n")
    done = subprocess.run([*liza_argv(), "status"], cwd=crew.root, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert not (crew.notes / "ran").exists()
