"""Every git process and every lock of a command comes from its one module, through its library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.crews import Crew

TRACE = """
import atexit, json, os, sys, traceback
starts, locks = [], []
def hear(event, arguments):
    if event == "subprocess.Popen" and os.path.basename(os.fsdecode(arguments[0] or arguments[1][0])) == "git":
        starts.append([frame.filename for frame in traceback.extract_stack()])
    elif event == "fcntl.flock":
        locks.append([frame.filename for frame in traceback.extract_stack()])
sys.addaudithook(hear)
atexit.register(lambda: json.dump([starts, locks], open(os.environ["TRACED"], "w")))
from liza.cli import entry_points
sys.argv = sys.argv[1:]
sys.exit(entry_points.liza_agent() if sys.argv[0] == "liza-agent" else entry_points.liza())
"""


def callers(stack: list[str], *names: str) -> list[str]:
    """Return the innermost of these files in a stack, in order."""
    return [name for path in stack if (name := next((n for n in names if path.endswith(n)), ""))]


@pytest.mark.parametrize(
    "words",
    [
        ("liza", "claim", "task-2", "--agent", "coder-2"),
        ("liza", "submit"),
        ("liza", "merge", "task-1"),
        ("liza", "status"),
        ("liza-agent", "coder-2", "--program", "script:/bin/true", "--until-eof"),
    ],
)
def test_git_and_locks_have_one_way_each(crew: Crew, tmp_path: Path, words: tuple[str, ...]) -> None:
    place = crew.work_by_hand("task-1")
    crew.add("task-2")
    if words[1] == "merge":
        crew.liza("submit", cwd=place)
        crew.liza("verdict", "approve", "good", "--task", "task-1")
    environ = {**os.environ, "TRACED": str(tmp_path / "traced"), "LIZA_COMMAND_SERVER": "0"}
    directory = place if words[1] == "submit" else crew.root
    trace = [sys.executable, "-c", TRACE, *words]
    done = subprocess.run(trace, cwd=directory, env=environ, stdin=subprocess.DEVNULL, check=False, timeout=120)
    assert done.returncode == 0
    starts, locks = json.loads((tmp_path / "traced").read_text())
    assert starts
    for stack in starts:
        assert callers(stack, "git/git_start.py", "git/cmd.py")[:2] == ["git/git_start.py", "git/cmd.py"], stack
    if words[1] != "status":
        assert locks
    for stack in locks:
        assert callers(stack, "system/locks.py", "server_keeper.py"), stack
