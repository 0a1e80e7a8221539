from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.breaker.rules import board_reports
from liza.merging.rules import merge_rules
from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.model import Anomaly, Handoff, MergeInProgress, State, Status
from liza.model.session_ends import SessionOutcome
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, claims, coding, reviews
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence, MissingParts, release_complete_drafts
from tests.unit.boards import (
    BASE,
    HEAD,
    NOW,
    OTHER,
    board,
    claimed,
    later,
    submitted,
    task,
    under_review,
    with_config,
)

S = Status
GOOD = SubmittedWork(head=HEAD, ahead=True, branch="task/task-1")
NOTE = Handoff(agent="coder-1", summary="half", next_action="the other half")
ME = Invocation(now=NOW, by="human:ann")


@pytest.mark.parametrize(
    ("work", "why", "hint"),
    [
        (SubmittedWork(head=HEAD, ahead=True, branch="other"), "HEAD is on other", "git switch task/task-1"),
        (SubmittedWork(head=HEAD, ahead=True), "HEAD is on no branch", "git switch task/task-1"),
        (SubmittedWork(head=HEAD, ahead=True, branch="task/task-1", dirty=("a.py",)), "not committed: a.py", "git add"),
        (
            SubmittedWork(head=HEAD, ahead=True, branch="task/task-1", dirty=tuple("abcdefg")),
            "not committed: a, b, c, d, e and 2 more$",
            "git add",
        ),
        (SubmittedWork(head=BASE, ahead=False, branch="task/task-1"), "no commit beyond the base", "git commit"),
        (
            SubmittedWork(head=HEAD, ahead=True, branch="task/task-1", hidden=("AGENTS.md",)),
            "holds text of yours beside the brief",
            "git add -f AGENTS.md",
        ),
    ],
)
def test_unfinished_work_cannot_be_submitted(work: SubmittedWork, why: str, hint: str) -> None:
    state, run = claimed(board(task()))
    with pytest.raises(Refused, match=why) as refusal:
        coding.submit(state, "task-1", run, work, NOW)
    assert hint in refusal.value.hint


def test_an_old_run_cannot_submit_after_a_resume() -> None:
    state, old = claimed(board(task()))
    state, _ = claims.resume(state, "task-1", old, NOW)
    for said in (
        lambda: coding.submit(state, "task-1", old, GOOD, NOW),
        lambda: coding.block(state, "task-1", old, "why", ("what?",), NOW),
        lambda: coding.handoff(state, "task-1", old, NOTE, NOW),
    ):
        with pytest.raises(NotOwner, match="You no longer own this task"):
            said()


def test_a_hand_off_after_a_commit_is_no_try() -> None:
    state, run = claimed(with_config(board(task()), max_coder_iterations=3))
    tries = []
    for number, moved in enumerate((True, True, False, True, True), start=1):
        state = coding.handoff(state, "task-1", run, NOTE, later(number))
        state = coding.record_session_end(
            state, "task-1", run, outcome=SessionOutcome.HANDED_OFF, detail="42", moved=moved, now=later(number)
        )
        state, run = claims.resume(state, "task-1", run, later(number))
        tries.append(state.tasks[0].iteration)
    assert tries == [1, 1, 2, 3, 4]
    assert state.tasks[0].failed_by == ()


def test_a_repeated_verb_of_the_same_run_changes_nothing() -> None:
    state, run = submitted(board(task()))
    assert coding.submit(state, "task-1", run, GOOD, later(1)) is state
    approved = replace(state, tasks=(replace(state.tasks[0], status=S.APPROVED, approved_by="code-reviewer-1"),))
    assert coding.submit(approved, "task-1", run, GOOD, later(1)) is approved
    held, run = claimed(board(task()))
    blocked = coding.block(held, "task-1", run, "why", ("what?",), NOW)
    assert coding.block(blocked, "task-1", run, "why", ("what?",), later(1)) is blocked


def test_the_rejected_commit_itself_cannot_be_submitted_again() -> None:
    state, _, review = under_review(board(task()))
    state = reviews.reject(state, "task-1", review, HEAD, NOW, "rounding is untested")
    state, run = claimed(state)
    with pytest.raises(Refused, match="is the commit that was sent back"):
        coding.submit(state, "task-1", run, GOOD, NOW)
    assert (
        coding.submit(state, "task-1", run, SubmittedWork(head=OTHER, ahead=True, branch="task/task-1"), NOW)
        .tasks[0]
        .status
        is S.READY_FOR_REVIEW
    )


def test_a_coder_cannot_approve_its_own_work_under_any_name() -> None:
    state, run = submitted(board(task()))
    over = Evidence(dead=frozenset({run}))
    with pytest.raises(Refused, match="not a code-reviewer"):
        reviews.claim_review(state, "task-1", "coder-1", NOW, over)
    with pytest.raises(Refused, match="an agent cannot review its own work"):
        reviews.approve(state, "task-1", run, HEAD, NOW)


def test_a_review_waits_until_the_authors_session_is_over() -> None:
    state, run = submitted(board(task()))
    with pytest.raises(Refused, match=f"session {run} is not over"):
        reviews.claim_review(state, "task-1", "code-reviewer-1", NOW, Evidence())


def test_a_verdict_binds_the_commit_that_was_reviewed() -> None:
    state, _, review = under_review(board(task()))
    with pytest.raises(Refused, match="the verdict is about dddddddddddd"):
        reviews.approve(state, "task-1", review, OTHER, NOW)
    done = reviews.approve(state, "task-1", review, HEAD, NOW)
    assert (done.tasks[0].status, done.tasks[0].approved_by) == (S.APPROVED, "code-reviewer-1")
    assert reviews.approve(done, "task-1", review, HEAD, NOW) is done


def test_an_old_review_run_has_no_verdict() -> None:
    state, _, review = under_review(board(task()))
    state = reviews.release_review(state, "task-1", review, NOW)
    with pytest.raises(NotOwner, match="You no longer own this review"):
        reviews.reject(state, "task-1", review, HEAD, NOW, "no")


@pytest.mark.parametrize(("reason", "questions"), [("", ("q",)), ("r", ()), ("r", ("a", "b", "c", "d")), ("r", (" ",))])
def test_a_block_needs_a_reason_and_one_to_three_questions(reason: str, questions: tuple[str, ...]) -> None:
    state, run = claimed(board(task()))
    with pytest.raises(UsageError):
        coding.block(state, "task-1", run, reason, questions, NOW)


def test_a_coders_question_is_no_failure_and_gets_its_answer() -> None:
    state, run = claimed(board(task()))
    state = coding.block(state, "task-1", run, "unclear", ("Which address?",), NOW)
    assert state.tasks[0].failed_by == ()
    state = backlog.unblock(state, "task-1", ["pay@example.org"], ME)
    freed = state.tasks[0]
    assert (freed.status, freed.iteration, freed.worktree) == (S.UNCLAIMED, 0, "s1")
    assert [(one.question, one.answer) for one in freed.answers] == [("Which address?", "pay@example.org")]
    assert claimed(state)[0].tasks[0].assigned_to == "coder-1"


def test_two_failed_coders_need_another_plan_or_a_persons_answer() -> None:
    one = task(status=S.BLOCKED, blocked_reason="r", blocked_questions=("q",), failed_by=("coder-1", "coder-2"))
    with pytest.raises(Refused, match="another plan") as refusal:
        backlog.unblock(board(one), "task-1", ["x"], replace(ME, by="planner-1.1"))
    assert "supersede" in refusal.value.hint
    answered = backlog.unblock(board(one), "task-1", ["x"], replace(ME, by="human:ann")).tasks[0]
    assert (answered.status, answered.failed_by) == (S.UNCLAIMED, ())


def _session(state: State, run: str, outcome: SessionOutcome, moved: bool = False) -> State:
    return coding.record_session_end(state, "task-1", run, outcome=outcome, detail="x", moved=moved, now=NOW)


def test_two_idle_sessions_in_a_row_block_the_task() -> None:
    state, run = claimed(board(task()))
    state = _session(state, run, SessionOutcome.FINISHED)
    assert (state.tasks[0].status, state.tasks[0].idle_sessions) == (S.CLAIMED, 1)
    state, run = claims.resume(state, "task-1", run, NOW)
    moved = _session(state, run, SessionOutcome.FINISHED, moved=True)
    assert (moved.tasks[0].status, moved.tasks[0].idle_sessions) == (S.CLAIMED, 0)
    assert _session(state, run, SessionOutcome.FINISHED).tasks[0].status is S.BLOCKED


def test_five_crashes_on_one_task_block_it() -> None:
    state, run = claimed(board(task()))
    state = _session(state, run, SessionOutcome.CRASHED)
    assert state.tasks[0].status is S.CLAIMED
    state, run = claims.resume(state, "task-1", run, NOW)
    for _ in range(3):
        state = _session(state, run, SessionOutcome.CRASHED)
        assert (state.tasks[0].status, state.tasks[0].assigned_to, state.tasks[0].run) == (S.UNCLAIMED, None, None)
        state, run = claimed(state)
    state = _session(state, run, SessionOutcome.CRASHED)
    assert (state.tasks[0].status, state.tasks[0].failed_by) == (S.BLOCKED, ("coder-1",))


@pytest.mark.parametrize(
    ("between", "status"),
    [
        (SessionOutcome.STOPPED, S.UNCLAIMED),
        (SessionOutcome.QUOTA, S.UNCLAIMED),
        (SessionOutcome.HELD_UP, S.UNCLAIMED),
        (SessionOutcome.FINISHED, S.CLAIMED),
        (SessionOutcome.CONTEXT_FULL, S.CLAIMED),
    ],
)
def test_a_task_is_released_after_two_crashes_in_a_row(between: SessionOutcome, status: S) -> None:
    state, run = claimed(board(task()))
    state = _session(state, run, SessionOutcome.CRASHED)
    state, run = claims.resume(state, "task-1", run, NOW)
    state = _session(state, run, between)
    state, run = claims.resume(state, "task-1", run, NOW)
    state = _session(state, run, SessionOutcome.CRASHED)
    assert state.tasks[0].status is status


def test_held_up_session_counts_for_no_limit_and_no_try() -> None:
    state, run = claimed(with_config(board(task()), max_coder_iterations=1))
    for _ in range(coding.MAX_CRASHES + 1):
        state = _session(state, run, SessionOutcome.HELD_UP)
        assert _session(state, run, SessionOutcome.HELD_UP) is state
        state, run = claims.resume(state, "task-1", run, NOW)
    found = state.tasks[0]
    assert (found.status, found.iteration, found.idle_sessions, found.failed_by) == (S.CLAIMED, 1, 0, ())
    assert [event.event for event in found.history].count("held up") == coding.MAX_CRASHES + 1


@pytest.mark.parametrize(
    ("kind", "word", "on_purpose", "held_up"),
    [
        # kind        word  on purpose  whose fault
        ("crashed", None, False, True),
        ("crashed", "1", False, True),
        ("finished", None, False, True),  # a program that ends with 0 whatever it was refused
        ("handed off", None, False, True),
        ("finished", "0", False, False),
        ("handed off", "42", False, False),
        ("stopped", None, True, False),
        ("finished", None, True, False),  # fenced
        ("stopped", None, False, False),  # never started
    ],
)
def test_session_whose_verb_failed_is_held_up_unless_ended_deliberately(
    kind: str, word: str | None, on_purpose: bool, held_up: bool
) -> None:
    assert coding.is_end_postponed(SessionOutcome(kind), word, on_purpose) is held_up


def test_a_session_of_an_old_run_changes_nothing() -> None:
    state, old = claimed(board(task()))
    state, _ = claims.resume(state, "task-1", old, NOW)
    assert _session(state, old, SessionOutcome.CRASHED) is state


def test_a_merge_needs_an_approved_task_and_leaves_no_worktree() -> None:
    state, _, review = under_review(board(task()))
    with pytest.raises(Refused, match="only an approved task"):
        merge_rules.begin_merge(state, "task-1", MergeInProgress(candidate=OTHER, expected=BASE))
    state = reviews.approve(state, "task-1", review, HEAD, NOW)
    state = merge_rules.begin_merge(state, "task-1", MergeInProgress(candidate=OTHER, expected=BASE))
    tested = MergeInProgress(candidate=OTHER, expected=BASE, tested=True)
    done = merge_rules.record_merge(state, "task-1", Invocation(now=NOW, by="coder-1", commit=OTHER), tested)
    assert (done.tasks[0].status, done.tasks[0].merge_commit, done.tasks[0].worktree) == (S.MERGED, OTHER, None)
    assert merge_rules.record_merge(done, "task-1", Invocation(now=NOW, by="coder-2", commit=OTHER), tested) is done


def test_a_failed_merge_returns_to_its_coder_as_a_fix() -> None:
    state, _, review = under_review(board(task()))
    state = reviews.approve(state, "task-1", review, HEAD, NOW)
    state = merge_rules.fail_merge(state, "task-1", Invocation(now=NOW, by="coder-1", detail="conflict in a.py"))
    assert state.tasks[0].status is S.INTEGRATION_FAILED
    state, _ = claimed(state)
    assert state.tasks[0].integration_fix
    assert state.tasks[0].base_commit == BASE


def test_a_candidate_that_waits_for_files_blocks_no_other() -> None:
    state, _, review = under_review(board(task(), task("task-2")))
    state = reviews.approve(state, "task-1", review, HEAD, NOW)
    assert merge_rules.next_to_merge(state, NOW) is not None
    state = merge_rules.begin_merge(state, "task-1", MergeInProgress(candidate=OTHER, expected=BASE))
    state = merge_rules.wait_for_files(state, "task-1", ("a.py",))
    assert merge_rules.next_to_merge(state, NOW) is None
    backlog.supersede(state, "task-1", (), ("task-2",), RequestContext(replace_said("cause"), frozenset()))


def replace_said(detail: str) -> Invocation:
    return Invocation(now=NOW, by="human:ann", detail=detail)


SPECS = frozenset({"spec.md"})
FULL = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "spec.md"}


def test_only_a_complete_task_is_claimable() -> None:
    state = backlog.add(
        board(),
        [TaskFields("a", **FULL), TaskFields("b"), TaskFields("c", **FULL, draft=True)],
        RequestContext(ME, SPECS),
    )
    assert [one.status for one in state.tasks] == [S.UNCLAIMED, S.DRAFT, S.DRAFT]
    ripe = backlog.edit(state, TaskFields("b", **FULL), RequestContext(ME, SPECS))
    assert ripe.tasks[1].status is S.UNCLAIMED
    assert backlog.edit(ripe, TaskFields("b", **FULL), RequestContext(ME, SPECS)) is ripe


def test_a_complete_draft_is_freed_unless_a_draft_was_requested() -> None:
    wanted = [
        TaskFields("a", **FULL),
        TaskFields("asked", **FULL, draft=True),
        TaskFields("b", **{**FULL, "scope": None}),
    ]
    state = backlog.add(board(), wanted, RequestContext(ME, frozenset()))
    nothing, scope = MissingParts((), ""), MissingParts(("scope is missing (--scope)",), "")
    freed = release_complete_drafts(state, state, {"a": nothing, "asked": nothing, "b": scope}, ME)
    assert [one.status for one in freed.tasks] == [S.UNCLAIMED, S.DRAFT, S.DRAFT]
    assert freed.tasks[0].history[-1].event == "ready"
    assert release_complete_drafts(state, state, {}, ME) is state


def test_a_draft_edited_meanwhile_is_not_freed() -> None:
    seen = backlog.add(board(), [TaskFields("a", **FULL)], RequestContext(ME, frozenset()))
    edited = backlog.edit(seen, TaskFields("a", spec_ref="other.md"), RequestContext(ME, frozenset()))
    assert release_complete_drafts(edited, seen, {"a": MissingParts((), "")}, ME) is edited


@pytest.mark.parametrize(
    "wanted",
    [
        [TaskFields("a", **FULL), TaskFields("a", **FULL)],
        [TaskFields("a", **FULL, depends_on=("nowhere",))],
        [TaskFields("a", **FULL, depends_on=("b",)), TaskFields("b", **FULL, depends_on=("a",))],
        [TaskFields("a", **FULL, depends_on=("a",))],
        [TaskFields("../a", **FULL)],
        [TaskFields("a", **FULL, priority=0)],
    ],
)
def test_tasks_are_added_all_or_none(wanted: list[TaskFields]) -> None:
    with pytest.raises((Refused, UsageError)):
        backlog.add(board(), wanted, RequestContext(ME, SPECS))


def test_superseding_needs_successors_and_a_root_cause() -> None:
    state = board(task("a"))
    with pytest.raises(UsageError):
        backlog.supersede(state, "a", (), (), RequestContext(replace_said("cause"), SPECS))
    with pytest.raises(UsageError):
        backlog.supersede(state, "a", [TaskFields("b", **FULL)], (), RequestContext(ME, SPECS))
    done = backlog.supersede(state, "a", [TaskFields("b", **FULL)], (), RequestContext(replace_said("cause"), SPECS))
    assert (done.tasks[0].status, done.tasks[0].superseded_by, done.tasks[1].supersedes) == (S.SUPERSEDED, ("b",), "a")


def test_a_report_needs_a_known_kind_with_its_details() -> None:
    with pytest.raises(UsageError, match="not a kind of report"):
        board_reports.add_anomaly(board(), Anomaly(timestamp=NOW, type="mood"))
    with pytest.raises(UsageError, match="blocker_service"):
        board_reports.add_anomaly(board(), Anomaly(timestamp=NOW, type="external_blocker"))
    assert len(board_reports.add_anomaly(board(), Anomaly(timestamp=NOW, type="workaround")).anomalies) == 1


def test_adding_a_task_reopens_a_completed_goal() -> None:
    start = board()
    done = replace(
        start, goal=replace(start.goal, status="COMPLETED"), sprint=replace(start.sprint, status="COMPLETED")
    )
    again = backlog.add(done, [TaskFields("a", **FULL)], RequestContext(ME, SPECS))
    assert (again.goal.status, again.sprint.status) == ("IN_PROGRESS", "IN_PROGRESS")


def test_an_approved_task_without_a_verdict_is_not_merged() -> None:
    state, _ = submitted(board(task()))
    forged = state.with_task(replace(state.tasks[0], status=S.APPROVED, approved_by="code-reviewer-1"))
    assert merge_rules.next_to_merge(forged, NOW) is None
    with pytest.raises(Refused, match="its history has no verdict on"):
        merge_rules.get_approved_task(forged, "task-1")
    unsaid = state.with_task(replace(state.tasks[0], status=S.APPROVED))
    with pytest.raises(Refused, match="approved_by is missing"):
        merge_rules.get_approved_task(unsaid, "task-1")


def test_a_verdict_on_another_commit_lets_nothing_be_merged() -> None:
    state, _, review = under_review(board(task()))
    state = reviews.approve(state, "task-1", review, HEAD, NOW)
    assert merge_rules.next_to_merge(state, NOW) is not None
    swapped = state.with_task(replace(state.tasks[0], review_commit=OTHER))
    assert merge_rules.next_to_merge(swapped, NOW) is None


def test_a_successor_that_waits_for_what_it_supersedes_is_refused() -> None:
    state = board(task("a"))
    cause = RequestContext(replace_said("cause"), SPECS)
    with pytest.raises(Refused, match="would wait for itself: a → b → a"):
        backlog.supersede(state, "a", [TaskFields("b", **FULL, depends_on=("a",))], (), cause)


@pytest.mark.parametrize(
    "fields", [{"priority": 0}, {"priority": 10}, {"max_iterations": 0}, {"max_iterations": 10**20}]
)
def test_an_impossible_number_is_a_usage_error_in_edits_too(fields: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        backlog.edit(board(task("a")), TaskFields("a", **fields), RequestContext(ME, SPECS))


def for_person() -> State:
    """Work that was submitted for the review of a person."""
    state, _ = submitted(board(task(review="human")))
    return state


def test_only_a_person_claims_or_judges_a_persons_review() -> None:
    state = for_person()
    with pytest.raises(Refused, match="a person reviews it"):
        reviews.claim_review(state, "task-1", "code-reviewer-1", NOW, Evidence(dead=frozenset({"coder-1.1"})))
    with pytest.raises(Refused, match="a person reviews task-1"):
        reviews.approve(state, "task-1", "code-reviewer-1.1", HEAD, NOW)
    assert reviews.approve(state, "task-1", "human:ana", HEAD, NOW, "good").tasks[0].status is S.APPROVED


def test_only_a_person_returns_a_review_to_agents() -> None:
    state = board(task("a", review="human"))
    planner = RequestContext(Invocation(now=NOW, by="planner-1", detail="two concerns"), SPECS)
    with pytest.raises(Refused, match="only a person can change that"):
        backlog.edit(state, TaskFields("a", review="agent"), planner)
    replaced = backlog.supersede(state, "a", [TaskFields("b", **FULL, review="agent")], (), planner)
    assert replaced.tasks[1].review == "human"
    assert backlog.edit(state, TaskFields("a", review="agent"), RequestContext(ME, SPECS)).tasks[0].review == "agent"
    with pytest.raises(UsageError, match="expected agent or human"):
        backlog.edit(state, TaskFields("a", review="me"), RequestContext(ME, SPECS))
