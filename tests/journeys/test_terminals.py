"""Sessions with a terminal: the same claim, brief, words and ends, and text typed only into a program that listens."""

from __future__ import annotations

import os
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.briefs import delivery_log, inbox
from liza.programs.terminal import tmux
from liza.system import file_growth, processes
from tests.journeys.crews import WORK, Crew, started

pytestmark = pytest.mark.needs("tmux")

READER = """\
import subprocess
print("starting", flush=True)
while True:
    said = input("> ")
    with open("{notes}/typed", "a") as typed:
        typed.write(said + "\\n")
    if "First run" in said:
        subprocess.run(["sh", "-ec", {work!r}], check=True)
"""


def reading(crew: Crew, work: str) -> str:
    """A program that waits at a prompt for what to do, and does ``work`` when it is told to begin."""
    place = crew.notes.parent / "reader.py"
    place.write_text(READER.format(notes=crew.notes, work=work))
    return f"script:{sys.executable} {place}"


@pytest.mark.sample(1)
def test_a_program_at_its_prompt_is_asked_to_begin(crew_both_ways: Crew) -> None:
    crew = crew_both_ways
    crew.add("task-1")
    supervisor = crew.agent("coder-1", reading(crew, f"liza ready\n{WORK}"), "--tmux")
    assert crew.wait_status("task-1", "READY_FOR_REVIEW").iteration == 1
    assert "coder-1.1" in crew.wait_note("typed")
    settled = crew.paths.run("coder-1.1") / "settled"
    crew.wait(lambda _: settled.exists(), "the end of the session")
    assert settled.read_text().startswith("finished")
    assert crew.liza("down").rstrip().endswith(" --tmux")
    assert supervisor.wait_gone() == 0
    crew.wait_ended()


def test_a_program_back_at_its_prompt_after_closing_is_ended(
    tmp_path: Path,
) -> None:
    # A grace that no test waits for.
    with started(tmp_path, grace=100_000) as crew:
        crew.add("task-1")
        supervisor = crew.agent("coder-1", reading(crew, f"liza ready\n{WORK}"), "--tmux")
        supervisor.wait_said("stopping coder-1.1: over")
        settled = crew.paths.run("coder-1.1") / "settled"
        crew.wait(lambda _: settled.exists(), "the end of the session")
        assert settled.read_text().startswith("finished")
        assert supervisor.stop() == 0


def test_a_terminal_lost_before_the_brief_costs_no_try(crew: Crew) -> None:
    gate = crew.gate("gate")
    crew.add("task-1")
    program = crew.script("agent.sh", f"echo up >> $NOTES/up\ncat {gate}\nliza ready\n{WORK}", ready=False)
    supervisor = crew.agent("coder-1", program, "--tmux")
    crew.wait_note("up")
    pane = tmux.find_pane(crew.root, "coder-1.1")
    assert pane is not None
    os.kill(pane.address.server, signal.SIGKILL)
    supervisor.wait_said("task-1 working again as coder-1.2, try 1")
    crew.wait(lambda _: (crew.notes / "up").read_text().count("up") == 2, "the second session")
    crew.open_gate("gate")
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.iteration, task.failed_by) == (1, ())
    assert crew.heard("task-1")[1:] == ["claim", "held up", "resume", "submit"]
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_an_urgent_note_is_typed_answered_and_ended_by_stop(crew_both_ways: Crew) -> None:
    crew = crew_both_ways
    crew.add("task-1")
    supervisor = crew.agent("coder-1", reading(crew, "liza ready"), "--tmux")
    supervisor.wait_said(r"coder-1\.1 ready after [\d.]+ s \(liza ready\)")
    crew.liza("note", "--to", "coder-1", "--now", "please say ACK: context received")
    crew.wait(lambda _: "please say ACK" in (crew.notes / "typed").read_text(), "the note at its prompt")
    crew.wait(
        lambda _: inbox.list_done(crew.paths, "coder-1")[-1:] and not inbox.list_pending(crew.paths, "coder-1"),
        "its answer",
    )
    told = crew.json("metrics")["messages"]
    assert (told["first_try"], told["waiting"], told["failed"]) == (2, 0, 0)
    assert supervisor.stop() == 0
    assert (crew.status("task-1"), crew.living()) == ("CLAIMED", [])


def test_a_program_that_waits_is_reported_with_signs_and_confidence(crew: Crew) -> None:
    crew.add("task-1")
    supervisor = crew.agent("coder-1", reading(crew, "true"), "--tmux")
    supervisor.wait_said(r"coder-1\.1: waits for input \((process|silence)[^)]*, \d+%\) after [\d.]+ s")
    assert not (crew.paths.run("coder-1.1") / "ready").exists()
    assert supervisor.stop() == 0


REREADER = """\
import subprocess
while True:
    said = input("> ")
    with open("{notes}/typed", "a") as typed:
        typed.write(said + "\\n")
    if "Your brief has messages" in said:
        subprocess.run(["sh", "-ec", "grep -c 'MESSAGE from human:ann' AGENTS.md > {notes}/read"], check=True)
    if "`" in said or "First run" in said:
        subprocess.run(["liza", "ready"], check=True)
"""


@pytest.mark.campaign
def test_a_program_reads_its_changed_brief_again(crew: Crew) -> None:
    crew.add("task-1")
    place = crew.notes.parent / "rereader.py"
    place.write_text(REREADER.format(notes=crew.notes))
    supervisor = crew.agent("coder-1", f"script:{sys.executable} {place}", "--tmux")
    supervisor.wait_said("coder-1.1 ready after")
    crew.wait(lambda _: not inbox.list_pending(crew.paths, "coder-1"), "its first line")
    message = inbox.queue_message(crew.paths, "coder-1", "the fonts are here " * 230, "human:ann", datetime.now(UTC))
    file_growth.wake_watchers(crew.paths, "coder-1")
    assert crew.wait_note("read") == "1\n"
    assert "Read AGENTS.md again, or run " in (crew.notes / "typed").read_text()
    worktree = crew.paths.slot(crew.task("task-1").worktree or "")
    crew.wait(lambda _: "MESSAGE from human:ann" not in (worktree / "AGENTS.md").read_text(), "a brief without it")
    assert inbox.list_pending(crew.paths, "coder-1") == ()
    events = [
        (entry.event, entry.channel)
        for entry in delivery_log.read_entries(crew.paths, "coder-1")
        if entry.message == message.id
    ]
    assert events == [
        ("attempted", "terminal"),
        ("failed", "terminal"),
        ("escalated", "brief"),
        ("succeeded", "command"),
    ]
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_a_note_longer_than_a_kernel_line_enters_the_brief(
    crew: Crew,
) -> None:
    crew.add("task-1")
    supervisor = crew.agent("coder-1", reading(crew, "liza ready"), "--tmux")
    supervisor.wait_said("coder-1.1 ready after")
    crew.wait(lambda _: not inbox.list_pending(crew.paths, "coder-1"), "its first line")
    crew.liza("note", "--to", "coder-1", "--now", "the fonts are here " * 230)
    supervisor.wait_said("was not typed: it has 4[0-9]* bytes")
    waits, *_ = inbox.list_pending(crew.paths, "coder-1")
    assert (waits.stage, waits.acknowledged) == ("filed", None)
    assert "the fonts" not in (crew.notes / "typed").read_text()
    assert supervisor.stop() == 0


@pytest.mark.campaign
def test_a_question_at_the_terminal_is_shown_with_attach(crew: Crew) -> None:
    crew.add("task-1")
    asks = "printf 'Really delete it? [y/n] '; read answer; echo $answer > $NOTES/answer"
    supervisor = crew.agent(
        "coder-1", crew.script("asks", f"{asks}; liza block 'no more' --ask 'what then?'\n"), "--tmux"
    )
    supervisor.wait_said("coder-1.1 shows a question: .Really delete it")
    (row,) = crew.json("status")["agents"]
    assert row["why"] == "its program shows a question: 'Really delete it? [y/n]': liza attach coder-1"
    pane = tmux.find_pane(crew.root, "coder-1.1")
    assert pane is not None
    pane.paste("y")
    pane.press_enter()
    assert crew.wait_note("answer").strip() == "y"
    crew.wait_status("task-1", "BLOCKED")
    assert supervisor.stop() == 0
    assert not (crew.paths.run("coder-1.1") / "asks").exists()


def test_an_early_dialog_is_answered_at_the_terminal_by_hand(crew: Crew) -> None:
    crew.add("task-1")
    asks = "printf 'Do you trust this folder? [y/n] '; read answer; echo $answer > $NOTES/answer"
    program = crew.script("asks", f"{asks}\nliza ready > /dev/null\n{WORK}", ready=False)
    supervisor = crew.agent("coder-1", program, "--tmux")
    supervisor.wait_said("coder-1.1 shows a question: .Do you trust this folder.*liza attach coder-1")
    (row,) = crew.json("status")["agents"]
    assert row["why"] == "its program shows a question: 'Do you trust this folder? [y/n]': liza attach coder-1"
    pane = tmux.find_pane(crew.root, "coder-1.1")
    assert pane is not None
    pane.paste("y")
    pane.press_enter()
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.iteration, crew.wait_note("answer").strip()) == (1, "y")
    assert crew.heard("task-1")[1:] == ["claim", "submit"]
    assert supervisor.stop() == 0


def test_a_log_that_ended_early_goes_on_with_a_notice(crew: Crew) -> None:
    crew.add("task-1")
    talks = crew.script("talks", "liza ready\nwhile :; do echo talking; sleep 0.1; done\n")
    supervisor = crew.agent("coder-1", talks, "--tmux")
    supervisor.wait_said("coder-1.1 ready after")
    log = crew.paths.run("coder-1.1") / "output.log"
    for writer in processes.find_pids_with_open(re.escape(str(log))):
        os.kill(writer, signal.SIGKILL)
    supervisor.wait_said("the terminal of coder-1.1 was not logged for a while")
    size = log.stat().st_size
    crew.wait(lambda _: log.stat().st_size > size, "more in the log")
    assert supervisor.stop() == 0
    crew.wait_ended()


@pytest.mark.campaign
def test_stopped_tmux_server_is_reason_in_status_and_down_works(crew: Crew) -> None:
    crew.add("task-1")
    supervisor = crew.agent("coder-1", crew.script("waits", "liza ready\nsleep 600\n"), "--tmux")
    supervisor.wait_said("coder-1.1 ready after")
    pane = tmux.find_pane(crew.root, "coder-1.1")
    assert pane is not None
    os.kill(pane.address.server, signal.SIGSTOP)
    try:
        supervisor.wait_said("the tmux server of coder-1.1 is stopped")
        (row,) = crew.json("status")["agents"]
        assert row["why"] == f"the tmux server of its terminal is stopped: kill -CONT {pane.address.server}"
        crew.liza("down")
    finally:
        os.kill(pane.address.server, signal.SIGCONT)
    supervisor.stop()
    crew.liza("down")
    crew.wait(lambda _: not crew.living(), "the end of the tmux server")
    assert crew.status("task-1") == "CLAIMED"


@pytest.mark.campaign
def test_silent_program_at_its_prompt_is_reminded_twice_then_ended(
    tmp_path: Path,
) -> None:
    with started(tmp_path, idle_after=1) as crew:
        crew.add("task-1")
        supervisor = crew.agent("coder-1", reading(crew, "liza ready"), "--tmux")
        crew.wait(lambda _: "ended" in crew.heard("task-1"), "the end of a session that only waits")
        assert (crew.notes / "typed").read_text().count("You are still coder-1.1") == 2
        assert crew.task("task-1").idle_sessions == 1
        assert supervisor.stop() == 0
