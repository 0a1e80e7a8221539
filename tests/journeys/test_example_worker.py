"""`examples/worker.py` in a crew: a server that is killed, notes, rejections, denials; and `liza demo --native`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.model.statuses import GoalStatus
from tests.conftest import variant
from tests.journeys.crews import BIN, LIMIT, Crew, started
from tests.journeys.test_api_in_a_crew import wait_served
from tests.journeys.test_demo import living

WORKER = Path(__file__).parent.parent.parent / "examples" / "worker.py"
TASKS = ("task-1", "task-2", "task-3", "task-4")
GATE = 'echo at > "$NOTES/at-$LIZA_RUN"\nread line < "$NOTES/gate"'


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """As that of other journeys, with the server of the worker API."""
    with started(tmp_path, api=True) as made:
        yield made


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Crew]:
    """A crew in a directory whose socket has a longer path than an address may have."""
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    with started(directory, api=True) as crew:
        assert len(os.fsencode(crew.paths.api_socket)) > 107
        yield crew


def program(crew: Crew, when: str = "", then: str = "") -> str:
    """The example as a program. ``then`` runs before each git command of a tool that matches ``when``."""
    if when:
        (crew.notes / "bin").mkdir()
        shim = crew.notes / "bin" / "git"
        shim.write_text(
            f'#!/bin/sh\ncase "$LIZA_RUN $1" in {when})\n{then}\n;; esac\nexec {shutil.which("git")} "$@"\n'
        )
        shim.chmod(0o755)
    text = f'export NOTES PATH="$NOTES/bin:$PATH"\nexec {sys.executable} "{WORKER}"\n'
    return crew.script("agent", text, ready=False)


def up(crew: Crew, program: str, coders: int = 1, reviewers: int = 0, planners: int = 0) -> None:
    words = ("--coders", coders, "--reviewers", reviewers, "--planners", planners)
    crew.liza("up", "-d", *map(str, words), "--program", program)


def listed(crew: Crew, ref: str, task: str) -> list[str]:
    return [line for line in crew.git("show", f"{ref}:{task}.txt").splitlines() if not line.startswith("#")]


@pytest.mark.campaign
@pytest.mark.needs("bwrap")
def test_confined_example_workers_merge_their_tasks_through_session_sockets(
    deep: Crew,
) -> None:
    deep.configure(confinement="required", shared=[str(deep.notes)])
    for path in (WORKER, WORKER.with_name("listing_model.py")):
        shutil.copy(path, deep.notes)
    deep.add("task-1")
    text = f'exec {sys.executable} "{deep.notes / WORKER.name}"\n'
    up(deep, deep.script("agent", text, ready=False), coders=1, reviewers=1)
    deep.wait_status("task-1", "MERGED")
    assert listed(deep, "integration", "task-1")[0] == "README.md"
    runs = {event.run for event in deep.task("task-1").history} - {None}
    assert runs == {"coder-1.1", "code-reviewer-1.1"}


@pytest.mark.campaign
@pytest.mark.parametrize("tasks", [TASKS[:2], variant(TASKS)], ids=len)
def test_example_workers_merge_every_task_once_beside_server_kills(deep: Crew, tasks: tuple[str, ...]) -> None:
    crew = deep
    crew.gate("gate")
    crew.add(*tasks)
    up(crew, program(crew, "'coder-1.1 ls-files'", GATE), coders=2, reviewers=1)
    crew.wait_note("at-coder-1.1")
    os.kill(wait_served(crew), signal.SIGKILL)
    crew.liza("note", "--to", "coder-1", "--now", "--priority", "urgent", "mind the commas")
    output = crew.paths.run("coder-1.1") / "output.log"
    # The stream is open again, and the prompt is in the worker, before its turn goes on.
    crew.wait(lambda _: (crew.paths.run("coder-1.1") / "delivered.txt").exists(), "the note is delivered")
    assert "busy (reported by api)" in crew.liza("agents", "coder-1")
    crew.open_gate("gate")
    for task in tasks:
        crew.wait_status(task, "MERGED")
        assert listed(crew, "integration", task)[0] == "README.md"
        assert crew.heard(task).count("merge") == crew.heard(task).count("submit") == 1
    told = next(task for task in tasks if "coder-1.1" in {event.run for event in crew.task(task).history})
    assert "mind the commas" in crew.git("log", "--format=%B", "integration", "--", f"{told}.txt")
    assert "mind the commas" in output.read_text()
    assert not list(crew.paths.runs.glob("coder-1/inbox/*.json"))
    crew.liza("down")
    assert crew.living() == []
    metrics = crew.json("metrics")
    assert metrics["by_outcome"]["finished"]["sessions"] == 2 * len(tasks)
    assert metrics["by_tool"]["shell"]["calls"] == 5 * len(tasks)


@pytest.mark.campaign
def test_a_rejected_example_tries_again(crew: Crew) -> None:
    crew.add("task-1")
    up(crew, program(crew))
    first = crew.wait_status("task-1", "READY_FOR_REVIEW").review_commit
    crew.liza("claim", "task-1", "--agent", "code-reviewer-1")
    crew.liza("verdict", "reject", "list the commas too", "--task", "task-1")
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.iteration, task.review_commit != first) == (2, True)
    assert listed(crew, str(task.review_commit), "task-1") == ["README.md"]


@pytest.mark.campaign
def test_a_reviewer_rejects_a_list_that_is_not_true(crew: Crew) -> None:
    there = crew.work_by_hand("task-1")
    crew.liza("submit", cwd=there)
    up(crew, program(crew), coders=0, reviewers=1)
    crew.wait(lambda _: "reject" in crew.heard("task-1"), "the rejection")
    reason = next(event.detail for event in crew.task("task-1").history if event.event == "reject")
    assert "< README.md" in str(reason)


def test_the_model_learns_why_a_tool_was_denied(crew: Crew) -> None:
    crew.add("task-1", scope=".git/hooks/pre-commit")
    up(crew, program(crew))
    reason = str(crew.wait_status("task-1", "BLOCKED").blocked_reason)
    assert reason.startswith("[liza] ")


def test_the_model_learns_why_a_submit_was_refused(crew: Crew) -> None:
    crew.add("task-1")
    up(crew, program(crew, "*' commit'", "touch forgotten.txt"))
    reason = str(crew.wait_status("task-1", "BLOCKED").blocked_reason)
    assert "forgotten.txt" in reason


@pytest.mark.campaign
def test_a_planner_with_nothing_to_plan_completes_the_goal(crew: Crew) -> None:
    crew.add("task-1")
    up(crew, program(crew), reviewers=1, planners=1)
    crew.wait(lambda state: state.goal.status == GoalStatus.COMPLETED, "the goal is reached")
    assert list(crew.json("metrics")["by_outcome"]) == ["finished"]


@pytest.mark.campaign
def test_the_demo_with_native_workers(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    done = subprocess.run(
        [str(BIN / "liza"), "demo", "--native", str(root)], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 tasks merged" in done.stdout
    assert "shell  20 calls  0 failed" in done.stdout
    assert str(WORKER) in done.stdout
    assert living(root) == []
