"""An agent is STARTING while its supervisor repairs what earlier processes left, and as dead as others if that dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from liza.system import lock_holders
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
        assert (row["status"], row["state"], row["why"]) == ("STARTING", "starting", "its supervisor starts up")

        pid = lock_holders.find_holder(crew.paths.supervisor_lock(STOPPED))
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
