"""`liza up` whose reader is slow, stopped or gone, and the third Ctrl+C: the output ends, the crew does not."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.supervisor.healing import Healer, Look
from tests.conftest import until
from tests.journeys.crews import APPROVE, BIN, LIMIT, WORK, Crew

AGENT = (
    f'case "$LIZA_RUN" in\ncoder-*)\necho at > "$NOTES/at-$LIZA_TASK"; cat "$NOTES/gate" > /dev/null\n{WORK};;\n*)\n'
)
CREW = ("--planners", "0")


def up(crew: Crew, program: str, out: int, *more: str) -> subprocess.Popen[bytes]:
    words = [str(BIN / "liza"), "up", *CREW, "--program", program, *more]
    child = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(child)
    return child


@pytest.mark.campaign
def test_a_reader_that_closes_ends_the_output_but_no_work(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1")
    program = crew.script("agent", AGENT + APPROVE + ";; esac\n")
    ours, theirs = os.pipe()
    child = up(crew, program, theirs)
    os.close(theirs)
    crew.wait_note("at-t1")
    # As `| head -1` does once it has what it wants, and `| tee` when Ctrl+C ends it first.
    os.close(ours)
    crew.open_gate("gate")
    crew.wait_status("t1", "MERGED")
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=LIMIT) == 0
    assert crew.living() == []
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"liza-report-*{child.pid}*"))


@pytest.mark.campaign
def test_messages_of_up_go_to_stderr_without_a_reader(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1")
    program = crew.script("agent", 'echo at > "$NOTES/at"\ncat "$NOTES/gate" > /dev/null\n')
    words = [str(BIN / "liza"), "up", *CREW, "--program", program, "--reviewers", "0"]
    pipe = subprocess.PIPE
    child = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    crew.children.append(child)
    crew.wait_note("at")
    assert child.stdout is not None
    assert child.stderr is not None
    # `timeout 9 liza up | tee log`: tee goes with it, and TERM comes once to the child and once to its group.
    child.stdout.close()
    child.terminate()
    child.terminate()
    said = child.stderr.read().decode()
    assert child.wait(timeout=LIMIT) == 0
    assert "stopping 1 agent… (again: at once)" in said
    assert f"all stopped; work is in {crew.paths.slots} " in said
    assert "goes on:" not in said
    assert "at once…" not in said


@pytest.mark.campaign
def test_a_stopped_reader_blocks_neither_the_work_nor_term(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1")
    program = crew.script("agent", AGENT + APPROVE + ";; esac\n")
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 512)
    os.set_blocking(theirs, True)
    child = up(crew, program, theirs)
    os.close(theirs)
    crew.wait_note("at-t1")
    crew.open_gate("gate")
    crew.wait_status("t1", "MERGED")
    child.terminate()
    until(lambda: child.poll() is not None, "`up` waits for a reader that is stopped")
    assert child.returncode == 0
    os.close(ours)
    assert crew.living() == []


@pytest.mark.campaign
def test_a_third_ctrl_c_ends_everything_at_once(
    crew: Crew,
) -> None:
    crew.add("t1")
    program = crew.script("agent", "trap '' TERM INT HUP\necho at > \"$NOTES/at\"\nwhile :; do sleep 60; done\n")
    crew.configure(grace=60)
    log = crew.notes / "up.log"
    with log.open("wb") as out:
        child = up(crew, program, out.fileno(), "--reviewers", "0")
    crew.wait_note("at")
    supervisor = int(crew.paths.supervisor_lock("coder-1").read_text().split()[0])
    os.kill(supervisor, signal.SIGSTOP)
    for said in ("stopping 1 agent…", "once more: kill everything", "killed"):
        child.send_signal(signal.SIGINT)
        crew.wait(lambda _, said=said: re.search(re.escape(said), log.read_text()), said)
    assert child.wait(timeout=LIMIT) == 130
    crew.wait(lambda _: not crew.living(), "the end of all processes")
    assert crew.status("t1") == "CLAIMED"
    # A person stopped it: nobody starts it again.
    (agent,) = crew.json("agents")["agents"]
    assert (agent["state"], agent["why"]) == ("stalled", "its supervisor left: ended at once by a third Ctrl+C")
    told: list[str] = []
    healer = Healer(find_crew(crew.root), told.append, lambda agent, text: told.append(text))
    assert (healer.look(crew.state(), ["coder-1"], []), told) == (Look(), [])


@pytest.mark.campaign
def test_a_finished_crew_shows_how_far_integration_is_ahead(
    crew: Crew,
) -> None:
    plan = 'planner-*) liza handoff "nothing to add" --done;;\n'
    program = crew.script("agent", f'case "$LIZA_RUN" in\n{plan}coder-*)\n{WORK};;\n*)\n{APPROVE};;\nesac\n')
    crew.add("t1")
    log = crew.notes / "up.log"
    words = [str(BIN / "liza"), "up", "--program", program]
    with log.open("wb") as out:
        child = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(child)
    ahead = "the goal is completed; integration is 2 commits ahead of main: liza land --merge"
    crew.wait(lambda _: "Ctrl+C stops it" in log.read_text(), "the word that it may be stopped")
    clock = r"(?m)^\d\d:\d\d:\d\d  "
    assert re.search(clock + f"liza {{12}}{ahead}$", log.read_text())
    assert re.search(clock + r"the crew waits for new tasks: Ctrl\+C stops it$", log.read_text())
    assert f"{ahead}\n" in crew.liza("status")
    ahead_by = {
        "integration": "integration",
        "branch": "main",
        "commits": 2,
        "own": 0,
        "request": "",
        "is_checked_out": True,
    }
    assert crew.json("status")["ahead"] == ahead_by
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=LIMIT) == 0

    crew.git("merge", "-q", "integration")
    assert "main has all of integration" in crew.liza("status")
    crew.add("t2")
    told = crew.liza("up", "--exit-when-done", "--program", program)
    took = r"\d sessions?"
    assert re.search(clock + rf"liza {{12}}t2 merged as [0-9a-f]{{10}}, untested; {took}$", told)
    assert "completed; integration is 2 commits ahead of main: liza land --merge" in told
    assert crew.living() == []
    assert "all stopped. Accept the result: liza land --merge" in told
    again = crew.liza("up", "--exit-when-done", "--program", program)
    assert re.search(clock + f"liza {{12}}{ahead}\n\\Z", again)


@pytest.mark.campaign
def test_exit_when_done_fails_without_agents_for_open_tasks(
    crew: Crew,
) -> None:
    crew.gate("gate")
    crew.add("t1")
    crew.configure(sandbox_setup="touch ready")
    log = crew.notes / "up.log"
    with log.open("wb") as out:
        child = up(crew, crew.script("agent", AGENT + APPROVE + ";; esac\n"), out.fileno(), "--exit-when-done", "-v")
    crew.wait_note("at-t1")
    assert re.search(r"(?m)^\d\d:\d\d:\d\d  coder-1 +set-up in s1 done after \d+ s$", log.read_text())
    os.kill(int(crew.paths.supervisor_lock("coder-1").read_text().split()[0]), signal.SIGTERM)
    assert child.wait(timeout=LIMIT) == 1, log.read_text()
    # The line is broken between words.
    told = " ".join(log.read_text().split())
    reason = r"\bcoder-1(, coder-2)? left, and no other agent can continue: open: t1; liza logs coder-1 says why"
    assert re.search(reason, told), told
    assert crew.living() == []
    assert crew.status("t1") == "CLAIMED"


@pytest.mark.campaign
def test_a_crew_names_what_it_waits_for_and_goes_on(
    crew: Crew,
) -> None:
    crew.add("t1")
    crew.liza("claim", "t1", "--agent", "coder-1")
    crew.liza("block", "no address", "--ask", "which?", cwd=crew.paths.task_link("t1"))
    program = crew.script("agent", f'case "$LIZA_RUN" in\ncoder-*)\n{WORK};;\n*)\n{APPROVE};; esac\n')
    log = crew.notes / "up.log"
    with log.open("wb") as out:
        child = up(crew, program, out.fileno())
    said = 'the crew waits for you: t1 is blocked (no address) and asks: which?; next: liza answer t1 "…"\n'
    crew.wait(lambda _: said in log.read_text(), "what the crew waits for")
    crew.liza("answer", "t1", "here")
    crew.wait_status("t1", "MERGED")
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=LIMIT) == 0, log.read_text()
    assert log.read_text().count(said) == 1


@pytest.mark.campaign
def test_a_stopped_crew_reports_no_missing_agent(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1", "t2")
    program = crew.script("agent", AGENT + APPROVE + ";; esac\n")
    log = crew.notes / "up.log"
    with log.open("wb") as out:
        child = up(crew, program, out.fileno(), "--exit-when-done", "-v")
    crew.wait_note("at-t1")
    crew.wait_supervised("code-reviewer-1")
    # A `down` that was killed leaves no lock: the next one stops the crew.
    assert crew.run("down", LIZA_FAULT="down.locked").returncode == -signal.SIGKILL
    stopped = crew.liza("down")
    assert "stopped code-reviewer-1, coder-1" in stopped
    assert child.wait(timeout=LIMIT) == 0, log.read_text()
    told = log.read_text()
    assert "all stopped" in told
    for false_alarm in ("no agent reviews now", "the crew waits for you", "no other agent can continue"):
        assert false_alarm not in told, told
