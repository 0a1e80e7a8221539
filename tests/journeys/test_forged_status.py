"""A status that somebody wrote onto the board is told, stops nobody for good, and is put back by one command."""

from __future__ import annotations

import subprocess
from typing import Any

from tests.conftest import worktree_of
from tests.journeys.crews import Crew


def forge(crew: Crew, old: str, new: str) -> None:
    """What an agent does to the board under its lock."""
    words = ["flock", str(crew.paths.state_lock), "sed", "-i", f"s#{old}#{new}#", str(crew.paths.state)]
    subprocess.run(words, check=True)


def told(crew: Crew) -> list[dict[str, Any]]:
    return [one for one in crew.json("status")["alerts"] if one["kind"] == "unexplained_status"]


def only(found: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(found) == 1, found
    return found[0]


def row(crew: Crew, agent: str) -> dict[str, Any]:
    (found,) = [one for one in crew.json("status")["agents"] if one["id"] == agent]
    return dict(found)


def test_a_forged_approval_frees_its_coder_and_one_command_puts_the_task_back_and_the_coder_goes_on(crew: Crew) -> None:
    crew.gate("go")
    crew.add("task-1")
    program = crew.script(
        "coder",
        """\
        echo "$LIZA_RUN" >> "$NOTES/runs"
        [ "$LIZA_RUN" != coder-1.1 ] || read line < "$NOTES/go"
        echo work > "$LIZA_TASK.txt"
        git add -A
        git commit -q -m work
        liza submit
        """,
    )
    crew.agent("coder-1", program).wait_said("ready")
    crew.wait_note("runs")
    commit = crew.git("rev-parse", "integration")
    forge(
        crew,
        "status: CLAIMED",
        f'status: APPROVED\\n    approved_by: "code-reviewer-1"\\n    review_commit: "{commit}"',
    )
    crew.wait(lambda _: row(crew, "coder-1")["status"] == "IDLE", "an agent that is free")
    assert row(crew, "coder-1")["current_task"] is None
    alarm = only(told(crew))
    assert alarm["next"] == "liza restore --task task-1"
    crew.liza(*alarm["next"].split()[1:])
    task = crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert told(crew) == []
    assert task.review_commit == crew.git("rev-parse", "task/task-1")
    assert [event.event for event in task.history].count("restore") == 1
    assert (crew.notes / "runs").read_text().split() == ["coder-1.1", "coder-1.2"]
    assert "unchanged" in crew.liza("restore", "--task", "task-1")


def test_a_forged_verdict_is_told_and_the_task_waits_for_its_review_again(crew: Crew) -> None:
    there = crew.work_by_hand("task-1")
    crew.liza("submit", cwd=there)
    before = crew.task("task-1")
    forge(crew, "status: READY_FOR_REVIEW", 'status: APPROVED\\n    approved_by: "code-reviewer-1"')
    alarm = only(told(crew))
    assert "task-1 is APPROVED, and its history has no verdict on" in alarm["message"]
    crew.liza(*alarm["next"].split()[1:])
    after = crew.task("task-1")
    assert (after.status, after.approved_by, after.review_commit) == (before.status, None, before.review_commit)
    assert told(crew) == []


def test_a_task_whose_coder_has_other_work_by_now_is_free_for_anybody(crew: Crew) -> None:
    crew.work_by_hand("task-1")
    forge(crew, "status: CLAIMED", "status: DRAFT")
    crew.add("task-2")
    crew.liza("claim", "task-2", "--agent", "coder-1")
    crew.liza("restore", "--task", "task-1")
    assert (crew.status("task-1"), crew.status("task-2")) == ("UNCLAIMED", "CLAIMED")
    crew.liza("claim", "task-1", "--agent", "coder-2")
    assert (worktree_of(crew.root, "task-1") / "task-1.txt").read_text() == "x\n"
