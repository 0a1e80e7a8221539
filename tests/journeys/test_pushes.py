"""`config.push: auto`: the branch of a submitted task is at origin before its review, and its merge needs no origin."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import git, until
from tests.journeys.crews import APPROVE, WORK, started


def test_a_submitted_task_is_pushed_by_its_crew_and_then_merged(tmp_path: Path) -> None:
    with started(tmp_path, push="auto") as crew:
        bare = tmp_path / "origin.git"
        git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
        crew.git("remote", "add", "origin", str(bare))
        crew.add("task-1")
        crew.agent("coder-1", crew.script("coder", WORK))
        task = crew.wait_status("task-1", "READY_FOR_REVIEW")
        until(lambda: crew.paths.push_failure.exists(), "the record of the refused push")
        alarm = next(one for one in crew.json("status")["alerts"] if one["kind"] == "push_failed")
        assert alarm["next"] == f"liza doctor --accept origin={bare}"
        assert git(bare, "for-each-ref") == "", "nothing is sent to an address that no person has accepted"

        crew.liza("doctor", "--accept", f"origin={bare}")
        until(lambda: git(bare, "for-each-ref"), "the branch at origin")
        pushed = git(bare, "rev-parse", "refs/heads/task/task-1")
        assert pushed == crew.git("rev-parse", "task/task-1") == task.review_commit
        assert "push_failed" not in [one["kind"] for one in crew.json("status")["alerts"]]

        bare.rename(tmp_path / "gone.git")
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
        crew.wait_status("task-1", "MERGED")
