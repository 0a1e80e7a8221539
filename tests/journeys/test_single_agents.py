"""One agent is stopped and started by name, while the others go on."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from tests.journeys.crews import LIMIT, WORK, Crew, start_up, started

WAITS = """\
echo "$$" > "$NOTES/at-$LIZA_RUN"
read line < "$NOTES/gate-$LIZA_TASK"
"""
TWO = ("--planners", "0", "--reviewers", "0", "--coders", "2")


def printed(crew: Crew) -> str:
    return " ".join((crew.notes / "up.log").read_text().split())


def supervised(crew: Crew) -> list[str]:
    found = find_crew(crew.root)
    return [agent for agent in sorted(crew.state().agents) if found.is_supervised(agent)]


@pytest.mark.campaign
def test_down_stops_one_agent_and_another_takes_its_task(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        program = crew.script("coder", WAITS + WORK)
        for task in ("t1", "t2"):
            crew.gate(f"gate-{task}")
        crew.add("t1")
        process = start_up(crew, *TWO, "--program", program)
        run = crew.wait_status("t1", "CLAIMED").run
        assert run is not None
        crew.wait_note(f"at-{run}")
        first = run.partition(".")[0]
        other = "coder-2" if first == "coder-1" else "coder-1"

        told = crew.liza("down", first)
        assert f"stopped {first}; t1 is left to other agents" in told
        assert told.endswith(f"next: liza up {first}\n")
        assert supervised(crew) == [other]
        assert crew.state().agents[first].status == "OFFLINE"
        crew.wait(lambda state: (task := state.task("t1")) and (task.run or "").startswith(other), "the other coder")
        crew.wait(lambda _: f"{first} was stopped; the others go on" in " ".join(printed(crew).split()), "the line")
        # The keeper looks every two seconds, and leaves it alone: it was stopped on request.
        crew.wait_note(f"at-{crew.task('t1').run}")
        assert supervised(crew) == [other]
        assert "unchanged" in crew.liza("down", first, "--json")
        crew.open_gate("gate-t1")
        crew.wait_status("t1", "READY_FOR_REVIEW")
        assert process.poll() is None

        crew.liza("up", "-d", first)
        assert supervised(crew) == ["coder-1", "coder-2"]
        assert crew.state().agents[first].program == program
        assert "already running" in crew.liza("up", "-d", first, code=1)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
        assert f"{first} goes on: another command started it" in printed(crew)
        crew.liza("down")
        crew.wait_ended()


def test_up_starts_an_agent_that_the_crew_never_had(crew: Crew) -> None:
    program = crew.script("coder", WORK)
    crew.add("t1")
    crew.liza("up", "-d", "coder-7", "--program", program)
    assert supervised(crew) == ["coder-7"]
    assert crew.wait_status("t1", "READY_FOR_REVIEW").run == "coder-7.1"
    crew.liza("up", "-d", "reviewer-2", "--program", program)
    assert supervised(crew) == ["code-reviewer-2", "coder-7"]
    told = crew.liza("down", "reviewer-2", "coder-7")
    assert "stopped coder-7, code-reviewer-2" in told
    crew.wait_ended()


def test_down_and_up_refuse_names_that_are_no_agents(crew: Crew) -> None:
    for words, code, hint in (
        (("down", "coder-9"), 1, "liza agents"),
        (("down", "coder"), 2, "liza agents"),
        (("down", "coder-1", "--purge"), 2, "liza down coder-1"),
        (("up", "coder-1", "--coders", "2"), 2, "liza up coder-1"),
        (("up", "2"), 2, "liza up --coders 2"),
    ):
        assert crew.prepare(*words, code=code).endswith(f"  next: {hint}\n"), words
    assert crew.state().agents == {}


@pytest.mark.campaign
def test_a_detached_crew_leaves_a_stopped_agent_alone(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        program = crew.script("coder", WORK)
        crew.liza("up", "-d", *TWO, "--program", program)
        crew.liza("down", "--now", "coder-2")
        crew.add("t1")
        crew.wait_status("t1", "READY_FOR_REVIEW")
        keeper_log = crew.paths.logs / "keeper.log"
        assert not re.search("coder-2", keeper_log.read_text() if keeper_log.exists() else "")
        assert supervised(crew) == ["coder-1"]
        crew.liza("down")
        crew.wait_ended()
