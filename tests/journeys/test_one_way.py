"""Every git process and every lock of a command comes from its one module, through its library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def test_git_and_locks_have_one_way_each(crew: Crew, tmp_path: Path) -> None:
    directory = crew.work_by_hand("task-1")
    crew.add("task-2")
    traced = tmp_path / "traced"
    check_starts_and_locks("liza submit", directory, traced)
    crew.prepare("verdict", "approve", "good", "--task", "task-1")
    for command in (
        "liza claim task-2 --agent coder-2",
        "liza merge task-1",
        "liza status",
        "liza-agent coder-2 --program script:/bin/true --until-eof",
    ):
        check_starts_and_locks(command, crew.root, traced)


def check_starts_and_locks(command: str, directory: Path, traced: Path) -> None:
    """Run a command by itself; check where each of its git processes and locks comes from."""
    environ = {**os.environ, "TRACED": str(traced), "LIZA_COMMAND_SERVER": "0"}
    trace = [sys.executable, "-c", TRACE, *command.split()]
    done = subprocess.run(trace, cwd=directory, env=environ, stdin=subprocess.DEVNULL, check=False, timeout=120)
    assert done.returncode == 0, command
    starts, locks = json.loads(traced.read_text())
    assert starts, command
    for stack in starts:
        assert callers(stack, "git/git_start.py", "git/cmd.py")[:2] == ["git/git_start.py", "git/cmd.py"], stack
    assert locks or command == "liza status", command
    for stack in locks:
        assert callers(stack, "system/locks.py", "server_keeper.py"), stack
