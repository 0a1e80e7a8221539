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


@pytest.mark.campaign
def test_a_directory_at_the_place_of_a_lock_is_told_with_the_command_that_mends_it(approved: Crew) -> None:
    odd = [made(approved, place) for place in PLACES]
    report = approved.run("doctor", "--fix")
    assert report.returncode == 5
    for place in odd:
        assert (
            f"{place} is a directory: every git that creates a lock file there fails → rm -r {place}" in report.stdout
        )
    mended = set()
    while (merged := approved.run("merge", "task-1")).returncode == 3:
        words = merged.stderr.splitlines()[-1].removeprefix("  next: ")
        assert words in {f"rm -r {place}" for place in odd} - mended
        subprocess.run(["sh", "-c", words], check=True)
        mended.add(words)
    assert merged.returncode == 0, merged
    assert mended
    assert approved.status("task-1") == "MERGED"


@pytest.mark.campaign
def test_a_supervisor_starts_and_works_beside_a_directory_at_the_place_of_a_lock(approved: Crew) -> None:
    made(approved, "worktrees/s1/index.lock")
    approved.add("task-2")
    agent = approved.agent("code-reviewer-1", approved.script("reviewer", "liza exit 0\n"))
    approved.wait_status("task-1", "MERGED")
    assert agent.process.poll() is None
    assert agent.stop() == 0


@pytest.mark.campaign
def test_a_link_to_nowhere_at_the_place_of_a_lock_is_removed_like_one_of_a_killed_git(approved: Crew) -> None:
    (approved.root / ".git" / "refs" / "heads" / "integration.lock").symlink_to("nowhere")
    approved.liza("merge", "task-1")
    assert approved.status("task-1") == "MERGED"
