"""A lapsed lease: taken over when supervisor and session are dead, and never while the session lives."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.crew.crew import find_crew
from liza.model.model import State
from liza.model.spending import TokenUsage
from liza.model.statuses import AgentStatus
from liza.system import processes
from liza.tasks.rules import claims
from liza.tasks.rules.picking import Evidence
from liza.usage import ledger
from tests.conftest import worktree_of
from tests.journeys.crews import WORK, Crew, started

CODER = """\
case "$LIZA_AGENT_ID" in
coder-1)
    echo committed > committed.txt
    git add -A
    git commit -q -m "first half"
    echo unfinished > unfinished.txt
    echo more >> README.md
    turn='"timestamp":"2026-01-01T00:00:00Z","usage":{"input_tokens":1000,"output_tokens":50}'
    echo "{\\"type\\":\\"turn_complete\\",$turn}" > "$LIZA_ROOT/.liza/run/coder-1/coder-1.1/telemetry.jsonl"
    echo "$$" > "$NOTES/at-work"
    read line < "$NOTES/gate" ;;
*)
    git log --format=%s -1 > "$NOTES/seen"
    git status --porcelain >> "$NOTES/seen"
    mv "$NOTES/seen" "$NOTES/second" ;;
esac
"""


def lapsed(state: State) -> bool:
    until = state.tasks[0].lease_expires
    return until is not None and until < datetime.now(UTC).replace(microsecond=0)


def status_of(state: State, agent: str) -> AgentStatus | None:
    return state.agents[agent].status if agent in state.agents else None


def begun(crew: Crew, more: str = "") -> str:
    """coder-1 in the middle of its work: something is committed, something is not."""
    crew.add("task-1")
    crew.gate("gate")
    program = crew.script("coder", CODER + more)
    first = crew.agent("coder-1", program)
    crew.wait_note("at-work")
    first.kill()
    return program


@pytest.mark.parametrize("is_up", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_a_coder_takes_over_all_work_of_a_dead_session(tmp_path: Path, is_up: bool) -> None:
    # Its own start repairs what it finds; what happens later is for its claim.
    with started(tmp_path, lease_duration=2) as crew:
        program = begun(crew, WORK_OF_THE_SECOND)
        head = crew.git("rev-parse", "task/task-1")
        if is_up:
            crew.agent("coder-2", program)
            crew.wait(lambda state: status_of(state, "coder-2") == AgentStatus.IDLE, "the end of its repairs")
        crew.kill_session("coder-1.1")
        if not is_up:
            crew.agent("coder-2", program)
        task = crew.wait_status("task-1", "READY_FOR_REVIEW")
        assert crew.wait_note("second").splitlines() == ["first half", " M README.md", "?? unfinished.txt"]
        assert (task.assigned_to, task.run, task.failed_by) == ("coder-2", "coder-2.1", ())
        assert crew.git("show", "task/task-1:unfinished.txt") == "unfinished"

        saved = "refs/liza/salvage/task-1/coder-1.1"
        assert crew.git("show", f"{saved}:unfinished.txt") == "unfinished"
        assert crew.git("show", f"{saved}:committed.txt") == "committed"
        assert crew.git("rev-parse", f"{saved}^") == head
        (first,) = [entry for entry in ledger.read_entries(crew.paths) if entry.run == "coder-1.1"]
        assert first.used == TokenUsage(input=1000, output=50), "its supervisor died before it could record it"
        assert (first.task, first.outcome) == ("task-1", "stopped")

        there = worktree_of(crew.root, "task-1")
        old = {"LIZA_RUN": "coder-1.1", "LIZA_TASK": "task-1", "LIZA_ROOT": str(crew.root)}
        told = crew.liza("submit", code=1, cwd=there, **old)
        assert "no longer own" in told


WORK_OF_THE_SECOND = """\
case "$LIZA_AGENT_ID" in
coder-2) git add -A; git commit -q -m "second half"; liza submit ;;
esac
"""


def test_a_living_session_keeps_its_task_after_a_supervisor_kill(tmp_path: Path) -> None:
    with started(tmp_path, lease_duration=1) as crew:
        program = begun(crew)
        crew.wait(lambda state: lapsed(state), "the lease to lapse")
        crew.add("task-2")
        crew.agent("coder-2", program)
        # It looks at task-1 first, by age; what it takes is the other.
        crew.wait(lambda state: state.tasks[1].run == "coder-2.1", "coder-2 on task-2")
        told = crew.liza("claim", "task-1", "--agent", "coder-3", code=1)
        assert "coder-1.1 is not proved dead" in told
        task = crew.task("task-1")
        assert (task.run, task.assigned_to, task.reservation) == ("coder-1.1", "coder-1", None)
        assert crew.git("for-each-ref", "refs/liza/salvage") == ""


def test_a_claim_by_hand_restores_uncommitted_files_in_the_worktree(tmp_path: Path) -> None:
    with started(tmp_path, lease_duration=1) as crew:
        crew.add("task-1")
        crew.liza("claim", "task-1", "--agent", "coder-1")
        there = worktree_of(crew.root, "task-1")
        (there / "unfinished.txt").write_text("by hand\n")
        crew.wait(lambda state: lapsed(state), "the lease to lapse")
        crew.liza("claim", "task-1", "--agent", "coder-2")
        assert (there / "unfinished.txt").read_text() == "by hand\n"
        assert crew.git("show", "refs/liza/salvage/task-1/coder-1.1:unfinished.txt") == "by hand"
        assert crew.task("task-1").iteration == 2


@pytest.mark.campaign
def test_an_unknown_or_dead_reservation_is_taken_back_at_once(
    tmp_path: Path,
) -> None:
    """As a full disk leaves it, that also keeps the claim from being undone; or an old copy of the board."""
    with started(tmp_path) as crew:
        crew.add("task-1", "task-2")
        crew.liza("pause")
        supervisor = crew.agent("coder-1", crew.script("agent", WORK))
        crew.wait_supervised("coder-1")
        lives = processes.identify_process(supervisor.process.pid)
        assert lives is not None
        with find_crew(crew.root).change("human:x", "edit") as tx:
            for agent, task, start in (("coder-1", "task-1", lives.start), ("coder-2", "task-2", "1")):
                gone = claims.Claimant(agent, replace(lives, start=start))
                state = claims.ensure_agent(tx.state, agent)
                now = datetime.now(UTC).replace(microsecond=0)
                tx.state, _ = claims.reserve(state, task, gone, task.replace("task-", "s"), now, Evidence())
        crew.wait(lambda state: not any(task.reservation for task in state.tasks), "both taken back")
        crew.liza("resume")
        for task in ("task-1", "task-2"):
            crew.wait_status(task, "READY_FOR_REVIEW")
