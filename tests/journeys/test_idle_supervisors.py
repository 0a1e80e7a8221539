"""A supervisor with nothing to do is not woken: none of its threads runs until something happens."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from liza.programs.session.run_directory import AgentWait, read_wait, write_wait
from tests.conftest import LONG
from tests.journeys.crews import Crew, Supervisor

WINDOW = 2.5
"""Seconds without a wake-up: more than all intervals at which a supervisor may look for something without an event."""
AGENT = "exec sleep 600\n"


def wake_ups(pid: int) -> dict[str, int]:
    """Return how often each thread of a process has blocked so far: a thread that was woken blocks again."""
    counts = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        counts[task.name] = int(lines["voluntary_ctxt_switches"])
    return counts


def wait_unwoken(supervisor: Supervisor, limit: float) -> dict[str, int]:
    """Wait until no thread was woken for WINDOW seconds; return those that were woken last, if that never came."""
    pid = supervisor.process.pid
    end, before, since = time.monotonic() + limit, wake_ups(pid), time.monotonic()
    while time.monotonic() - since < WINDOW:
        time.sleep(0.1)
        now = wake_ups(pid)
        if now != before:
            if time.monotonic() > end:
                return {thread: count - before.get(thread, 0) for thread, count in now.items()}
            before, since = now, time.monotonic()
    return {}


def test_an_idle_supervisor_wakes_no_thread_without_a_task(crew: Crew) -> None:
    crew.configure(poll_interval=3600)
    supervisor = crew.agent("coder-1", crew.script("agent", AGENT))
    crew.wait_supervised("coder-1")
    woken = wait_unwoken(supervisor, LONG)
    assert not woken, f"threads of an idle supervisor that were woken: {woken}\n{supervisor.said()}"
    crew.add("mail")
    crew.wait_status("mail", "CLAIMED")


@pytest.mark.campaign
def test_a_supervisor_that_looks_again_and_again_would_be_seen(crew: Crew) -> None:
    crew.configure(poll_interval=1)
    supervisor = crew.agent("coder-1", crew.script("agent", AGENT))
    crew.wait_supervised("coder-1")
    assert wait_unwoken(supervisor, 3 * WINDOW)


@pytest.mark.campaign
def test_a_claim_that_git_refuses_is_retried_at_growing_intervals(crew: Crew) -> None:
    """Each try changes the board. Its events end no wait: there were 20 tries a second."""
    crew.add("task-1")
    blob = crew.git("rev-parse", "HEAD:README.md").strip()
    (crew.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    began = crew.state().revision
    supervisor = crew.agent("coder-1", crew.script("coder", "true"))
    crew.wait(lambda state: state.revision > began + 1)
    since = time.monotonic()
    crew.wait(lambda state: state.revision > began + 8)
    assert time.monotonic() - since > 2.5
    assert "! git worktree failed" in supervisor.said()
    [agent] = crew.json("status")["agents"]
    assert (agent["status"], "its last step failed: git worktree failed" in agent["why"]) == ("WAITING", True)
    limit = AgentWait(reason="a limit", until=datetime.now(UTC) + timedelta(hours=1))
    write_wait(crew.paths, "coder-1", limit)
    tries = crew.state().revision
    crew.wait(lambda state: state.revision > tries)
    assert read_wait(crew.paths, "coder-1") == limit
