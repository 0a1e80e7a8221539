"""What each verb changes on a task, and that it changes nothing else.

A field that a verb forgets keeps work from the next agent; one that it writes too many takes it from its owner.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from liza.model.errors import BoardInconsistent, NotOwner, Refused, UnknownId, UsageError
from liza.model.model import Anomaly, Answer, Event, Handoff, LineComment, Reservation, State, Status, Task
from liza.model.transitions import Invocation, apply_verb
from liza.tasks.rules import backlog, claims, coding, give_back, planning, reviews
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence
from tests.unit.boards import (
    BASE,
    HEAD,
    HERE,
    NOW,
    OTHER,
    agents,
    board,
    claimed,
    later,
    submitted,
    task,
    under_review,
    with_config,
)

S = Status
ME = Invocation(now=later(9), by="human:ann", run=None, detail="because")
REQUEST = RequestContext(invocation=ME)
SPECS = replace(REQUEST, specs=frozenset({"spec.md"}))
LEASE = timedelta(seconds=300)
FRESH = {"review_run": None, "reviewing_by": None, "review_lease_expires": None}
COMMENT = LineComment(path="a.py", line=3, text="wrong")


def changes(before: State, after: State, name: str = "task-1") -> tuple[dict[str, Any], tuple[Event, ...]]:
    """The fields of a task that differ, and the lines that its history has more. No other task differs."""
    old, new = before.task(name), after.task(name)
    assert old is not None
    assert new is not None
    assert [other for other in after.tasks if other.id != name] == [other for other in before.tasks if other.id != name]
    assert new.history[: len(old.history)] == old.history
    fields = {key: value for key, value in asdict(new).items() if value != getattr(old, key) and key != "history"}
    return fields, new.history[len(old.history) :]


def step(event: str, agent: str | None = "coder-1", run: str | None = "coder-1.1", **fields: Any) -> tuple[Event, ...]:
    return (Event(**{"time": later(9), "event": event, "agent": agent, "run": run, **fields}),)


CLAIMED = claimed(board(task(), task("other")))[0]
SUBMITTED = submitted(board(task(), task("other")))[0]
REVIEWED = under_review(board(task(), task("other")))[0]
BLOCKED = coding.block(CLAIMED, "task-1", "coder-1.1", "which?", ("a?", "b?"), NOW)
GOOD = SubmittedWork(head=HEAD, ahead=True, branch="task/task-1")


def of_task(state: State, **fields: Any) -> State:
    first = state.task("task-1")
    assert first is not None
    return state.with_task(replace(first, **fields))


CASES: dict[str, tuple[State, Callable[[State], State], dict[str, Any], tuple[Event, ...]]] = {
    "submit": (
        of_task(CLAIMED, rejection_reason="no", idle_sessions=1, reviews_without_verdict=1, handoff_pending=True),
        lambda state: coding.submit(state, "task-1", "coder-1.1", GOOD, later(9)),
        {
            "status": S.READY_FOR_REVIEW, "review_commit": HEAD, "lease_expires": None, "rejection_reason": None,
            "handoff_pending": False, "idle_sessions": 0, "reviews_without_verdict": 0,
        },
        step("submit", commit=HEAD),
    ),
    "submit a later commit": (
        SUBMITTED,
        lambda state: coding.submit(state, "task-1", "coder-1.1", replace(GOOD, head=OTHER), later(9)),
        {"review_commit": OTHER},
        step("submit again", commit=OTHER),
    ),
    "submit the same commit": (
        SUBMITTED, lambda state: coding.submit(state, "task-1", "coder-1.1", GOOD, later(9)), {}, (),
    ),
    "block": (
        of_task(CLAIMED, handoff_pending=True),
        lambda state: coding.block(state, "task-1", "coder-1.1", "which?", ("a?", "b?"), later(9)),
        {
            "status": S.BLOCKED, "blocked_reason": "which?", "blocked_questions": ("a?", "b?"), "lease_expires": None,
            "handoff_pending": False,
        },
        step("block", detail="which?"),
    ),
    "block by the supervisor": (
        of_task(CLAIMED, failed_by=("coder-2",)),
        lambda state: coding.block_by_supervisor(state, "task-1", "too many tries", later(9)),
        {
            "status": S.BLOCKED, "blocked_reason": "too many tries", "lease_expires": None,
            "blocked_questions": ("What should the next try do differently?",), "failed_by": ("coder-2", "coder-1"),
        },
        step("block", detail="too many tries"),
    ),
    "block by the supervisor twice": (
        BLOCKED, lambda state: coding.block_by_supervisor(state, "task-1", "again", later(9)), {}, (),
    ),
    "hand off": (
        CLAIMED,
        lambda state: coding.handoff(
            state, "task-1", "coder-1.1", Handoff(agent="coder-1", summary="half", next_action="rest"), later(9)
        ),
        {"handoff_pending": True},
        step("handoff"),
    ),
    "stop": (
        CLAIMED,
        lambda state: claims.stop(state, "task-1", "coder-1.1", later(9)),
        {"lease_expires": later(9), "handoff_pending": True},
        step("stop"),
    ),
    "give a claim back": (
        CLAIMED,
        lambda state: give_back.give_back_work(state, "coder-1", later(9)),
        {"lease_expires": later(9), "handoff_pending": True},
        step("stop"),
    ),
    "resume": (
        of_task(CLAIMED, handoff_pending=True),
        lambda state: claims.resume(state, "task-1", "coder-1.1", later(9))[0],
        {"run": "coder-1.2", "lease_expires": later(9) + LEASE, "iteration": 2, "handoff_pending": False},
        step("resume", run="coder-1.2"),
    ),
    "release": (
        of_task(CLAIMED, handoff_pending=True),
        lambda state: claims.release(state, "task-1", state.tasks[0].run, later(9), "human:ann"),
        {"status": S.UNCLAIMED, "assigned_to": None, "run": None, "lease_expires": None, "handoff_pending": False},
        step("release", "human:ann", None),
    ),
    "release what is free": (
        board(task()), lambda state: claims.release(state, "task-1", state.tasks[0].run, later(9), "human:ann"), {}, (),
    ),
    "fence": (
        CLAIMED, lambda state: claims.fence(state, "task-1", later(9)), {"run": None, "lease_expires": later(9)}, (),
    ),
    "claim a review": (
        SUBMITTED,
        lambda state: reviews.claim_review(
            state, "task-1", "code-reviewer-1", later(9), Evidence(dead=frozenset({"coder-1.1"}))
        )[0],
        {
            "reviewing_by": "code-reviewer-1", "review_run": "code-reviewer-1.1",
            "review_lease_expires": later(9) + LEASE,
        },
        step("claim review", "code-reviewer-1", "code-reviewer-1.1", commit=HEAD),
    ),
    "give a review back": (
        REVIEWED,
        lambda state: give_back.give_back_work(state, "code-reviewer-1", later(9)),
        FRESH,
        step("release review", "code-reviewer-1", "code-reviewer-1.1", detail="stopped"),
    ),
    "give back a review of another": (
        REVIEWED,
        lambda state: reviews.release_review(state, "task-1", "code-reviewer-1.9", later(9)),
        {},
        (),
    ),
    "a review without a verdict": (
        REVIEWED,
        lambda state: reviews.end_review_without_verdict(state, "task-1", "code-reviewer-1.1", later(9), "it died"),
        {**FRESH, "reviews_without_verdict": 1},
        step("release review", "code-reviewer-1", "code-reviewer-1.1", detail="it died"),
    ),
    "a second review without a verdict": (
        of_task(REVIEWED, reviews_without_verdict=1),
        lambda state: reviews.end_review_without_verdict(state, "task-1", "code-reviewer-1.1", later(9), "it died"),
        {
            **FRESH, "status": S.BLOCKED, "reviews_without_verdict": 2,
            "blocked_reason": "2 reviews ended without a verdict; the last: it died",
            "blocked_questions": ("Who should review this, and how?",),
        },
        step("give up review", "code-reviewer-1", "code-reviewer-1.1", detail="it died"),
    ),
    "no verdict of an old run": (
        REVIEWED,
        lambda state: reviews.end_review_without_verdict(state, "task-1", "code-reviewer-1.9", later(9), "it died"),
        {},
        (),
    ),
    "approve": (
        of_task(REVIEWED, review_comments=(COMMENT,)),
        lambda state: reviews.approve(state, "task-1", "code-reviewer-1.1", HEAD, later(9), "good"),
        {**FRESH, "status": S.APPROVED, "approved_by": "code-reviewer-1", "review_comments": ()},
        step("approve", "code-reviewer-1", "code-reviewer-1.1", commit=HEAD, detail="good"),
    ),
    "approve as a person": (
        SUBMITTED,
        lambda state: reviews.approve(state, "task-1", "human:ann", HEAD, later(9), "good"),
        {"status": S.APPROVED, "approved_by": "human:ann"},
        step("approve", "human:ann", None, commit=HEAD, detail="good"),
    ),
    "reject": (
        of_task(REVIEWED, review_cycles_total=3),
        lambda state: reviews.reject(
            state, "task-1", "code-reviewer-1.1", HEAD, later(9), "no tests", comments=(COMMENT,)
        ),
        {
            **FRESH, "status": S.REJECTED, "review_cycles_current": 1, "review_cycles_total": 4,
            "rejection_reason": "no tests", "review_comments": (COMMENT,),
        },
        step("reject", "code-reviewer-1", "code-reviewer-1.1", commit=HEAD, detail="no tests"),
    ),
    "reject for the last time": (
        with_config(of_task(REVIEWED, review_cycles_current=1), max_review_cycles=2),
        lambda state: reviews.reject(state, "task-1", "code-reviewer-1.1", HEAD, later(9), "no tests"),
        {
            **FRESH, "status": S.BLOCKED, "review_cycles_current": 2, "review_cycles_total": 1,
            "rejection_reason": "no tests", "failed_by": ("coder-1",),
            "blocked_reason": "review_deadlock: 2 rejections; the last: no tests",
            "blocked_questions": ("Is the reviewer right? What would settle it?",),
        },
        step("deadlock", "code-reviewer-1", "code-reviewer-1.1", commit=HEAD, detail="no tests"),
    ),
    "unblock": (
        of_task(BLOCKED, iteration=3, review_cycles_current=2, idle_sessions=1, reviews_without_verdict=1),
        lambda state: backlog.unblock(state, "task-1", ["yes", "no", "also"], ME),
        {
            "status": S.UNCLAIMED, "blocked_reason": None, "blocked_questions": (), "run": None, "iteration": 0,
            "review_cycles_current": 0, "idle_sessions": 0, "reviews_without_verdict": 0, "attempted": ("which?",),
            "answers": tuple(
                Answer(question=question, answer=answer, by="human:ann", timestamp=later(9))
                for question, answer in (("a?", "yes"), ("b?", "no"), ("b?", "also"))
            ),
        },
        step("unblock", "human:ann", None, detail="because"),
    ),
    "unblock a review": (
        of_task(REVIEWED, status=S.BLOCKED, blocked_reason="silent", blocked_questions=("a?",), **FRESH, iteration=3,
                review_cycles_current=2, reviews_without_verdict=2, failed_by=("coder-8", "coder-9")),
        lambda state: backlog.unblock(state, "task-1", ["yes"], replace(ME, by="planner-1")),
        {
            "status": S.READY_FOR_REVIEW, "blocked_reason": None, "blocked_questions": (), "reviews_without_verdict": 0,
            "answers": (Answer(question="a?", answer="yes", by="planner-1", timestamp=later(9)),),
        },
        step("unblock review", "planner-1", None, detail="because"),
    ),
    "drop": (
        CLAIMED,
        lambda state: backlog.drop(state, "task-1", ME, None),
        {"status": S.ABANDONED, "run": None, "lease_expires": None, "worktree": None},
        step("drop", "human:ann", None, detail="because"),
    ),
    "drop under review": (
        REVIEWED,
        lambda state: backlog.drop(state, "task-1", ME, None),
        {**FRESH, "status": S.ABANDONED, "run": None, "worktree": None},
        step("drop", "human:ann", None, detail="because"),
    ),
    "drop twice": (
        board(task(status=S.ABANDONED)), lambda state: backlog.drop(state, "task-1", ME, None), {}, (),
    ),
    "supersede": (
        CLAIMED,
        lambda state: backlog.supersede(state, "task-1", [], ["done"], replace(SPECS, archived={"done": S.MERGED})),
        {
            "status": S.SUPERSEDED, "run": None, "lease_expires": None, "worktree": None, "superseded_by": ("done",),
            "rescope_reason": "because",
        },
        step("supersede", "human:ann", None, detail="because"),
    ),
    "edit": (
        board(task()),
        lambda state: backlog.edit(
            state,
            TaskFields(id="task-1", scope="lib/", priority=1, max_iterations=4, review="human"),
            SPECS,
        ),
        {"scope": "lib/", "priority": 1, "max_iterations": 4, "review": "human"},
        step("edit", "human:ann", None),
    ),
    "edit nothing": (
        board(task()),
        lambda state: backlog.edit(state, TaskFields(id="task-1", scope="src/"), SPECS),
        {},
        (),
    ),
    "complete a draft": (
        board(task(status=S.DRAFT, scope="")),
        lambda state: backlog.edit(state, TaskFields(id="task-1", scope="lib/"), SPECS),
        {"scope": "lib/", "status": S.UNCLAIMED},
        step("ready", "human:ann", None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_verb_changes_these_fields_and_no_others_and_is_one_line_of_the_history(case: str) -> None:
    before, verb, fields, history = CASES[case]
    assert changes(before, verb(before)) == (fields, history)


def test_a_claim_reserves_first_and_is_confirmed_with_its_base() -> None:
    before = board(task(run="coder-9.1", iteration=1))
    reserved, run = claims.reserve(before, "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, Evidence())
    reservation = Reservation(
        agent="coder-1", run="coder-1.1", slot="s1", host="box", boot="boot", pid=1, start="1", expires=NOW + LEASE,
        previous_run="coder-9.1",
    )  # fmt: skip
    assert run == "coder-1.1"
    assert changes(before, reserved) == ({"reservation": reservation}, ())
    assert (reserved.agents["coder-1"].runs, reserved.agents["coder-1"].iterations_total) == (1, 1)
    confirmed = claims.confirm(reserved, "task-1", run, BASE, later(9), Evidence())
    fields, history = changes(reserved, confirmed)
    assert fields == {
        "status": S.CLAIMED, "reservation": None, "assigned_to": "coder-1", "run": run, "worktree": "s1",
        "base_commit": BASE, "lease_expires": later(9) + LEASE, "iteration": 2,
    }  # fmt: skip
    assert history == step("claim", commit=BASE)
    assert claims.undo_reservation(reserved, "task-1", run).tasks == before.tasks
    assert claims.undo_reservation(reserved, "task-1", "coder-1.2") is reserved


def test_a_claim_of_a_failed_merge_keeps_its_base_and_is_an_integration_fix() -> None:
    before = board(
        task(status=S.INTEGRATION_FAILED, assigned_to="coder-1", base_commit=OTHER, worktree="s1", review_commit=HEAD)
    )
    state, _ = claimed(before)
    done = state.tasks[0]
    assert (done.base_commit, done.integration_fix) == (OTHER, True)
    assert claimed(board(task()))[0].tasks[0].integration_fix is False


def test_a_deadlock_is_reported_as_an_anomaly() -> None:
    state = with_config(REVIEWED, max_review_cycles=1)
    after = reviews.reject(state, "task-1", "code-reviewer-1.1", HEAD, later(9), "no tests")
    anomaly = Anomaly(
        timestamp=later(9),
        task="task-1",
        reporter="code-reviewer-1",
        type="review_deadlock",
        details={"rounds": 1, "text": "1 rejection; the last: no tests"},
    )
    assert after.anomalies == (anomaly,)


def test_planning_is_given_back_and_an_agent_without_work_gives_nothing_back() -> None:
    state, run = planning.claim_planning(board(agents=agents("planner-1")), "planner-1", NOW)
    over = give_back.give_back_work(state, "planner-1", later(9))
    assert (state.planning.run, over.planning.run, over.planning.trigger) == (run, None, None)
    assert over.planning.lease_expires is None
    assert give_back.give_back_work(state, "coder-1", later(9)) is state


@pytest.mark.parametrize("usage", [None, 0.5])
def test_a_heartbeat_renews_the_lease_of_what_the_run_holds(usage: float | None) -> None:
    percent = 0 if usage is None else 50
    work = claims.renew_lease(CLAIMED, "coder-1.1", later(9), usage)
    assert changes(CLAIMED, work) == ({"lease_expires": later(9) + LEASE}, ())
    record = work.agents["coder-1"]
    assert (record.heartbeat, record.lease_expires, record.context_percent) == (later(9), later(9) + LEASE, percent)
    resumed, _ = claims.resume(work, "task-1", "coder-1.1", later(10))
    assert resumed.agents["coder-1"].context_percent == 0, "another session begins with another context"
    review = claims.renew_lease(REVIEWED, "code-reviewer-1.1", later(9), usage)
    assert changes(REVIEWED, review) == ({"review_lease_expires": later(9) + LEASE}, ())
    planned, run = planning.claim_planning(board(agents=agents("planner-1")), "planner-1", NOW)
    assert claims.renew_lease(planned, run, later(9)).planning.lease_expires == later(9) + LEASE
    with pytest.raises(NotOwner, match=r"coder-1\.9 holds no task, no review and no planning"):
        claims.renew_lease(CLAIMED, "coder-1.9", later(9))


def test_a_heartbeat_never_shortens_a_lease_and_keeps_the_last_report_of_the_context() -> None:
    longer = of_task(CLAIMED, lease_expires=later(9999))
    state = claims.renew_lease(claims.renew_lease(longer, "coder-1.1", NOW, 0.2), "coder-1.1", later(9))
    assert state.tasks[0].lease_expires == later(9999)
    assert state.agents["coder-1"].context_percent == 20


REFUSALS: dict[str, tuple[State, Callable[[State], object], type[Exception], str]] = {
    "an unknown task": (
        board(task("task-1"), task("b")), lambda state: claims.get_task(state, "task-2"), UnknownId, "liza task list",
    ),
    "an unknown task on an empty board": (
        board(), lambda state: claims.get_task(state, "task-2"), UnknownId, "liza task list",
    ),
    "a claim of another": (
        CLAIMED, lambda state: claims.get_owned_task(state, "task-1", "coder-1.7"), NotOwner, "liza task show task-1",
    ),
    "a claim of nobody": (
        board(task()), lambda state: claims.get_owned_task(state, "task-1", "coder-1.7"), NotOwner,
        "liza task show task-1",
    ),
    "a second claim": (
        CLAIMED, lambda state: claims.reserve(state, "other", claims.Claimant("coder-1", HERE), "s9", NOW, Evidence()),
        Refused, "liza agents coder-1",
    ),
    "a claim of a blocked task": (
        BLOCKED, lambda state: claims.reserve(state, "task-1", claims.Claimant("coder-2", HERE), "s9", NOW, Evidence()),
        Refused, "liza task show task-1",
    ),
    "a reservation that is gone": (
        CLAIMED, lambda state: claims.confirm(state, "other", "coder-2.1", BASE, NOW, Evidence()), Refused,
        "liza task show other",
    ),
    "a release of what is not claimed": (
        BLOCKED, lambda state: claims.fence(state, "task-1", NOW), Refused, "liza task show task-1",
    ),
    "a later commit during a review": (
        REVIEWED, lambda state: coding.submit(state, "task-1", "coder-1.1", replace(GOOD, head=OTHER), NOW), Refused,
        "liza task show task-1",
    ),
    "a block without a question": (
        CLAIMED, lambda state: coding.block(state, "task-1", "coder-1.1", "why", (), NOW), UsageError,
        'liza block "why" --ask "a question that a person can answer"',
    ),
    "a block of what is under review": (
        REVIEWED, lambda state: coding.block_by_supervisor(state, "task-1", "why", NOW), Refused,
        "liza task show task-1",
    ),
    "a hand-off without the next step": (
        CLAIMED, lambda state: coding.handoff(
            state, "task-1", "coder-1.1", Handoff(agent="coder-1", summary="half", next_action=" "), NOW
        ), UsageError, 'liza handoff "what is done" --next "the first thing to do"',
    ),
    "a review of another": (
        REVIEWED, lambda state: reviews.get_reviewed_task(state, "task-1", "code-reviewer-2.1"), NotOwner,
        "liza task show task-1",
    ),
    "a review that is claimed": (
        REVIEWED, lambda state: reviews.claim_review(
            state, "task-1", "code-reviewer-2", NOW, Evidence(dead=frozenset({"coder-1.1"}))
        ), Refused, "liza task show task-1",
    ),
    "a second review": (
        REVIEWED.with_task(replace(REVIEWED.tasks[0], id="other", reviewing_by=None, review_run=None)),
        lambda state: reviews.claim_review(
            state, "other", "code-reviewer-1", NOW, Evidence(dead=frozenset({"coder-1.1"}))
        ), Refused, "liza agents code-reviewer-1",
    ),
    "a rejection without a reason": (
        REVIEWED, lambda state: reviews.reject(state, "task-1", "code-reviewer-1.1", HEAD, NOW, " "), UsageError,
        'liza verdict reject "1. file:line what is wrong, how you saw it"',
    ),
    "a verdict of a person on open work": (
        CLAIMED, lambda state: reviews.approve(state, "task-1", "human:ann", HEAD, NOW), Refused,
        "liza task show task-1",
    ),
    "a verdict on another commit": (
        REVIEWED, lambda state: reviews.approve(state, "task-1", "human:ann", OTHER, NOW), Refused, "liza diff task-1",
    ),
    "a verdict of the author": (
        REVIEWED, lambda state: reviews.approve(state, "task-1", "coder-1.1", HEAD, NOW), Refused,
        "liza task show task-1",
    ),
    "an answer to no question": (
        CLAIMED, lambda state: backlog.unblock(state, "task-1", ["yes"], ME), Refused, "liza task show task-1",
    ),
    "an empty answer": (
        BLOCKED, lambda state: backlog.unblock(state, "task-1", ["yes", " "], ME), UsageError,
        'liza task unblock task-1 --answer "…"',
    ),
    "a planner's answer after two coders failed": (
        of_task(BLOCKED, failed_by=("coder-1", "coder-2")),
        lambda state: backlog.unblock(state, "task-1", ["yes"], replace(ME, by="planner-1.1")),
        Refused, 'liza task supersede task-1 --by "…" --because "…"',
    ),
    "a change of a claimed task": (
        CLAIMED, lambda state: backlog.edit(state, TaskFields(id="task-1", scope="x"), REQUEST), Refused,
        'liza task supersede task-1 --by "…" --because "…"',
    ),
    "a change that makes a task incomplete": (
        board(task()), lambda state: backlog.edit(state, TaskFields(id="task-1", scope=" "), SPECS), Refused,
        "liza task show task-1",
    ),
    "a drop of a closed task": (
        board(task(status=S.MERGED)), lambda state: backlog.drop(state, "task-1", ME, None), Refused,
        "liza task show task-1",
    ),
    "a drop of what others need": (
        board(task(), task("a", depends_on=("task-1",)), task("b", depends_on=("task-1",))),
        lambda state: backlog.drop(state, "task-1", ME, None), Refused, 'liza task drop task-1 "…" --cascade',
    ),
    "a successor that is the task itself": (
        board(task()), lambda state: backlog.supersede(state, "task-1", [], ["task-1"], REQUEST), UsageError,
        'liza task supersede task-1 --by "…" --because "…"',
    ),
    "superseding without a cause": (
        board(task()),
        lambda state: backlog.supersede(state, "task-1", [], [], replace(REQUEST, invocation=replace(ME, detail=" "))),
        UsageError, 'liza task supersede task-1 --by "…" --because "…"',
    ),
    "an id that is there": (
        board(task()), lambda state: backlog.add(state, [TaskFields(id="task-1")], REQUEST), Refused,
        "liza task show task-1",
    ),
    "an id of the archive": (
        board(), lambda state: backlog.add(state, [TaskFields(id="a")], replace(REQUEST, archived={"a": S.MERGED})),
        Refused, "liza task show a",
    ),
    "an unknown dependency": (
        board(), lambda state: backlog.add(state, [TaskFields(id="a", depends_on=("b",))], REQUEST), Refused,
        "liza task list",
    ),
    "a circle": (
        board(task("a", S.DRAFT, depends_on=("b",)), task("b", S.DRAFT)),
        lambda state: backlog.edit(state, TaskFields(id="b", depends_on=("a",)), REQUEST), Refused, "liza task show b",
    ),
    "dependencies on another branch": (
        board(task("a", S.DRAFT, target="release/1")),
        lambda state: backlog.add(state, [TaskFields(id="b", depends_on=("a",))], REQUEST), Refused, "liza task show a",
    ),
    "an unknown review": (
        board(), lambda state: backlog.add(state, [TaskFields(id="a", review="cat")], REQUEST), UsageError,
        "liza task add --help",
    ),
    "two branches": (
        board(), lambda state: backlog.add(state, [TaskFields(id="a", epic="e", target="release/1")], REQUEST),
        UsageError, "liza task add --help",
    ),
    "a branch of agents": (
        board(), lambda state: backlog.add(state, [TaskFields(id="a", target="task/b")], REQUEST), UsageError,
        "liza task add --help",
    ),
    "a planner that does not plan": (
        board(), lambda state: planning.require_planner(state, "planner-1.1"), NotOwner, "liza status",
    ),
    "a reason to plan that is none": (
        board(task()), lambda state: planning.claim_planning(state, "planner-1", NOW), Refused, "liza status",
    ),
    "a transition that the table does not have": (
        board(task()), lambda state: apply_verb(state.tasks[0], backlog.E.MERGE, ME), BoardInconsistent,
        "liza task show task-1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_the_command_that_comes_next(case: str) -> None:
    state, verb, error, hint = REFUSALS[case]
    with pytest.raises(error) as refusal:
        verb(state)
    assert getattr(refusal.value, "hint", None) == hint


@pytest.mark.parametrize(
    ("field", "number", "allowed"),
    [
        ("priority", 0, False), ("priority", 1, True), ("priority", 9, True), ("priority", 10, False),
        ("max_iterations", 0, False), ("max_iterations", 1, True), ("max_iterations", 1000, True),
        ("max_iterations", 1001, False),
    ],
)  # fmt: skip
def test_a_number_of_a_task_has_limits(field: str, number: int, allowed: bool) -> None:
    wanted = TaskFields(id="a", **{field: number})
    if allowed:
        assert getattr(backlog.add(board(), [wanted], REQUEST).tasks[0], field) == number
        return
    most = {"priority": 9, "max_iterations": 1000}[field]
    with pytest.raises(UsageError) as refusal:
        backlog.add(board(), [wanted], REQUEST)
    assert str(refusal.value) == f"the {field.replace('_', '-')} of a is {number}; it is 1 to {most}"
    assert refusal.value.hint == "liza task add --help"


def test_a_new_task_has_its_fields_its_first_event_and_what_it_lacks() -> None:
    wanted = TaskFields(
        "a", description="d", done_when="w", scope="s", spec_ref="spec.md", priority=2, max_iterations=3, review="human"
    )
    invocation = Invocation(now=NOW, by="planner-1", run="planner-1.1")
    context = RequestContext(invocation=invocation, specs=frozenset({"spec.md"}))
    added = Event(time=NOW, event="add", agent="planner-1", run="planner-1.1")
    complete = Task(
        id="a", status=S.UNCLAIMED, created=NOW, description="d", done_when="w", scope="s", spec_ref="spec.md",
        priority=2, max_iterations=3, review="human", history=(added,),
    )  # fmt: skip
    assert backlog.add(board(), [wanted], context).tasks == (complete,)
    draft = backlog.add(board(), [replace(wanted, draft=True)], context).tasks[0]
    assert draft == replace(complete, status=S.DRAFT)
    lacking = backlog.add(board(), [TaskFields(id="a", spec_ref=".liza/specs/a.md")], context).tasks[0]
    assert (lacking.status, lacking.history[0].detail) == (
        S.DRAFT,
        "description is missing (--desc); done_when is missing (--done); scope is missing (--scope); "
        "spec .liza/specs/a.md is not there",
    )
    uncommitted = backlog.add(board(), [replace(wanted, spec_ref="b.md")], context).tasks[0]
    assert uncommitted.history[0].detail == "spec b.md is not committed on integration"


def test_a_draft_that_was_asked_for_has_no_missing_parts_in_its_history() -> None:
    state = board(task(status=S.DRAFT, scope=""))
    wanted = TaskFields(id="task-1", description="other")
    kept = backlog.edit(state, replace(wanted, draft=True), SPECS).tasks[0]
    assert (kept.status, kept.history[-1].detail) == (S.DRAFT, None)
    lacking = backlog.edit(state, wanted, SPECS).tasks[0]
    assert (lacking.status, lacking.history[-1].detail) == (S.DRAFT, "scope is missing (--scope)")


def test_dropping_what_others_need_drops_them_or_frees_them() -> None:
    before = board(
        task(), task("a", depends_on=("task-1", "c")), task("b", depends_on=("a",)), task("c"),
        task("done", S.MERGED, depends_on=("task-1",)),
    )  # fmt: skip
    everything = backlog.drop(before, "task-1", ME, "cascade")
    assert [(one.id, one.status) for one in everything.tasks] == [
        ("task-1", S.ABANDONED), ("a", S.ABANDONED), ("b", S.ABANDONED), ("c", S.UNCLAIMED), ("done", S.MERGED),
    ]  # fmt: skip
    unlinked = backlog.drop(before, "task-1", ME, "unlink")
    assert [(one.id, one.status, one.depends_on) for one in unlinked.tasks] == [
        ("task-1", S.ABANDONED, ()), ("a", S.UNCLAIMED, ("c",)), ("b", S.UNCLAIMED, ("a",)), ("c", S.UNCLAIMED, ()),
        ("done", S.MERGED, ("task-1",)),
    ]  # fmt: skip
