"""Processes of a crew that a signal stopped: `status` names them, and the command that continues them."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from liza.system import locks, proc_stat
from tests.conftest import until
from tests.journeys.crews import BIN, LIMIT, WORK, Crew

ALONE = ("--planners", "0", "--reviewers", "0")
KINDS = ("supervisor_stopped", "up_stopped")


def up(crew: Crew, program: str) -> subprocess.Popen[bytes]:
    """A `liza up` in a process group of its own, as a shell starts it."""
    with (crew.notes / "up.log").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "liza"), "up", *ALONE, "--program", program],
            cwd=crew.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            process_group=0,
        )
    crew.children.append(process)
    return process


def alarms(crew: Crew) -> dict[str, Any]:
    return {row["kind"]: row for row in crew.json("status")["alerts"] if row["kind"] in KINDS}


def is_stopped(pid: int) -> bool:
    fields = proc_stat.read_stat(pid)
    return fields is not None and fields[proc_stat.STATE] == b"T"


def test_status_names_stopped_processes_and_one_command_that_continues_them(crew: Crew) -> None:
    process = up(crew, crew.script("coder", WORK))
    crew.wait_supervised("coder-1")
    pid = locks.find_holder(crew.paths.supervisor_lock("coder-1"))
    assert pid is not None
    crew.wait(lambda state: "coder-1" in state.agents, "coder-1 on the board")
    with locks.Lock(crew.paths.state_lock).acquire():  # A stopped process must not hold it.
        for number in (pid, process.pid):
            os.kill(number, signal.SIGSTOP)
            until(lambda number=number: is_stopped(number), f"{number} stopped")
    crew.add("t1")
    found = alarms(crew)
    assert list(found) == list(KINDS)
    command = found["supervisor_stopped"]["next"]
    assert sorted(command.removeprefix("kill -CONT ").split()) == sorted([str(pid), str(process.pid)])
    assert found["up_stopped"]["next"] == command
    (agent,) = crew.json("status")["agents"]
    assert agent["why"] == f"its supervisor (process {pid}) is stopped: kill -CONT {pid}"
    subprocess.run(command, shell=True, check=True)
    crew.wait_status("t1", "READY_FOR_REVIEW")
    assert alarms(crew) == {}
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT) == 0


@pytest.mark.campaign
def test_ctrl_z_stops_only_the_display(crew: Crew) -> None:
    process = up(crew, crew.script("coder", WORK))
    crew.wait_supervised("coder-1")
    process.send_signal(signal.SIGTSTP)
    crew.wait(lambda _: is_stopped(process.pid), "the stop of up")
    assert "stopped by Ctrl+Z: only this display." in (crew.notes / "up.log").read_text()
    crew.add("t1")
    crew.wait_status("t1", "READY_FOR_REVIEW")
    found = alarms(crew)
    assert list(found) == ["up_stopped"]
    assert "the crew goes on, and spends" in found["up_stopped"]["message"]
    subprocess.run(found["up_stopped"]["next"], shell=True, check=True)
    log = crew.notes / "up.log"
    crew.wait(lambda _: "t1 in review" in log.read_text(), "the lines that waited")
    crew.wait(lambda _: "meanwhile: t1 is in review: liza history" in " ".join(log.read_text().split()), "the summary")
    # A second time, too.
    process.send_signal(signal.SIGTSTP)
    crew.wait(lambda _: log.read_text().count("stopped by Ctrl+Z") == 2 and is_stopped(process.pid), "the second stop")
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT) == 0
