"""A program that is tried in a project of its own, and whoever tries it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from liza.system.processes import find_descendants, identify_process
from tests.conftest import variant
from tests.journeys.crews import BIN, LIMIT, Crew


def is_command_server(pid: int) -> bool:
    return b"liza.cli.server" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGHUP, variant(signal.SIGKILL)])
def test_a_killed_program_check_leaves_no_process(crew: Crew, tmp_path: Path, number: signal.Signals) -> None:
    program = crew.script("endless", 'echo $$ $PPID > "$NOTES/pids"\nexec sleep 600\n')
    temp = tmp_path / "temp"
    temp.mkdir()
    words = [str(BIN / "liza"), "programs", "check", program]
    env = {**os.environ, "TMPDIR": str(temp)}
    child = subprocess.Popen(words, cwd=crew.root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    crew.children.append(child)
    made = [int(pid) for pid in crew.wait_note("pids").split()]
    this = identify_process(child.pid)
    assert this is not None
    started = [*made, *(pid for pid in find_descendants(this) if not is_command_server(pid))]
    child.send_signal(number)
    crew.wait(lambda _: not any(map(identify_process, started)), "the end of the supervisor and its session")
    child.wait(timeout=LIMIT)
