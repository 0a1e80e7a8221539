"""Real programs work in worktrees that they made: it is submitted, returned once, mended, and merged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.journeys.crews import Crew, start_up
from tests.journeys.test_submissions import REVIEWER, snapshot
from tests.real.conftest import Begin
from tests.real.own_sessions import PROGRAMS, Commit, Until, own_session

pytestmark = pytest.mark.real


def read_verdict(crew: Crew, task_id: str) -> dict[str, Any]:
    """Return what the statement about a landed task says."""
    commit = str(crew.task(task_id).merge_commit)
    crew.wait(lambda _: commit in crew.git("notes", "--ref", "liza", "list"), f"a statement about {task_id}")
    lines = [json.loads(line) for line in crew.git("notes", "--ref", "liza", "show", commit).splitlines()]
    (verdict,) = [line["predicate"] for line in lines if line["predicateType"] == "urn:liza:verdict:v1"]
    return dict(verdict)


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_of_a_session_is_returned_mended_and_merged(begin: Begin, name: str) -> None:
    scene = begin([name], lambda _: pytest.fail("no step"))
    crew = scene.crew
    config = (crew.root / ".git" / "config").read_text()
    with own_session(name, scene) as session:
        session.work(Commit("mail.txt", "wrong"))
        start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
        before = snapshot(session.worktree)
        first = crew.git("rev-parse", "HEAD", cwd=session.worktree)
        said = json.loads(crew.liza("submit", ".", "--json", cwd=session.worktree))
        task_id = said["task"]
        crew.wait_status(task_id, "REJECTED")
        (alert,) = [row for row in crew.json("status")["alerts"] if row["kind"] == "back_with_author"]
        print(alert)
        assert str(session.worktree) in alert["message"]
        assert "the text is wrong" in alert["message"]
        print(crew.liza("task", "show", task_id))
        print(crew.liza("diff", task_id))
        print(crew.liza("status"))
        assert snapshot(session.worktree) == before
        session.work(Commit("mail.txt", "right"))
        before = snapshot(session.worktree)
        again = crew.liza("submit", ".", cwd=session.worktree)
        print(again)
        crew.wait_status(task_id, "MERGED")
        assert snapshot(session.worktree) == before
        second = crew.git("rev-parse", "HEAD", cwd=session.worktree)
        assert crew.git("status", "--porcelain", cwd=session.worktree) == ""
    assert (crew.root / ".git" / "config").read_text() == config
    assert crew.git("show", "integration:mail.txt") == "right"
    verdict = read_verdict(crew, task_id)
    print(json.dumps(verdict, indent=1))
    assert verdict["reviewed"]["digest"]["gitCommit"] == second
    assert [(row["verdict"], row["commit"]["digest"]["gitCommit"]) for row in verdict["reviews"]] == [
        ("reject", first),
        ("approve", second),
    ]
    assert verdict["author"] == "Test Person <test@example.invalid>"
    assert verdict.get("assistedBy", []) == {"claude": ["claude"], "codex": []}[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_session_mends_what_came_back_over_mcp(begin: Begin, name: str) -> None:
    scene = begin([name], lambda _: pytest.fail("no step"), integration_command="grep -q right mail.txt")
    crew = scene.crew
    crew.add("mail")
    with own_session(name, scene) as session:
        crew.liza("mcp", "install", name, "--write")
        start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
        session.work(
            "list_tasks",
            "claim_task",
            Commit("mail.txt", "wrong"),
            "submit_work",
            Until("queue_status", "REJECTED"),
            "claim_task",
            Commit("mail.txt", "right"),
            "submit_work",
            Until("queue_status", "MERGED"),
        )
        print(crew.task("mail"))
        print(scene.model.asked[-1].text[-6000:])
    assert crew.git("show", "integration:mail.txt") == "right"
    verdict = read_verdict(crew, "mail")
    print(json.dumps(verdict, indent=1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_later_session_mends_what_came_back_over_mcp(begin: Begin, name: str) -> None:
    scene = begin([name], lambda _: pytest.fail("no step"), integration_command="grep -q right mail.txt")
    crew = scene.crew
    crew.add("mail")
    with own_session(name, scene) as session:
        crew.liza("mcp", "install", name, "--write")
        start_up(crew, "--planners", "0", "--coders", "0", "--program", crew.script("reviewer", REVIEWER))
        session.work("list_tasks", "claim_task", Commit("mail.txt", "wrong"), "submit_work")
        session.stop()
        crew.wait_status("mail", "REJECTED")
        print(crew.task("mail"), crew.liza("status"))
        session.work("queue_status", "claim_task", Commit("mail.txt", "right"), "submit_work")
        print(crew.task("mail"), crew.liza("status"))
        crew.wait_status("mail", "MERGED")
        print(scene.model.asked[-1].text[-6000:])
    assert crew.git("show", "integration:mail.txt") == "right"
    verdict = read_verdict(crew, "mail")
    print(json.dumps(verdict, indent=1))
