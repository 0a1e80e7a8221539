"""An agent is STARTING while its supervisor repairs what earlier processes left, and as dead as others if that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from liza.system import locks
from tests.journeys.crews import Crew, started

STOPPED = "coder-1"


def test_an_agent_is_starting_until_its_supervisor_takes_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path, poll_interval=1) as crew:
        program = crew.script("coder", "true")
        monkeypatch.setenv("LIZA_FAULT", "supervisor.registered:stop")
        crew.agent(STOPPED, program)
        monkeypatch.delenv("LIZA_FAULT")
        crew.wait(lambda state: STOPPED in state.agents, "the registration")
        assert crew.state().agents[STOPPED].status == "STARTING"
        row = _row(crew)
        assert (row["status"], row["state"]) == ("STARTING", "starting")
        assert "is stopped: kill -CONT" in str(row["why"]), "the test stops it to see it start"

        pid = locks.find_holder(crew.paths.supervisor_lock(STOPPED))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        crew.wait(lambda _: _row(crew)["status"] == "OFFLINE", "a dead agent")
        assert crew.state().agents[STOPPED].status == "STARTING"
        crew.liza("validate")

        again = crew.agent(STOPPED, program)
        crew.wait(lambda state: state.agents[STOPPED].status == "IDLE", "an agent that takes work")
        assert again.stop() == 0
        assert crew.state().agents[STOPPED].status == "OFFLINE"


def _row(crew: Crew) -> dict[str, object]:
    (row,) = (row for row in crew.json("status")["agents"] if row["id"] == STOPPED)
    return row


DIES_FIRST = """\
[ "$LIZA_RUN" != coder-1.1 ] || { echo no such model >&2; exit 3; }
liza ready > "$NOTES/brief-$LIZA_RUN"
if [ "$LIZA_RUN" = coder-1.2 ]; then
  echo half > "$LIZA_TASK.txt"; git add -A; git commit -q -m half
  liza handoff "the file is there" --next "write the rest"
  exit 42
fi
echo done > "$NOTES/done"
read line < "$NOTES/gate"
"""


def test_next_brief_gives_the_reason_of_the_last_sessions_end(tmp_path: Path) -> None:
    with started(tmp_path, poll_interval=1, restart_after_handoff=0.1) as crew:
        crew.gate("gate")
        crew.add("t1")
        supervisor = crew.agent(STOPPED, crew.script("coder", DIES_FIRST, ready=False))
        crew.wait_note("done")
        failed = crew.state().handoff["t1"].failed_check
        first, second = ((crew.notes / f"brief-coder-1.{number}").read_text() for number in (2, 3))
        assert "• resumed:t1 •" in first
        assert "START-UP   coder-1.1 failed the check of the session." in first
        assert "no such model" in first
        assert "• hand-off:t1 •" in second
        assert "START-UP" not in second
        assert failed is None
        supervisor.wait_said(r"coder-1\.3 ready after [0-9.]+ s \(liza ready\), hand-off:t1")
