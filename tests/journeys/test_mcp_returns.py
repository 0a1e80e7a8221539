"""Work of programs over MCP comes back: to the same program, to a later session in its worktree, or to its person."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.journeys.crews import Crew
from tests.journeys.mcp_programs import Connection, Program, commit, make_worktree


def test_the_author_of_a_claim_is_that_of_its_commit(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.git("-c", "user.name=Somebody Else", "commit", "-q", "--allow-empty", "-m", "Before")
    crew.git("branch", "-f", "integration", "main")
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Connection(worktree, monkeypatch)
    program.call("claim_task")
    assert "Somebody Else" not in str(crew.task("mail").submission)
    commit(crew, worktree, "mail.txt")
    program.call("submit_work")
    submission = crew.task("mail").submission
    assert submission is not None
    assert submission.author == "Test Person <test@example.invalid>"
    program.leave()


def test_its_person_submits_what_came_back_to_a_program(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Connection(worktree, monkeypatch)
    program.call("claim_task")
    crew.git("switch", "-q", "-c", "fox/mail", cwd=worktree)
    commit(crew, worktree, "mail.txt", "wrong\n")
    program.call("submit_work")
    program.leave()
    crew.prepare("verdict", "reject", "it is wrong", "--task", "mail")
    later = commit(crew, worktree, "mail.txt", "right\n")
    crew.prepare("submit", ".", cwd=worktree)
    assert [(task.id, task.status, task.review_commit) for task in crew.state().tasks] == [
        ("mail", "READY_FOR_REVIEW", later)
    ]


def test_a_later_session_claims_what_came_back_to_its_worktree(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Connection(worktree, monkeypatch)
    program.call("claim_task")
    commit(crew, worktree, "mail.txt", "wrong\n")
    program.call("submit_work")
    program.leave()
    crew.prepare("verdict", "reject", "it is wrong", "--task", "mail")
    later = Connection(worktree, monkeypatch)
    (own,) = later.call("queue_status")["yours"]
    assert (own["next"], own["data"]["rejected_because"]) == ("claim_task", "it is wrong")
    assert later.call("claim_task")["task"] == "mail"
    made = commit(crew, worktree, "mail.txt", "right\n")
    assert later.call("submit_work")["commit"] == made
    crew.prepare("verdict", "approve", "read it", "--task", "mail")
    crew.prepare("merge", "mail")
    (own,) = later.call("list_tasks")["yours"]
    assert (own["status"], own["claimable"], own["why_not"]) == ("MERGED", False, "it is merged")
    later.leave()


def test_a_worktree_that_its_program_removed_can_be_made_again(crew: Crew) -> None:
    worktree = make_worktree(crew, "fox")
    first = commit(crew, worktree, "mail.txt", "wrong\n")
    crew.prepare("submit", "--id", "mail", ".", cwd=worktree)
    crew.git("worktree", "remove", str(worktree))
    assert [row["kind"] for row in crew.json("status")["alerts"] if row["about"] == "mail"] == []
    crew.prepare("verdict", "reject", "it is wrong", "--task", "mail")
    (gone,) = [row for row in crew.json("status")["alerts"] if row["about"] == "mail"]
    assert (
        gone["message"] == f"{worktree} of mail is gone; its commit {first[:12]} is kept; mail came back: it is wrong"
    )
    subprocess.run(gone["next"].split(), cwd=crew.root, check=True)
    (back,) = [row for row in crew.json("status")["alerts"] if row["about"] == "mail"]
    assert back["next"] == f"cd {worktree} && liza submit ."


def test_a_killed_server_hands_off_without_a_crew(crew: Crew) -> None:
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Program(worktree)
    program.call("claim_task")
    made = commit(crew, worktree, "mail.txt")
    program.kill()
    crew.wait_status("mail", "UNCLAIMED")
    assert crew.git("rev-parse", "task/mail") == made


def test_the_end_of_a_session_leaves_the_next_one_its_claim(crew: Crew) -> None:
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Program(worktree)
    run = program.call("claim_task")["run"]
    program.kill_all()
    later = Program(worktree)
    assert later.call("claim_task")["run"] != run
    bound = {"task": "mail", "run": run, "worktree": str(worktree), "root": str(crew.root)}
    end = json.dumps({"call": "leave", "directory": str(worktree), "bound": bound})
    subprocess.run([sys.executable, "-P", "-m", "liza.mcp.mcp_calls"], input=end.encode(), cwd=worktree, check=True)
    assert crew.status("mail") == "CLAIMED"
    later.leave()
    assert crew.status("mail") == "UNCLAIMED"
