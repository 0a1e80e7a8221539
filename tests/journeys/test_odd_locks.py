"""Something that is no lock stands where git makes one: it is told with the command that mends it, and nobody dies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.journeys.crews import Crew

PLACES = (
    "worktrees/merge/index.lock",
    "worktrees/s1/HEAD.lock",
    "refs/heads/integration.lock",
    "refs/liza/candidates/task-1.lock",
    "packed-refs.lock",
)


@pytest.fixture
def approved(crew: Crew) -> Crew:
    """A crew with a task that only has to be merged, and whose merge runs tests in its own slot."""
    crew.configure(integration_command="true")
    for task in ("task-0", "task-1"):
        there = crew.work_by_hand(task)
        crew.liza("submit", cwd=there)
        crew.liza("verdict", "approve", "good", "--task", task)
        if task == "task-0":
            crew.liza("merge", "task-0")
    return crew


def made(crew: Crew, place: str) -> Path:
    found = crew.root / ".git" / place
    found.parent.mkdir(parents=True, exist_ok=True)
    found.mkdir()
    (found / "inside").touch()
    return found


@pytest.mark.parametrize("place", PLACES)
def test_a_directory_at_the_place_of_a_lock_is_told_with_the_command_that_mends_it(approved: Crew, place: str) -> None:
    found = made(approved, place)
    for words in (("doctor",), ("doctor", "--fix")):
        report = approved.run(*words)
        assert report.returncode == 5
        assert f"{found} is a directory, and stops every git that makes a lock there → rm -r {found}" in report.stdout
    merged = approved.run("merge", "task-1")
    assert merged.returncode in (0, 3), merged
    if merged.returncode == 3:
        assert merged.stderr.splitlines()[-1] == f"  next: rm -r {found}"
    subprocess.run(["rm", "-r", str(found)], check=True)
    approved.liza("merge", "task-1")
    assert approved.status("task-1") == "MERGED"


def test_a_supervisor_starts_and_works_beside_a_directory_at_the_place_of_a_lock(approved: Crew) -> None:
    made(approved, "worktrees/s1/index.lock")
    approved.add("task-2")
    agent = approved.agent("code-reviewer-1", approved.script("reviewer", "liza exit 0\n"))
    approved.wait_status("task-1", "MERGED")
    assert agent.process.poll() is None
    assert agent.stop() == 0


def test_a_link_to_nowhere_at_the_place_of_a_lock_is_removed_like_one_of_a_killed_git(approved: Crew) -> None:
    (approved.root / ".git" / "refs" / "heads" / "integration.lock").symlink_to("nowhere")
    approved.liza("merge", "task-1")
    assert approved.status("task-1") == "MERGED"
