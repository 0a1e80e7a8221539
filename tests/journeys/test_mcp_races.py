"""Several claimers of one task, and programs that die at each step: one owner, and nothing is lost or doubled."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.journeys.crews import BIN, Crew
from tests.journeys.mcp_programs import Connection, Program, commit, make_worktree


def test_one_of_several_claimers_gets_a_task(crew: Crew) -> None:
    crew.add("mail")
    programs = [Program(make_worktree(crew, name)) for name in ("fox", "owl")]

    def claim(program: Program) -> bool:
        ask = {"name": "claim_task", "arguments": {"task": "mail"}}
        return not program.ask("tools/call", ask)["result"]["isError"]

    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(claim, program) for program in programs]
        by_hand = pool.submit(crew.run, "claim", "mail", "--agent", "coder-1")
        winners = [answer.result() for answer in answers] + [by_hand.result().returncode == 0]
    assert winners.count(True) == 1, winners
    assert crew.heard("mail").count("claim") == 1
    assert crew.json("validate")["violations"] == []
    for program in programs:
        program.leave()
    assert crew.status("mail") == ("CLAIMED" if winners[2] else "UNCLAIMED")


def test_a_claim_and_a_submission_of_one_branch_do_not_meet(crew: Crew) -> None:
    worktree = make_worktree(crew, "fox")
    crew.git("switch", "-q", "-c", "fox", cwd=worktree)
    commit(crew, worktree, "mail.txt", "wrong\n")
    crew.prepare("submit", "fox")
    crew.prepare("verdict", "reject", "wrong", "--task", "fox")
    later = commit(crew, worktree, "mail.txt", "right\n")
    program = Program(worktree)
    ask = {"name": "claim_task", "arguments": {"task": "fox"}}
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(program.ask, "tools/call", ask)
        submitted = pool.submit(
            subprocess.run, [str(BIN / "liza"), "submit", "fox"], cwd=crew.root, capture_output=True, check=False
        )
        is_claimed = not answer.result()["result"]["isError"]
        assert is_claimed != (submitted.result().returncode == 0), submitted.result()
    if is_claimed:
        program.call("submit_work")
    assert (crew.status("fox"), crew.task("fox").review_commit) == ("READY_FOR_REVIEW", later)
    program.leave()
    assert len(crew.state().tasks) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("fault", ["bound submit.recorded", "bound claim.recorded", "bound hand-off.saved"])
def test_recovery_ends_what_a_call_that_died_began(crew: Crew, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    crew.add("mail")
    worktree = make_worktree(crew, "fox")
    program = Program(worktree, LIZA_FAULT=fault)
    ask = {"name": "claim_task", "arguments": {}}
    is_claimed = not program.ask("tools/call", ask)["result"]["isError"]
    assert is_claimed == (fault != "bound claim.recorded")
    made = commit(crew, worktree, "mail.txt")
    if fault == "bound submit.recorded":
        assert "could not be carried out" in program.refused("submit_work")
    program.leave()
    crew.run("doctor", "--fix")
    task = crew.task("mail")
    assert crew.json("validate")["violations"] == []
    if fault == "bound submit.recorded":
        assert (task.status, task.review_commit) == ("READY_FOR_REVIEW", made)
        assert crew.git("rev-parse", "refs/liza/review/mail") == made
    else:
        assert (task.status, task.run) == ("UNCLAIMED", None)
    assert crew.git("rev-parse", "task/mail") == made
    other = Connection(worktree, monkeypatch)
    if fault != "bound submit.recorded":
        assert other.call("claim_task")["task"] == "mail"
        assert other.call("submit_work")["commit"] == made
    other.leave()
