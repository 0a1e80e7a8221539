"""`config.push: auto`: the branch of a submitted task is at origin before its review, and its merge needs no origin."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import git, until
from tests.journeys.crews import APPROVE, WORK, processes_of, started


@pytest.mark.campaign
def test_a_submitted_task_is_pushed_by_its_crew_and_merged(tmp_path: Path) -> None:
    with started(tmp_path, push="auto") as crew:
        bare = tmp_path / "origin.git"
        git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
        crew.git("remote", "add", "origin", str(bare))
        coder = crew.script("coder", WORK)
        crew.add("task-1")
        crew.agent("coder-1", coder)
        crew.wait_status("task-1", "READY_FOR_REVIEW")
        until(lambda: crew.paths.push_failure.exists(), "the record of the refused push")
        alarm = next(one for one in crew.json("status")["alerts"] if one["kind"] == "push_failed")
        assert alarm["next"] == f"liza push --origin {bare}"
        assert git(bare, "for-each-ref") == "", "nothing is sent to an address that no person has accepted"

        crew.liza("push", "--origin", bare)
        assert git(bare, "rev-parse", "task/task-1") == crew.git("rev-parse", "task/task-1")
        crew.add("task-2")
        task = crew.wait_status("task-2", "READY_FOR_REVIEW")
        until(lambda: len(git(bare, "for-each-ref").splitlines()) == 2, "the second branch at origin")
        assert git(bare, "rev-parse", "task/task-2") == crew.git("rev-parse", "task/task-2") == task.review_commit
        assert "push_failed" not in [one["kind"] for one in crew.json("status")["alerts"]]

        bare.rename(tmp_path / "gone.git")
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
        crew.wait_status("task-2", "MERGED")


@pytest.mark.campaign
def test_the_next_supervisor_repeats_a_push_that_was_killed(tmp_path: Path) -> None:
    with started(tmp_path, push="auto") as crew:
        bare, hung = tmp_path / "origin.git", tmp_path / "hung"
        git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
        crew.git("remote", "add", "origin", str(bare))
        crew.liza("push", "--origin", bare)
        hook = bare / "hooks" / "pre-receive"
        hook.write_text(f"#!/bin/sh\n[ -e {hung} ] || {{ echo $$ > {hung}; exec sleep 600; }}\n")
        hook.chmod(0o755)
        crew.add("task-1")
        program = crew.script("coder", WORK)
        supervisor = crew.agent("coder-1", program)
        until(hung.exists, "a push that hangs")
        supervisor.kill()
        (push,) = [pid for pid, words in processes_of(crew.root) if " push task-1" in words]
        os.kill(push, signal.SIGKILL)
        try:
            crew.agent("coder-1", program)
            until(lambda: git(bare, "for-each-ref"), "the branch at origin")
            assert git(bare, "rev-parse", "task/task-1") == crew.git("rev-parse", "task/task-1")
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(hung.read_text()), signal.SIGKILL)


@pytest.mark.campaign
def test_of_several_supervisors_one_pushes_each_submission(tmp_path: Path) -> None:
    with started(tmp_path, push="auto") as crew:
        bare, pushes = tmp_path / "origin.git", tmp_path / "pushes"
        git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
        crew.git("remote", "add", "origin", str(bare))
        crew.liza("push", "--origin", bare)
        hook = bare / "hooks" / "post-receive"
        hook.write_text(f"#!/bin/sh\ncat >> {pushes}\n")
        hook.chmod(0o755)
        tasks = [f"task-{number}" for number in range(1, 7)]
        crew.add(*tasks)
        program = crew.script("coder", WORK)
        for number in (1, 2, 3):
            crew.agent(f"coder-{number}", program)
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE))
        for task in tasks:
            crew.wait_status(task, "MERGED")
        until(lambda: len(git(bare, "for-each-ref").splitlines()) == len(tasks), "every branch at origin")
        assert sorted(line.split()[2] for line in pushes.read_text().splitlines()) == [
            f"refs/heads/task/{task}" for task in tasks
        ]
