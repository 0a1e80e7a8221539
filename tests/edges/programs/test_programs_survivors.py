"""Killing a program does not stop its tools: each way in which agents left some, with a terminal and without.

Tools run in sessions of their own, as all of these programs start theirs.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.programs import liveness
from liza.programs.liveness import EndedSession, RunningSession, VanishedSession
from liza.programs.session import session_process
from liza.programs.terminal import tmux
from liza.system import processes
from tests.edges.programs.test_programs_session import Crew, until

TOOL = "setsid sleep 300 & tool=$!; echo $tool > {mark}; "
TREES = {
    # How it takes TERM: what it is, and how it ends when it is stopped: a code, or a signal.
    "ends its tool, then dies of it": (
        "trap 'kill $tool; trap - TERM; kill $$' TERM; " + TOOL + "wait",
        -signal.SIGTERM,
    ),
    "ends its tool, then has a code of its own": ("trap 'kill $tool; exit 3' TERM; " + TOOL + "wait", 3),
    "goes and leaves its tool": ("trap 'exit 143' TERM; " + TOOL + "wait", 143),
    "says 0 and leaves its tool": ("trap 'exit 0' TERM; " + TOOL + "wait", 0),
    "hears no TERM at all": ("trap '' TERM; " + TOOL + "wait; sleep 300", -signal.SIGKILL),
    "goes and leaves its real self and that one's tool": (
        """trap 'exit 143' TERM; sh -c "trap '' TERM; setsid sleep 300 & echo \\$! > {mark}; wait" & wait""",
        143,
    ),
    "gives its tool no environment": ("(env -i setsid sleep 300 & echo $! > {mark}); sleep 300", -signal.SIGTERM),
}


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    sockets = Path(tempfile.mkdtemp(prefix="tm"))
    monkeypatch.setenv("TMUX_TMPDIR", str(sockets))
    crew = Crew(tmp_path.resolve())
    yield crew
    for run in crew.made:
        session_process.stop(run.path, run.run, crew.root, grace=0)
    tmux.close_all_panes(crew.root)
    shutil.rmtree(sockets)


@pytest.fixture(params=["plain", pytest.param("terminal", marks=pytest.mark.needs("tmux"))])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def started(crew: Crew, kind: str, tree: str) -> tuple[RunningSession, int]:
    """A program of that kind, and the pid of its tool."""
    run, mark = crew.run(), crew.root / "tool"
    start = session_process.start if kind == "plain" else tmux.start
    words = ["sh", "-c", TREES[tree][0].replace("{mark}", str(mark))]
    living = start(run.path, words, crew.root, crew.env(run))
    assert isinstance(living, RunningSession), living
    until(lambda: mark.exists() and mark.read_text().strip(), "the tool runs")
    return living, int(mark.read_text())


def is_gone(pid: int) -> bool:
    return processes.identify_process(pid) is None


@pytest.mark.sample(4)
@pytest.mark.skipif(not processes.has_proc(), reason="there is no /proc here, and a group is all that can be ended")
@pytest.mark.parametrize("tree", TREES)
def test_a_stop_leaves_nothing_of_a_program_that(crew: Crew, kind: str, tree: str) -> None:
    _, tool = started(crew, kind, tree)
    run = crew.made[0]
    end = session_process.stop(run.path, run.run, crew.root, grace=1.0)
    assert isinstance(end, EndedSession)
    assert (end.code if end.signal is None else -end.signal) == TREES[tree][1]
    assert is_gone(tool)
    assert tuple(processes.iter_run_pids(run.run, crew.root)) == ()


@pytest.mark.skipif(not processes.has_proc(), reason="there is no /proc here")
def test_a_program_killed_with_its_group_leaves_no_tool(crew: Crew, kind: str) -> None:
    living, tool = started(crew, kind, "goes and leaves its tool")
    os.killpg(living.child.pid, signal.SIGKILL)
    end = session_process.wait_for_end(crew.made[0].path, 30.0)
    assert isinstance(end, EndedSession)
    assert (end.signal, end.strays) == (signal.SIGKILL, 1)
    assert is_gone(tool)


@pytest.mark.skipif(not processes.has_proc(), reason="there is no /proc here")
def test_a_killed_shim_ends_its_program_and_stop_its_tools(crew: Crew, kind: str) -> None:
    living, tool = started(crew, kind, "goes and leaves its tool")
    run = crew.made[0]
    os.kill(living.shim.pid, signal.SIGKILL)
    until(lambda: isinstance(liveness.read_state(run.path), VanishedSession), "both are gone")
    assert isinstance(session_process.stop(run.path, run.run, crew.root, grace=0), VanishedSession)
    assert is_gone(tool)
