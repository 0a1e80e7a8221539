"""Claims of programs that Liza did not start: who may claim, what a submission leaves, what the end of one leaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from liza.model.errors import NotOwner, Refused
from liza.model.history_events import HistoryEvent
from liza.model.invariants import check_board
from liza.model.model import Event, Goal, Handoff, State, Status, Submission, Task
from liza.model.transitions import find_illegal_changes
from liza.model.value_classes import replace
from liza.tasks.rules import bound_claims, claims, picking, submissions
from liza.tasks.rules.bound_claims import BoundWorktree
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.submissions import OutsideWork

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOTE = Handoff(agent="coder-101", summary="it ended", next_action="go on")
HOST = ""  # a crew on one host
HERE = BoundWorktree(path="/w/fox", base="b" * 40, program="claude")


def task(name: str = "mail", **fields: object) -> Task:
    usual = {"description": "d", "done_when": "d", "scope": "mail.txt", "spec_ref": "README.md"}
    return Task(**{"id": name, "status": Status.UNCLAIMED, **usual, **fields})  # type: ignore[arg-type]


def board(*tasks: Task) -> State:
    return State(version=1, revision=1, goal=Goal(id="g", status="IN_PROGRESS"), tasks=tasks)


def claimed(*tasks: Task) -> tuple[State, str]:
    return bound_claims.claim(board(*tasks or (task(),)), "mail", "coder-101", HERE, NOW, Evidence())


def work(letter: str) -> SubmittedWork:
    return SubmittedWork(head=letter * 40, ahead=True, branch="task/mail")


def get(state: State) -> Task:
    return claims.get_task(state, "mail")


def test_a_bound_claim_has_an_owner_and_no_slot() -> None:
    before = board(task())
    state, run = claimed()
    bound = get(state)
    assert (bound.status, bound.assigned_to, bound.run, bound.worktree) == ("CLAIMED", "coder-101", run, None)
    assert bound_claims.is_bound(bound)
    assert not check_board(state)
    assert not find_illegal_changes(before, state)


def test_no_coder_of_the_crew_takes_a_bound_claim_over() -> None:
    state, _ = claimed()
    late = NOW + timedelta(days=1)
    assert picking.claim_obstacle(state, get(state), "coder-1", late, Evidence()) == "its author goes on with it"
    assert bound_claims.find_obstacle(state, get(state), "/w/owl", late, Evidence(), HOST) == "coder-101 works on it"
    with pytest.raises(Refused, match="coder-101 works on it"):
        bound_claims.claim(state, "mail", "coder-102", replace(HERE, path="/w/owl"), late, Evidence())


def test_returned_work_waits_for_the_same_worktree() -> None:
    returned = task(
        status=Status.REJECTED,
        review_commit="c" * 40,
        rejection_reason="no",
        submission=Submission(worktree="/w/fox"),
    )
    state = board(returned)
    assert bound_claims.find_obstacle(state, returned, "/w/owl", NOW, Evidence(), HOST) == "its author goes on with it"
    assert bound_claims.find_obstacle(state, returned, "/w/fox", NOW, Evidence(), HOST) is None
    assert bound_claims.choose_task(board(task("a"), returned), "/w/fox", NOW, Evidence(), HOST) == "mail"
    assert bound_claims.choose_task(board(task("a"), returned), "/w/owl", NOW, Evidence(), HOST) == "a"


def test_the_same_directory_of_another_host_has_other_tasks() -> None:
    returned = task(status=Status.REJECTED, review_commit="c" * 40, submission=Submission(worktree="/w/fox", host="h1"))
    state = board(returned)
    assert bound_claims.list_tasks_of(state, "/w/fox", "h1") == (returned,)
    assert bound_claims.list_tasks_of(state, "/w/fox", "h2") == ()
    assert bound_claims.find_obstacle(state, returned, "/w/fox", NOW, Evidence(), "h2") == "its author goes on with it"


def test_each_busy_agent_is_passed_over() -> None:
    state, _ = claimed(task(), task("news"))
    assert bound_claims.choose_agent(state, claims.get_task(state, "news")) == "coder-102"
    assert bound_claims.choose_agent(state, task(failed_by=("coder-102",))) == "coder-103"


def test_submitted_work_has_no_owner_and_no_session_to_wait_for() -> None:
    state, run = claimed()
    state = bound_claims.submit(state, "mail", run, work("c"), None, NOW)
    submitted = get(state)
    assert (submitted.status, submitted.run, submitted.assigned_to) == ("READY_FOR_REVIEW", None, None)
    assert not check_board(state)
    assert picking.review_obstacle(submitted, "code-reviewer-1", Evidence()) is None
    assert bound_claims.submit(state, "mail", run, work("c"), None, NOW) == state
    later = get(bound_claims.submit(state, "mail", run, work("d"), None, NOW))
    assert (later.review_commit, later.run) == ("d" * 40, None)


def test_a_run_that_lost_its_task_submits_nothing() -> None:
    state, run = claimed()
    released = claims.release(state, "mail", run, NOW, "human:ada")
    assert get(released).submission is None
    with pytest.raises(NotOwner):
        bound_claims.submit(released, "mail", run, work("c"), None, NOW)
    assert bound_claims.hand_off(released, "mail", run, NOTE, NOW) == released


def test_a_hand_off_frees_the_task_of_the_crew() -> None:
    state, run = claimed()
    state = bound_claims.hand_off(state, "mail", run, NOTE, NOW)
    left = get(state)
    assert (left.status, left.run, left.submission) == ("UNCLAIMED", None, None)
    assert state.handoff["mail"].summary == "it ended"
    assert picking.claim_obstacle(state, left, "coder-1", NOW, Evidence()) is None


def test_a_hand_off_keeps_work_of_its_author_for_its_author() -> None:
    event = Event(time=NOW, event=HistoryEvent.SUBMIT_WORK.value)
    own = task(
        status=Status.REJECTED,
        rejection_reason="no",
        review_commit="c" * 40,
        base_commit="b" * 40,
        history=(event,),
        submission=Submission(branch="fox", worktree="/w/fox"),
    )
    state, run = claimed(own)
    left = get(bound_claims.hand_off(state, "mail", run, NOTE, NOW))
    assert left.submission is not None
    assert (left.status, left.submission.branch, picking.waits_for_author(left)) == ("UNCLAIMED", "fox", True)
    assert bound_claims.leave(state, "/w/fox", HOST) == state


def test_the_crew_goes_on_with_submitted_tasks_of_a_program_that_left() -> None:
    state, run = claimed()
    state = bound_claims.submit(state, "mail", run, work("c"), None, NOW)
    left = get(bound_claims.leave(state, "/w/fox", HOST))
    assert left.submission is not None
    assert (left.status, left.submission.fix) == ("READY_FOR_REVIEW", "crew")


def test_a_program_submits_a_strangers_part_as_a_strangers() -> None:
    lower = task("parser", status=Status.REJECTED, review_commit="a" * 40, submission=Submission(is_foreign=True))
    state, run = claimed(task(), lower)
    submission = Submission(branch="fox", worktree="/w/fox", author="Ada <a@b.c>", is_foreign=True)
    outside = OutsideWork("c" * 40, "a" * 40, submission, contained=("parser",))
    state = bound_claims.submit(state, "mail", run, work("c"), outside, NOW)
    submitted = get(state)
    assert (submitted.submission, submitted.review, submitted.depends_on) == (submission, "human", ("parser",))
    assert bound_claims.leave(state, "/w/fox", HOST) == state


def test_a_bound_claim_raises_no_alarm_of_submitted_work() -> None:
    state, _ = claimed()
    assert not list(submissions.submission_alarms(state, {}))
    assert submissions.find_task(state, Submission(branch="fox", worktree="/w/fox")) == get(state)
