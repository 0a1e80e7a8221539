"""A session that moves a person's branch or pushes is told, with the way back; a person who does so is not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import git
from tests.journeys.crews import Crew


@pytest.fixture
def remote(crew: Crew) -> Path:
    """Where the person has pushed main."""
    place = crew.notes.parent / "remote.git"
    git(crew.root, "init", "-q", "--bare", str(place))
    crew.git("remote", "add", "origin", str(place))
    crew.git("push", "-q", "origin", "main")
    crew.git("branch", "side")
    return place


def alerts(crew: Crew) -> dict[str, dict[str, Any]]:
    return {one["about"]: one for one in crew.json("status")["alerts"] if one["kind"] == "moved_by_session"}


@pytest.mark.campaign
def test_a_session_that_commits_in_the_persons_checkout_moves_a_branch_and_pushes_is_told(
    crew: Crew, remote: Path
) -> None:
    main = crew.git("rev-parse", "main")
    crew.gate("go")
    crew.add("task-1")
    program = crew.script(
        "coder",
        """\
        git -C "$LIZA_ROOT" commit -q --allow-empty -m evil
        echo x > x
        git add -A
        git commit -q -m work
        git -C "$LIZA_ROOT" update-ref refs/heads/side HEAD
        git push -q --force origin HEAD:main HEAD:other
        git branch own
        git fetch -q origin
        echo done > "$NOTES/pushed"
        read line < "$NOTES/go"
        """,
    )
    supervisor = crew.agent("coder-1", program)
    crew.wait_note("pushed")
    crew.wait(
        lambda _: crew.paths.alerts.exists() and "pushed to origin/main" in crew.paths.alerts.read_text(), "alerts"
    )
    # A person commits on their own branch while the crew works, and takes a task's branch into another one.
    crew.git("branch", "mine", "integration")
    crew.git("worktree", "add", "-q", str(crew.notes.parent / "mine"), "mine")
    git(crew.notes.parent / "mine", "merge", "-q", "task/task-1")
    git(crew.notes.parent / "mine", "push", "-q", "origin", "mine")
    told = alerts(crew)
    assert set(told) == {"main", "side", "origin/main", "origin/other"}
    assert "the session coder-1.1 moved the branch main" in told["main"]["message"]
    assert "(commit: evil)" in told["main"]["message"]
    assert told["main"]["next"] == f"git -C {crew.root} reset --keep {main[:12]}"
    # Each command takes away its own alarm.
    for way in (told["main"]["next"], told["origin/main"]["next"], told["origin/other"]["next"]):
        subprocess.run(["sh", "-c", way], cwd=crew.root, check=True, capture_output=True)
    assert crew.git("rev-parse", "main") == main
    assert git(remote, "rev-parse", "main") == main
    assert set(alerts(crew)) == {"side"}
    assert crew.run("doctor", "--accept", "side").stdout.count("what sessions did to side until now is accepted") == 1
    assert alerts(crew) == {}
    crew.open_gate("go")
    assert supervisor.process.poll() is None


def test_a_session_that_switches_the_persons_checkout_is_told(crew: Crew) -> None:
    crew.gate("go")
    crew.add("task-1")
    crew.git("branch", "side")
    program = 'git -C "$LIZA_ROOT" switch -q side\necho done > "$NOTES/switched"\nread line < "$NOTES/go"\n'
    crew.agent("coder-1", crew.script("coder", program))
    crew.wait_note("switched")
    (told,) = alerts(crew).values()
    assert told["message"].startswith("the session coder-1.1 switched your checkout from main to side")
    subprocess.run(["sh", "-c", told["next"]], cwd=crew.root, check=True, capture_output=True)
    assert alerts(crew) == {}
    crew.open_gate("go")


def test_a_session_that_renames_the_persons_branch_and_makes_another_one_anew_is_told_and_each_way_back_works(
    crew: Crew,
) -> None:
    crew.gate("go")
    crew.add("task-1")
    crew.git("commit", "-q", "--allow-empty", "-m", "kept")
    crew.git("branch", "side")
    crew.git("commit", "-q", "--allow-empty", "-m", "more")
    main, side = crew.git("rev-parse", "main"), crew.git("rev-parse", "side")
    program = """\
        cd "$LIZA_ROOT"
        git branch -q -D side
        git branch side HEAD~2
        git branch -m main moved
        echo done > "$NOTES/renamed"
        read line < "$NOTES/go"
        """
    crew.agent("coder-1", crew.script("coder", program))
    crew.wait_note("renamed")
    told = alerts(crew)
    assert {one["next"] for one in told.values()} == {"git branch -m moved main", f"git branch -f side {side[:12]}"}
    assert (
        f"the branch side was deleted at {side[:10]}, and the session coder-1.1 created it" in told["side"]["message"]
    )
    assert "renamed the branch main; its name is moved now" in told["moved"]["message"]
    for one in told.values():
        subprocess.run(["sh", "-c", one["next"]], cwd=crew.root, check=True, capture_output=True)
    assert alerts(crew) == {}
    assert (crew.git("rev-parse", "main"), crew.git("rev-parse", "side")) == (main, side)
    assert crew.git("symbolic-ref", "HEAD") == "refs/heads/main"
    crew.open_gate("go")
