"""A crew heals itself: supervisors that died are started again, and left-over sessions are ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from liza.system import locks
from liza.system.locks import is_flock_held
from tests.conftest import worktree_of
from tests.journeys.crews import APPROVE, LIMIT, WORK, Crew, start_up, started

WAITS = """\
echo "$$" > "$NOTES/at-$LIZA_RUN"
read line < "$NOTES/gate"
"""
ALONE = ("--planners", "0", "--reviewers", "0")


def wait_printed(crew: Crew, text: str) -> None:
    log = crew.notes / "up.log"
    crew.wait(lambda _: text in " ".join(log.read_text().split()), text)


def wait_logged(crew: Crew, text: str) -> None:
    crew.wait(lambda _: crew.paths.alerts.exists() and text in crew.paths.alerts.read_text(), text)


def supervisor_of(crew: Crew, agent: str) -> int:
    crew.wait_supervised(agent)
    pid = locks.find_holder(crew.paths.supervisor_lock(agent))
    assert pid is not None
    return pid


def kill_supervisor(crew: Crew, agent: str) -> None:
    os.kill(supervisor_of(crew, agent), signal.SIGKILL)


def stop(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(LIMIT)


def wait_without_keeper(crew: Crew) -> None:
    lock = crew.paths.keeper_lock
    crew.wait(lambda _: not is_flock_held(lock), "the end of the keeper")


@pytest.mark.campaign
def test_up_restarts_a_killed_supervisor_and_finishes_its_task(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.gate("gate")
        crew.add("t1")
        process = start_up(crew, *ALONE, "--program", crew.script("coder", WAITS + WORK))
        crew.wait_note("at-coder-1.1")
        kill_supervisor(crew, "coder-1")
        wait_printed(crew, "it holds t1, and its supervisor is gone; it was started again (1 of 3)")
        wait_printed(crew, "coder-1.1 adopted")
        crew.open_gate("gate")
        task = crew.wait_status("t1", "READY_FOR_REVIEW")
        assert (task.run, crew.heard("t1").count("crash")) == ("coder-1.1", 0)
        assert process.poll() is None
        assert stop(process) == 0
        crew.wait_ended()


@pytest.mark.campaign
def test_up_keeps_an_idle_agent_and_waits_for_supervisors(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        process = start_up(crew, *ALONE, "--program", crew.script("coder", WORK))
        for number in (1, 2):
            pid = supervisor_of(crew, "coder-1")
            crew.wait(lambda state: "IDLE" in [agent.status for agent in state.agents.values()], "coder-1 at rest")
            os.kill(pid, signal.SIGKILL)
            wait_printed(crew, f"its supervisor is gone; it was started again ({number})")
        crew.add("t1")
        crew.wait_status("t1", "READY_FOR_REVIEW")
        assert stop(process) == 0


@pytest.mark.campaign
def test_up_does_not_restart_a_supervisor_that_left_for_cause(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("t1", "t2", "t3")
        process = start_up(crew, *ALONE, "--program", crew.script("coder", "exit 3\n"))
        assert process.wait(LIMIT) == 1
        printed = (crew.notes / "up.log").read_text()
        assert "sessions of 3 tasks crashed" in printed
        assert "started again" not in printed


def test_a_killed_up_ends_no_session_and_its_crew_continues(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.gate("gate")
        crew.add("t1")
        script = crew.script("agent", f'case "$LIZA_RUN" in coder-*)\n{WAITS}{WORK};;\n*)\n{APPROVE};;\nesac\n')
        process = start_up(crew, "--planners", "0", "--program", script)
        crew.wait_note("at-coder-1.1")
        child = crew.session("coder-1.1")["child"]["pid"]
        process.kill()
        process.wait()
        log = crew.paths.logs / "coder-1.log"
        crew.wait(lambda _: log.exists() and "its `liza up` was killed; it goes on" in log.read_text(), "the log")
        crew.wait(lambda _: is_flock_held(crew.paths.keeper_lock), "the keeper")
        assert Path(f"/proc/{child}").exists()
        # The crew still heals itself.
        kill_supervisor(crew, "coder-1")
        wait_logged(crew, "it holds t1, and its supervisor is gone; it was started again (1 of 3)")
        crew.open_gate("gate")
        task = crew.wait_status("t1", "MERGED")
        assert "crash" not in crew.heard("t1")
        assert [event.run for event in task.history if event.event == "submit"] == ["coder-1.1"]
        assert "stopped coder-1" in crew.liza("down").replace("code-reviewer-1, ", "")
        crew.wait_ended()
        wait_without_keeper(crew)


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_closed_terminal_or_ending_signal_stops_the_crew(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as crew:
        crew.gate("gate")
        crew.add("t1")
        process = start_up(crew, *ALONE, "--program", crew.script("coder", WAITS))
        crew.wait_note("at-coder-1.1")
        process.send_signal(number)
        assert process.wait(LIMIT) == 0
        crew.wait_ended()
        assert crew.task("t1").history[-1].event == "stop"


@pytest.mark.campaign
def test_work_that_kills_supervisors_three_times_is_escalated(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.gate("gate")
        crew.add("t1")
        crew.liza("up", "-d", *ALONE, "--program", crew.script("coder", WAITS))
        crew.wait_note("at-coder-1.1")
        slot = crew.task("t1").worktree
        for number in (1, 2, 3):
            kill_supervisor(crew, "coder-1")
            wait_logged(crew, f"it was started again ({number} of 3)")
            crew.wait_supervised("coder-1")
        kill_supervisor(crew, "coder-1")
        wait_logged(crew, "it is not started again")
        notes = [note.message for note in crew.state().human_notes]
        assert len(notes) == 1
        assert "its supervisor was started 3 times" in notes[0]
        # Its session was never ended.
        assert (crew.task("t1").worktree, crew.task("t1").run) == (slot, "coder-1.1")
        crew.liza("down")
        wait_without_keeper(crew)
        crew.wait_ended()


def test_a_leftover_session_without_a_supervisor_is_ended(tmp_path: Path) -> None:
    with started(tmp_path, grace=1) as crew:
        crew.gate("gate")
        crew.add("t1")
        crew.configure(grace=60)
        supervisor = crew.agent("coder-1", crew.script("coder", WORK + WAITS))
        crew.wait_note("at-coder-1.1")
        supervisor.kill()
        crew.configure(grace=1)
        child = crew.session("coder-1.1")["child"]["pid"]
        # The `up` of another agent: it starts no supervisor that another command started.
        process = start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", "exit 0\n"))
        wait_printed(crew, "coder-1.1 has closed its work and still runs: the session was ended")
        assert not Path(f"/proc/{child}").exists()
        assert crew.status("t1") == "READY_FOR_REVIEW" or crew.status("t1") == "BLOCKED"
        assert (worktree_of(crew.root, "t1") / "t1.txt").exists()
        stop(process)


@pytest.mark.campaign
def test_after_down_no_killed_supervisor_is_started_again(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.gate("gate")
        crew.add("t1")
        crew.liza("up", "-d", *ALONE, "--coders", "2", "--program", crew.script("coder", WAITS))
        crew.wait(lambda _: list(crew.notes.glob("at-coder-*.1")), "a session")
        agent = next(crew.notes.glob("at-coder-*.1")).name.removeprefix("at-").removesuffix(".1")
        lock = crew.paths.keeper_lock
        crew.wait(lambda _: locks.find_holder(lock), "the keeper")
        keeper = locks.find_holder(lock)
        assert keeper is not None
        os.kill(keeper, signal.SIGSTOP)
        kill_supervisor(crew, agent)
        crew.liza("down")
        os.kill(keeper, signal.SIGCONT)
        wait_without_keeper(crew)
        crew.wait_ended()


@pytest.mark.campaign
def test_a_supervisor_restarts_killed_crew_care(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.liza("up", "-d", *ALONE, "--program", crew.script("coder", WORK))
        lock = crew.paths.keeper_lock
        crew.wait(lambda _: is_flock_held(lock), "the keeper")
        pid = locks.find_holder(lock)
        assert pid is not None
        # As if it had been started long ago.
        os.utime(crew.paths.keeper_mark, (0, 0))
        os.kill(pid, signal.SIGKILL)
        crew.add("t1")
        crew.wait(lambda _: locks.find_holder(lock) not in (None, pid), "another keeper")
        crew.liza("down")
        wait_without_keeper(crew)
        assert not crew.paths.keeper_mark.exists()
