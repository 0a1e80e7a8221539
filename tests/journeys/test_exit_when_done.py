"""`liza up --exit-when-done` and `liza start`: they end with 76 when only a person can go on, and not before."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.supervisor import person_waits
from liza.supervisor.person_waits import PersonWaits
from tests.conftest import until
from tests.journeys.crews import APPROVE, BIN, LIMIT, WORK, Crew, begun, started

ONLY_PERSON = 76
ASK = 'liza block "no document says it" --ask "Which colour?"\n'
CODER_ASKS = f'case "$LIZA_RUN" in\ncoder-*) {ASK};;\n*)\n{APPROVE};; esac\n'
WORKERS = ("up", "--planners", "0", "--exit-when-done")


def begin_up(crew: Crew, program: str, *more: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start `up --exit-when-done`; return it, and the file of its output."""
    log = crew.notes / "up.log"
    words = [str(BIN / "liza"), *WORKERS, "--program", program, *more]
    with log.open("wb") as out:
        child = subprocess.Popen(words, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    crew.children.append(child)
    return child, log


def test_up_ends_when_a_task_asks_and_names_the_answer(crew: Crew) -> None:
    crew.add("t1")
    done = crew.run(*WORKERS, "--program", crew.script("agent", CODER_ASKS))
    assert done.returncode == ONLY_PERSON, done.stdout
    *_, wait, end = done.stdout.splitlines()
    assert 'liza answer t1 "…"' in wait
    assert "Which colour?" in wait
    assert "all stopped" in end
    assert crew.status("t1") == "BLOCKED"
    assert crew.living() == []


@pytest.mark.campaign
def test_up_finishes_other_tasks_before_it_ends(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("t1", "t2")
    work = f'if [ "$LIZA_TASK" = t1 ]; then {ASK}else\necho at > "$NOTES/at"; cat "$NOTES/gate" > /dev/null\n{WORK}fi\n'
    program = crew.script("agent", f'case "$LIZA_RUN" in\ncoder-*)\n{work};;\n*)\n{APPROVE};; esac\n')
    child, log = begin_up(crew, program)
    crew.wait_note("at")
    crew.wait_status("t1", "BLOCKED")
    assert child.poll() is None
    crew.open_gate("gate")
    assert child.wait(timeout=LIMIT) == ONLY_PERSON, log.read_text()
    assert crew.status("t2") == "MERGED"


@pytest.mark.campaign
def test_up_ends_at_a_held_task(crew: Crew) -> None:
    crew.add("t1")
    hold = 'liza verdict approve "read it"\n'
    program = crew.script("agent", f'case "$LIZA_RUN" in\ncoder-*)\n{WORK};;\n*)\n{hold};; esac\n')
    coder = crew.agent("coder-1", program)
    crew.wait_status("t1", "READY_FOR_REVIEW")
    assert coder.stop() == 0
    crew.prepare("verdict", "approve", "--task", "t1", "read it")
    crew.prepare("queue", "hold", "t1", "after the release")
    done = crew.run(*WORKERS, "--program", program)
    assert done.returncode == ONLY_PERSON, done.stdout
    assert "liza queue release t1" in done.stdout


@pytest.mark.campaign
def test_up_ends_when_the_circuit_breaker_pauses_the_crew(tmp_path: Path) -> None:
    breaker = {"review_loop": 3, "severity": {"review_loop": "halt"}}
    with started(tmp_path, breaker=breaker, max_review_cycles=9) as crew:
        crew.add("t1")
        reject = 'liza verdict reject "1. $LIZA_TASK.txt: the total of line $$ is not rounded"\n'
        program = crew.script("agent", f'case "$LIZA_RUN" in\ncoder-*)\n{WORK};;\n*)\n{reject};; esac\n')
        done = crew.run(*WORKERS, "--program", program)
        assert done.returncode == ONLY_PERSON, done.stdout
        assert 'liza resume "…"' in done.stdout.splitlines()[-2]


@pytest.mark.campaign
def test_up_ends_when_the_budget_is_used_up(crew: Crew) -> None:
    crew.add("t1")
    crew.configure(budget={"seconds_per_task": 1})
    done = crew.run(*WORKERS, "--program", crew.script("agent", "sleep 60\n"))
    assert done.returncode == ONLY_PERSON, done.stdout
    assert "liza config set budget.seconds_per_task" in done.stdout.splitlines()[-2]


def test_a_pause_of_a_person_ends_nothing(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(person_waits, "QUIET_SECONDS", 0.0)
    crew.add("t1")
    crew.prepare("pause", "lunch")
    waits = PersonWaits(find_crew(crew.root), lambda agent, text: None)
    assert waits.final_lines(["coder-1", "code-reviewer-1"]) == ()
    crew.prepare("resume")
    assert waits.final_lines(["coder-1", "code-reviewer-1"]) == ()
    (line,) = waits.final_lines(["code-reviewer-1"])
    assert "liza up" in line


def test_what_waits_counts_after_some_quiet_seconds(crew: Crew) -> None:
    crew.add("t1")
    crew.prepare("claim", "t1", "--agent", "coder-1")
    crew.prepare("block", "why", "--ask", "which?", cwd=crew.paths.task_link("t1"))
    waits = PersonWaits(find_crew(crew.root), lambda agent, text: None)
    assert waits.final_lines(["coder-1"]) == ()
    until(lambda: waits.final_lines(["coder-1"]), "the end of the crew")


@pytest.mark.campaign
def test_start_ends_with_its_question(tmp_path: Path) -> None:
    crew = begun(tmp_path)
    try:
        done = crew.run("start", "Show the due date", "--program", crew.script("agent", CODER_ASKS))
        assert done.returncode == ONLY_PERSON, done.stdout + done.stderr
        assert "liza answer show-the-due-date" in done.stdout
    finally:
        crew.clean()
