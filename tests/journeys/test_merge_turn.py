"""A crew starts one merger for each task, and a killed supervisor or merger leaves a crew that merges."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

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


def test_a_crew_starts_one_merger_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace"
    monkeypatch.setenv("LIZA_FAULT_TRACE", str(trace))
    # Without the poll, a wake-up that is lost is not made good: the test then fails.
    with started(tmp_path, poll_interval=3600) as crew:
        _start_all(crew)
        tasks = [f"task-{number}" for number in range(1, 5)]
        crew.add(*tasks)
        crew.wait(lambda state: all(task.status == "MERGED" for task in state.tasks), "all tasks merged")
        assert _merger_starts(trace) == len(tasks)


def test_a_supervisor_killed_when_it_started_its_merger_leaves_a_crew_that_merges(
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
