"""Real programs work in worktrees that they made: the work is submitted, returned once, mended, and merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.crews import Crew, start_up
from tests.journeys.test_submissions import REVIEWER, snapshot
from tests.real.conftest import Begin, Scene
from tests.real.model import turns
from tests.real.own_sessions import PROGRAMS, CodexSession, Commit, OwnSession, Until, own_session

pytestmark = pytest.mark.real
AUTHOR = "Test Person <test@example.invalid>"


def begin_scene(begin: Begin, name: str) -> Scene:
    return begin([name], turns(), integration_command="grep -q right mail.txt")


def begin_with_task(begin: Begin, name: str) -> Scene:
    """Begin a scene with a task, and a program that knows the server of Liza."""
    scene = begin_scene(begin, name)
    scene.crew.add("mail")
    scene.crew.liza("mcp", "install", name, "--write")
    return scene


def start_reviewer(crew: Crew) -> None:
    start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))


def read_verdict(crew: Crew, task_id: str) -> dict[str, Any]:
    """Return what the statement about a landed task says."""
    commit = str(crew.task(task_id).merge_commit)
    crew.wait(lambda _: commit in crew.git("notes", "--ref", "liza", "list"), f"a statement about {task_id}")
    lines = [json.loads(line) for line in crew.git("notes", "--ref", "liza", "show", commit).splitlines()]
    (verdict,) = [line["predicate"] for line in lines if line["predicateType"] == "urn:liza:verdict:v1"]
    return dict(verdict)


def check_landed(crew: Crew, task_id: str, worktree: Path, program: str) -> None:
    """Check that the mended commit of a worktree is what was approved, tested, merged, and stated."""
    second, first = crew.git("rev-parse", "HEAD", "HEAD~1", cwd=worktree).splitlines()
    assert crew.git("show", "integration:mail.txt") == "right"
    assert crew.git("status", "--porcelain", cwd=worktree) == ""
    verdict = read_verdict(crew, task_id)
    assert verdict["reviewed"]["digest"]["gitCommit"] == second
    reviews = [(row["verdict"], row["commit"]["digest"]["gitCommit"]) for row in verdict["reviews"]]
    assert reviews == [("reject", first), ("approve", second)]
    assert (verdict["howTested"], verdict["rejections"]) == ("tested", 1)
    assert (verdict["author"], verdict.get("assistedBy", [])) == (AUTHOR, [program] if program else [])
    assert crew.json("validate")["violations"] == []


def test_work_of_a_background_session_is_returned_mended_and_merged(begin: Begin) -> None:
    scene = begin_scene(begin, "claude")
    crew = scene.crew
    config = (crew.root / ".git" / "config").read_text()
    start_reviewer(crew)
    with own_session("claude", scene) as session:
        session.work(Commit("mail.txt", "wrong"))
        before = snapshot(session.worktree)
        crew.liza("submit", ".", cwd=session.worktree)
        crew.wait_status("worktree-fox", "REJECTED")
        (alert,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "back_with_author"]
        assert alert["next"] == "liza submit worktree-fox"
        assert f"(the text is wrong); it is back with Test Person (claude): {branch_and(session)}" in alert["message"]
        assert "mail.txt:1: wrong" in crew.liza("task", "show", "worktree-fox")
        assert snapshot(session.worktree) == before
        session.work(Commit("mail.txt", "right"))
        before = snapshot(session.worktree)
        crew.liza(*alert["next"].split()[1:])
        crew.wait_status("worktree-fox", "MERGED")
        assert snapshot(session.worktree) == before
        check_landed(crew, "worktree-fox", session.worktree, "claude")
    assert (crew.root / ".git" / "config").read_text() == config


def branch_and(session: OwnSession) -> str:
    return f"branch worktree-fox, worktree {session.worktree}"


def test_work_in_a_worktree_of_codex_lands_without_a_crew(begin: Begin) -> None:
    scene = begin_scene(begin, "codex")
    crew = scene.crew
    words = ("submit", ".", "--merge", "--program", crew.script("reviewer", REVIEWER))
    config = (crew.root / ".git" / "config").read_text()
    with own_session("codex", scene) as session:
        session.work(Commit("mail.txt", "wrong"))
        before = snapshot(session.worktree)
        returned = crew.run(*words, cwd=session.worktree)
        assert returned.returncode == 76, returned
        assert f"the text is wrong; it is back with Test Person: worktree {session.worktree}" in returned.stdout
        assert f"next: cd {session.worktree} && liza submit ." in returned.stdout
        assert snapshot(session.worktree) == before
        session.work(Commit("mail.txt", "right"))
        before = snapshot(session.worktree)
        assert "is merged into integration" in crew.liza(*words, cwd=session.worktree)
        assert snapshot(session.worktree) == before
        check_landed(crew, "write-mail-txt", session.worktree, "")
    assert (crew.root / ".git" / "config").read_text() == config


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_mends_what_came_back_over_mcp(begin: Begin, name: str) -> None:
    scene = begin_with_task(begin, name)
    crew = scene.crew
    start_reviewer(crew)
    with own_session(name, scene) as session:
        session.work(
            "list_tasks",
            "claim_task",
            Commit("mail.txt", "wrong"),
            "submit_work",
            Until("queue_status", '"next": "claim_task"'),
            "claim_task",
            Commit("mail.txt", "right"),
            "submit_work",
            Until("queue_status", '"MERGED"'),
        )
        assert crew.heard("mail").count("claim") == 2
        checked = json.loads(crew.run("programs", "check", name, "--mcp", "--json", cwd=session.worktree).stdout)
        assert checked["ok"], checked
        check_landed(crew, "mail", session.worktree, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_later_session_mends_what_came_back_over_mcp(begin: Begin, name: str) -> None:
    scene = begin_with_task(begin, name)
    crew = scene.crew
    with own_session(name, scene) as session:
        session.work("claim_task", Commit("mail.txt", "wrong"), "submit_work")
        session.stop()
        crew.wait(lambda _: crew.task("mail").submission.fix == "crew", "the hand-off of a session that ended")
        start_reviewer(crew)
        crew.wait_status("mail", "REJECTED")
        session.work("queue_status", "claim_task", Commit("mail.txt", "right"), "submit_work")
        crew.wait_status("mail", "MERGED")
        check_landed(crew, "mail", session.worktree, name)


def test_codex_may_call_the_tools_from_its_sandbox(begin: Begin) -> None:
    scene = begin_with_task(begin, "codex")
    crew = scene.crew
    session = CodexSession(scene)
    session.words = ()  # nobody is there to approve a call
    session.work("list_tasks", "claim_task")
    crew.wait_status("mail", "UNCLAIMED")
    assert crew.heard("mail").count("claim") == 1, session.told()
