"""A crew starts one merger for each task, and a killed supervisor or merger leaves a crew that merges."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from liza.system.locks import last_holder_pid
from tests.conftest import until
from tests.journeys.crews import APPROVE, WORK, Crew, started

AGENTS = ("coder-1", "coder-2", "coder-3", "code-reviewer-1", "code-reviewer-2")


def _start_all(crew: Crew) -> None:
    for agent in AGENTS:
        name = "reviewer" if "reviewer" in agent else "coder"
        crew.agent(agent, crew.script(name, APPROVE if name == "reviewer" else WORK))
    for agent in AGENTS:
        crew.wait_supervised(agent)


def _merger_starts(trace: Path) -> int:
    return sum(line.endswith(" spawned.job") for line in trace.read_text().splitlines())


@pytest.mark.campaign
def test_a_crew_starts_one_merger_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace"
    monkeypatch.setenv("LIZA_FAULT_TRACE", str(trace))
    # Without the poll, a wake-up that is lost is not made good: the test then fails.
    with started(tmp_path, poll_interval=3600) as crew:
        _start_all(crew)
        tasks = [f"task-{number}" for number in range(1, 5)]
        crew.add(*tasks)
        crew.wait(lambda state: all(task.status == "MERGED" for task in state.tasks), "all tasks merged")
        # Tasks that are approved while a merger works are one batch of the next.
        assert 1 <= _merger_starts(trace) <= len(tasks)


@pytest.mark.campaign
def test_a_supervisor_killed_while_starting_its_merger_stops_no_merging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, poll_interval=1) as crew:
        there = crew.work_by_hand("task-1")
        crew.prepare("submit", cwd=there)
        crew.prepare("verdict", "approve", "fine", "--task", "task-1")
        monkeypatch.setenv("LIZA_FAULT", "spawned.job")
        victim = crew.agent("coder-1", crew.script("coder", WORK))
        assert victim.wait_gone() == -signal.SIGKILL
        monkeypatch.delenv("LIZA_FAULT")
        crew.agent("coder-2", crew.script("coder", WORK))
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
        crew.add("task-2")
        crew.wait_status("task-1", "MERGED")
        crew.wait_status("task-2", "MERGED")


def test_a_merger_without_its_supervisor_wakes_others_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the poll, a wake-up that is lost is not made good.
    with started(tmp_path, poll_interval=3600) as crew:
        for task in ("task-1", "task-2"):
            there = crew.work_by_hand(task)
            crew.prepare("submit", cwd=there)
            crew.prepare("verdict", "approve", "fine", "--task", task)
        # The merger stops itself when the board has its last revision.
        monkeypatch.setenv("LIZA_FAULT", "merge.merged:stop")
        victim = crew.agent("coder-1", crew.script("coder", WORK))
        crew.wait_status("task-1", "MERGED")
        victim.kill()
        monkeypatch.delenv("LIZA_FAULT")
        merger = last_holder_pid(crew.paths.merge_lock)
        assert merger is not None
        crew.wait(lambda _: _state(merger) == "T", "the merger stopped")
        (crew.paths.tx / "alarm-check").unlink(missing_ok=True)
        crew.agent("coder-2", crew.script("coder", WORK))
        # A supervisor writes this when it has found the turn taken, before it waits.
        until((crew.paths.tx / "alarm-check").exists, "the other supervisor waits")
        os.kill(merger, signal.SIGCONT)
        crew.wait_status("task-2", "MERGED")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
