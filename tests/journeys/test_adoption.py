"""A supervisor that was killed leaves its session alive; the next one adopts it and loses nothing of its end."""

from __future__ import annotations

import pytest

from tests.conftest import commit_all, worktree_of
from tests.journeys.crews import APPROVE, Crew

WAIT = """\
echo "$$" > "$NOTES/at-$LIZA_RUN"
if [ "$LIZA_RUN" = coder-1.1 ]; then read line < "$NOTES/gate"; fi
"""
ENDS = {
    "submit": "echo work > task-1.txt; git add -A; git commit -q -m work; liza submit; exit 0\n",
    "crash": (
        'if [ "$LIZA_RUN" = coder-1.1 ]; then\n'
        'echo half > half.txt; git add half.txt; echo more >> README.md; echo "no such module"; exit 1; fi\n'
        'git status --porcelain > "$NOTES/unfinished"; read line < "$NOTES/gate"\n'
    ),
    "handoff": (
        'if [ "$LIZA_RUN" = coder-1.1 ]; then liza handoff "the model" --next "the view"; exit 42; fi\n'
        'liza ready > "$NOTES/brief"; read line < "$NOTES/gate"\n'
    ),
}


def killed(crew: Crew, end: str) -> str:
    """A session in the middle of its work, its supervisor killed with -9."""
    crew.add("task-1")
    crew.gate("gate")
    program = crew.script("coder", WAIT + ENDS[end])
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("at-coder-1.1")
    supervisor.kill()
    assert len(crew.living()) > 0
    assert not (crew.paths.run("coder-1.1") / "exit.json").exists()
    return program


def came(crew: Crew, end: str) -> None:
    """What the end of the session has to leave on the board, whoever was there to see it."""
    if end == "submit":
        task = crew.wait_status("task-1", "READY_FOR_REVIEW")
        assert (task.run, task.review_commit) == ("coder-1.1", crew.git("rev-parse", "task/task-1"))
        return
    crew.wait_note("at-coder-1.2")
    task = crew.task("task-1")
    assert (task.run, task.iteration, task.status) == ("coder-1.2", 2, "CLAIMED")
    if end == "crash":
        crash = next(event for event in task.history if event.event == "crash")
        assert "exit 1" in (crash.detail or "")
        assert "no such module" in (crash.detail or "")
        assert sorted(crew.wait_note("unfinished").splitlines()) == [" M README.md", "A  half.txt"]
    else:
        brief = crew.wait_note("brief")
        assert "HANDED OVER: the model Next: the view" in brief
        assert "crash" not in crew.heard("task-1")


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=() if end == "submit" else pytest.mark.campaign) for end in ENDS]
)
def test_a_restarted_supervisor_adopts_the_living_session(crew: Crew, end: str) -> None:
    program = killed(crew, end)
    again = crew.agent("coder-1", program)
    assert "coder-1.1" in again.wait_said("adopt")
    assert crew.task("task-1").run == "coder-1.1"
    crew.open_gate("gate")
    came(crew, end)


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=() if end == "crash" else pytest.mark.campaign) for end in ENDS]
)
def test_session_that_ended_without_supervisor_is_concluded_by_the_next(crew: Crew, end: str) -> None:
    program = killed(crew, end)
    crew.open_gate("gate")
    crew.wait(lambda _: (crew.paths.run("coder-1.1") / "exit.json").exists(), "the end")
    crew.agent("coder-1", program)
    came(crew, end)


@pytest.mark.campaign
def test_a_returning_supervisor_ends_the_old_session_of_its_task(crew: Crew) -> None:
    program = killed(crew, "submit")
    crew.liza("task", "release", "task-1")
    crew.wait(lambda _: not [one for one in crew.living() if "coder" in one], "the session's end")
    assert crew.status("task-1") == "UNCLAIMED"
    crew.liza("claim", "task-1", "--agent", "coder-2")
    again = crew.agent("coder-1", program)
    crew.wait_supervised("coder-1")
    assert crew.task("task-1").run == "coder-2.1"
    assert again.stop() == 0


def test_down_ends_a_killed_supervisors_session_and_work_continues(crew: Crew) -> None:
    program = killed(crew, "submit")
    assert "coder-1.1" in crew.liza("down", "--json")
    crew.wait_ended()
    assert "no supervisor runs" in crew.liza("down")
    crew.agent("coder-1", program)
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert (task.run, task.iteration) == ("coder-1.2", 1)


def test_a_review_goes_on_under_a_restarted_supervisor(crew: Crew) -> None:
    crew.add("task-1")
    crew.gate("gate")
    crew.liza("claim", "task-1", "--agent", "coder-1")
    there = worktree_of(crew.root, "task-1")
    commit_all(there, "by hand", {"task-1.txt": "by hand\n"})
    crew.liza("submit", cwd=there)
    program = crew.script("reviewer", 'echo "$$" > "$NOTES/at-work"; read line < "$NOTES/gate"\n' + APPROVE)
    first = crew.agent("code-reviewer-1", program)
    crew.wait_note("at-work")
    first.kill()
    again = crew.agent("code-reviewer-1", program)
    again.wait_said("adopt")
    crew.open_gate("gate")
    task = crew.wait_status("task-1", "MERGED")
    assert task.approved_by == "code-reviewer-1"
    assert [event.run for event in task.history if event.event == "approve"] == ["code-reviewer-1.1"]
