"""The operating states of agents from real files of sessions: in `status`, in `agents` and over the worker API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict, replace

from liza.crew.crew import Crew
from liza.model.model import Status
from liza.model.paths import Paths
from liza.model.statuses import AgentWord
from liza.printing.render_crew import format_agents
from liza.printing.render_task import format_agent
from liza.programs.liveness import RunningSession
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system.locks import Lock
from liza.system.processes import identify_self
from liza.view.agents import list_agents, list_states
from liza.view.status import status
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

HELD = {
    "status": Status.CLAIMED,
    "assigned_to": "coder-1",
    "run": "coder-1.1",
    "worktree": "s1",
    "base_commit": "a" * 40,
}
NO_RECORD: dict[str, Any] = {"tasks": [], "reviews": {}, "unreadable": [], "imported": []}


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    made = Crew(Paths(tmp_path), clock)
    made.board.create(FIRST + "    runs: 1\n    current_task: t1\n")
    return made


def claim(crew: Crew, **fields: Any) -> None:
    with crew.change("human:ann", "note") as tx:
        lease = crew.clock.now() + timedelta(minutes=5)
        tx.state = tx.state.with_task(replace(tx.state.tasks[0], **{**HELD, "lease_expires": lease, **fields}))


def session(crew: Crew, *, lives: bool = True) -> RunDir:
    directory = crew.run_dir("coder-1.1")
    if not directory.exists():
        directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now(), task="t1"))
    living = RunningSession(shim=identify_self(), child=identify_self(), time=crew.clock.now())
    (directory.path / "session.json").unlink(missing_ok=True)
    if lives:
        (directory.path / "session.json").write_bytes(msgspec.json.encode(living))
    return directory


def shown(crew: Crew) -> tuple[Any, ...]:
    """State, evidence and since when: the same in `status`, in `agents`, and over the API."""
    (row,) = status(crew).fields()["agents"]
    assert asdict(list_agents(crew)[0].row) == row
    (listed,) = list_states(crew).agents
    found = (row["state"], row["evidence"], row["state_since"])
    assert (listed.state, listed.evidence, listed.state_since) == found
    assert (listed.id, listed.role, listed.run_id) == ("coder-1", "coder", "coder-1.1")
    assert listed.task_id == row["current_task"]
    return found


def test_status_agents_and_api_show_the_state_of_agents(crew: Crew) -> None:
    start = crew.clock.now()
    assert shown(crew) == ("idle", "it holds no work and has no session", None)
    claim(crew)
    assert shown(crew)[:2] == ("working", "t1 is worked on by hand")
    run = session(crew)
    assert shown(crew) == ("starting", "coder-1.1 has not read its brief yet", start)
    run.mark_ready(start, "x")
    assert shown(crew) == ("working", "coder-1.1 works on t1", start)
    run.write_question("Allow it? (y/n)")
    assert shown(crew) == ("stuck", "coder-1.1 asks: Allow it? (y/n)", start)
    session(crew, lives=False)
    assert shown(crew)[:2] == ("stalled", "it holds t1, and has no session and no supervisor")
    assert "coder-1  off  t1" in format_agents(list_agents(crew), False)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert shown(crew)[:2] == ("starting", "its supervisor starts a session for t1")
    session(crew)
    run.set_closing_code("0")
    claim(crew, status=Status.READY_FOR_REVIEW, review_commit="b" * 40)
    assert shown(crew)[:2] == ("zombie", "coder-1.1 has closed its work and still runs")
    (line,) = list_agents(crew)
    assert line.word is AgentWord.STUCK
    text = format_agent({**asdict(line.row), "notes": [], "work": [], "record": NO_RECORD}, False)
    assert "zombie: coder-1.1 has closed its work and still runs (since " in text


def test_an_unreadable_state_is_unknown_with_its_reason(crew: Crew) -> None:
    claim(crew)
    (session(crew).path / "session.json").write_text("{no")
    (row,) = status(crew).fields()["agents"]
    assert (row["state"], row["evidence"], row["state_since"]) == (None, None, None)
    (listed,) = list_states(crew).agents
    assert listed.state is None
    assert "session.json" in (listed.error or "")
