from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.model import Event, FailedCheck, Handoff, PlanningClaim, Status, Task
from liza.model.paths import check_task_id, host_of_slot, parse_agent_id
from liza.model.session_ends import SessionOutcome
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog, claims, coding, leases, picking, reviews
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence, LimitReached, NoTask, Pick
from tests.unit.boards import BASE, HEAD, HERE, NOW, agents, board, claimed, later, submitted, task, with_config

S = Status
NONE = Evidence()


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (task(), None),
        (task(status=S.DRAFT), "it is a draft"),
        (task(status=S.MERGED, merge_commit=BASE, approved_by="code-reviewer-1", review_commit=BASE), "it is merged"),
        (task(depends_on=("task-2",)), "it waits for task-2"),
        (task(failed_by=("coder-1",)), "coder-1 has failed it before"),
        (task(failed_by=("coder-2",)), None),
        (task(description=""), "it breaks a rule"),
    ],
)
def test_claimable_is_refused_with_the_one_true_reason(one: object, why: str | None) -> None:
    state = board(one, task("task-2"))  # type: ignore[arg-type]
    found = picking.claim_obstacle(state, state.tasks[0], "coder-1", NOW, NONE)
    assert (found is None) if why is None else (found is not None and found.startswith(why))


def test_a_dependency_is_met_by_merging_it_or_all_successors() -> None:
    merged = {"merge_commit": BASE, "approved_by": "code-reviewer-1", "review_commit": BASE}
    one = task(depends_on=("old",))
    old = task("old", S.SUPERSEDED, superseded_by=("a", "b"), rescope_reason="too big")
    a, b = task("a", S.MERGED, **merged), task("b")
    assert picking.unmet_dependencies(board(one, old, a, b), one) == ("old",)
    assert picking.unmet_dependencies(board(one, old, a, replace(b, status=S.MERGED, **merged)), one) == ()
    assert picking.unmet_dependencies(board(one, replace(old, superseded_by=())), one) == ("old",)


def test_superseded_tasks_in_a_circle_never_count_as_met() -> None:
    one = task(depends_on=("x",))
    x = task("x", S.SUPERSEDED, superseded_by=("y",), rescope_reason="r")
    y = task("y", S.SUPERSEDED, superseded_by=("x",), rescope_reason="r")
    assert picking.unmet_dependencies(board(one, x, y), one) == ("x",)


def test_a_claim_sets_everything_that_a_claimed_task_must_have() -> None:
    state, run = claimed(board(task()))
    done = state.tasks[0]
    assert (done.status, done.assigned_to, done.run, done.worktree) == (S.CLAIMED, "coder-1", "coder-1.1", "s1")
    assert (done.base_commit, done.iteration, done.lease_expires) == (BASE, 1, later(300))
    assert done.reservation is None
    assert run == "coder-1.1"


def test_two_claimers_at_once_the_second_reservation_is_refused() -> None:
    state, _ = claims.reserve(board(task()), "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    with pytest.raises(Refused, match=r"coder-1 is taking it as coder-1\.1"):
        claims.reserve(state, "task-1", claims.Claimant("coder-2", HERE), "s2", NOW, NONE)


def test_a_reservation_that_was_undone_meanwhile_cannot_be_confirmed() -> None:
    state, run = claims.reserve(board(task()), "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    state = claims.undo_reservation(state, "task-1", run)
    with pytest.raises(Refused, match="no longer holds"):
        claims.confirm(state, "task-1", run, BASE, NOW, NONE)


def test_a_task_dropped_between_reserve_and_confirm_is_not_claimed() -> None:
    state, run = claims.reserve(board(task()), "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    state = state.with_task(replace(state.tasks[0], depends_on=("task-9",)))
    with pytest.raises(Refused, match="it waits for task-9"):
        claims.confirm(state, "task-1", run, BASE, NOW, NONE)


def test_undo_removes_only_what_has_this_run() -> None:
    state, run = claims.reserve(board(task()), "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    assert claims.undo_reservation(state, "task-1", "coder-2.1") is state
    assert claims.undo_reservation(state, "task-1", run).tasks[0].reservation is None


def test_a_repeated_confirm_is_the_same_claim() -> None:
    state, run = claimed(board(task()))
    assert claims.confirm(state, "task-1", run, BASE, NOW, NONE) is state


LAPSED = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({"coder-1.1"}))


@pytest.mark.parametrize(
    ("seconds", "evidence", "why"),
    [
        (10, LAPSED, "holds its lease"),
        (301, NONE, "still runs"),
        (301, Evidence(offline=frozenset({"coder-1"})), "not proved dead"),
        (301, Evidence(dead=frozenset({"coder-1.1"})), "still runs"),
        (301, LAPSED, None),
        (10, Evidence(offline=LAPSED.offline, dead=LAPSED.dead, lost=LAPSED.dead), None),
        (10, Evidence(lost=LAPSED.dead), "still runs"),
    ],
)
def test_taking_over_needs_a_lapsed_lease_and_a_dead_session(seconds: int, evidence: Evidence, why: str | None) -> None:
    state, _ = claimed(board(task()))
    found = picking.claim_obstacle(state, state.tasks[0], "coder-2", later(seconds), evidence)
    assert (found is None) if why is None else (found is not None and why in found)


def test_a_takeover_fences_the_old_run_until_it_is_undone() -> None:
    state, run = claimed(board(task()))
    taker = claims.Claimant("coder-2", HERE)
    taken, new = claims.reserve(state, "task-1", taker, "s1", later(301), LAPSED)
    with pytest.raises(NotOwner, match="You no longer own this task"):
        claims.get_owned_task(taken, "task-1", run)
    back = claims.undo_reservation(taken, "task-1", new)
    assert claims.get_owned_task(back, "task-1", run).assigned_to == "coder-1"
    done = claims.confirm(taken, "task-1", new, BASE, later(302), LAPSED)
    assert done.tasks[0].assigned_to == "coder-2"
    assert done.tasks[0].iteration == 2
    assert done.tasks[0].failed_by == ()
    assert done.tasks[0].worktree == "s1"


def test_a_run_number_is_never_used_twice() -> None:
    state = board(task(), agents=agents("coder-1", runs=6))
    state, run = claims.reserve(state, "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    assert run == "coder-1.7"
    state = claims.undo_reservation(state, "task-1", run)
    _, again = claims.reserve(state, "task-1", claims.Claimant("coder-1", HERE), "s1", NOW, NONE)
    assert again == "coder-1.8"


def test_resume_counts_a_try_but_not_after_a_stop() -> None:
    state, run = claimed(board(task()))
    state, second = claims.resume(state, "task-1", run, NOW)
    assert (second, state.tasks[0].iteration) == ("coder-1.2", 2)
    state = claims.stop(state, "task-1", second, NOW)
    assert state.tasks[0].handoff_pending
    assert state.tasks[0].lease_expires == NOW
    state, third = claims.resume(state, "task-1", second, NOW)
    assert (third, state.tasks[0].iteration) == ("coder-1.3", 2)
    assert not state.tasks[0].handoff_pending


def test_an_agent_with_a_claim_takes_no_second_task() -> None:
    state, _ = claimed(board(task(), task("task-2")))
    assert picking.pick_task(state, "coder-1", NOW, NONE) == NoTask("coder-1 is busy with task-1")
    with pytest.raises(Refused, match="busy with task-1"):
        claims.reserve(state, "task-2", claims.Claimant("coder-1", HERE), "s2", NOW, NONE)


def test_a_coder_mends_its_own_rejected_work_before_anything_new() -> None:
    back = task(
        "task-9", S.REJECTED, priority=9, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no",
    )  # fmt: skip
    state = board(task("task-1", priority=1), back, agents=agents("coder-1", "coder-2"))
    assert picking.pick_task(state, "coder-1", NOW, NONE) == Pick(state.tasks[1])
    assert picking.pick_task(state, "coder-2", NOW, NONE) == Pick(state.tasks[0])


def test_rejected_work_waits_for_its_coder_until_a_lease_passed() -> None:
    state, _ = claimed(board(task()))
    history = state.tasks[0].history
    back = task(
        "task-1", S.REJECTED, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no", history=history, created=NOW,
    )  # fmt: skip
    state = board(back, agents=agents("coder-1", "coder-2", runs=1))
    assert isinstance(picking.pick_task(state, "coder-2", later(10), NONE), NoTask)
    assert isinstance(picking.pick_task(state, "coder-2", later(300), NONE), Pick)
    offline = Evidence(offline=frozenset({"coder-1"}))
    assert isinstance(picking.pick_task(state, "coder-2", later(10), offline), Pick)


@pytest.mark.parametrize("status", [S.REJECTED, S.INTEGRATION_FAILED])
def test_a_returned_task_waits_for_no_coder_with_other_work(status: Status) -> None:
    back = task(
        "task-1", status, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no", created=later(-1),
    )  # fmt: skip
    state = board(back, task("task-2"), agents=agents("coder-1", "coder-2", runs=1))
    assert picking.pick_task(state, "coder-2", NOW, NONE) == Pick(state.tasks[1])
    reserved, run = claims.reserve(state, "task-2", claims.Claimant("coder-1", HERE), "s2", NOW, NONE)
    working, _ = claimed(state, "task-2", "coder-1")
    for busy in (reserved, working):
        assert picking.pick_task(busy, "coder-2", NOW, NONE) == Pick(busy.tasks[0])
    free = claims.undo_reservation(reserved, "task-2", run)
    assert picking.claim_obstacle(free, back, "coder-2", NOW, NONE) == "coder-1 is to fix it first"


def test_a_reserved_task_stays_with_its_agent() -> None:
    back = task(
        "task-1", S.REJECTED, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no", created=later(-1),
    )  # fmt: skip
    state, other = claimed(board(back, task("task-2"), agents=agents("coder-1", "coder-2", runs=1)), "task-2")
    state, run = claims.reserve(state, "task-1", claims.Claimant("coder-2", HERE), "s1", NOW, NONE)
    free = claims.release(state, "task-2", other, NOW, "coder-1")
    confirmed = claims.confirm(free, "task-1", run, BASE, NOW, NONE)
    assert confirmed.tasks[0].assigned_to == "coder-2"


def test_rejected_work_with_a_future_event_waits_for_no_one() -> None:
    back = task(
        "task-1", S.REJECTED, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no", created=later(86400),
    )  # fmt: skip
    state = board(back, agents=agents("coder-1", "coder-2"))
    assert isinstance(picking.pick_task(state, "coder-2", NOW, NONE), Pick)


def test_rejected_work_at_its_last_try_has_reached_a_limit() -> None:
    back = task(
        "task-1", S.REJECTED, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        rejection_reason="no", iteration=3,
    )  # fmt: skip
    state = with_config(board(back), max_coder_iterations=3)
    found = picking.pick_task(state, "coder-1", NOW, NONE)
    assert isinstance(found, LimitReached)
    assert "3 tries of at most 3" in found.reason


@pytest.mark.parametrize(
    ("iteration", "agent", "waited", "reason"),
    [
        (3, "coder-1", 0, "3 tries of at most 3 are used up; it does not merge: conflict in a.py"),
        (33, "coder-1", 0, "33 tries are used up, and 3 were allowed; it does not merge: conflict in a.py"),
        (3, "coder-2", 300, "3 tries of at most 3 are used up; it does not merge: conflict in a.py"),
        (3, "coder-2", 0, None),
        (2, "coder-1", 0, None),
    ],
)
def test_a_failed_merge_at_the_last_try_reaches_a_limit(
    iteration: int, agent: str, waited: int, reason: str | None
) -> None:
    said = Event(time=NOW, event="merge failed", detail="conflict in a.py\nthe output\nof git")
    back = task(
        "task-1", S.INTEGRATION_FAILED, assigned_to="coder-1", worktree="s1", base_commit=BASE, review_commit=BASE,
        iteration=iteration, max_iterations=3, history=(said,),
    )  # fmt: skip
    state = board(back, agents=agents("coder-1", "coder-2"))
    found = picking.pick_task(state, agent, later(waited), NONE)
    assert (found.reason if isinstance(found, LimitReached) else None) == reason
    if reason is not None:
        blocked = coding.block_by_supervisor(state, "task-1", reason, NOW).tasks[0]
        assert (blocked.status, blocked.blocked_reason, blocked.failed_by) == (S.BLOCKED, reason, ("coder-1",))
        assert blocked.blocked_questions


def test_priority_then_age_then_the_order_of_the_board_decide() -> None:
    state = board(task("b"), task("a"), task("c", priority=1), task("d", created=later(-60)))
    order = []
    while isinstance(pick := picking.pick_task(state, "coder-1", NOW, NONE), Pick):
        order.append(pick.task.id)
        state = replace(state, tasks=tuple(one for one in state.tasks if one.id != pick.task.id))
    assert order == ["c", "d", "b", "a"]


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        ((task("t1"), task("t2")), "t1"),
        ((task("t1", S.DRAFT), task("t2")), "t2"),
        ((task("t1", S.DRAFT), task("t3", priority=4), task("t2")), "t2"),
        ((task("t1", S.DRAFT), task("t2", failed_by=("coder-1",))), None),
        ((task("t1", S.DRAFT),), None),
        # It is gone, or the agent has work: the claim itself says so.
        ((task("t2"),), "t1"),
        ((task("t1", S.DRAFT), task("t2"), task("t3", S.CLAIMED, assigned_to="coder-1", worktree="s3")), "t1"),
    ],
)
def test_a_late_claimer_takes_the_best_of_remaining_tasks(now: tuple[Task, ...], taken: str | None) -> None:
    assert picking.claimable_now(board(*now), "t1", "coder-1", NOW, NONE) == taken


def test_a_late_claimer_takes_only_the_lapsed_claim_it_chose() -> None:
    lapsed, _ = claimed(board(task(priority=1), task("t2"), task("t3", S.DRAFT)))
    over = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({"coder-1.1"}))
    assert picking.pick_task(lapsed, "coder-2", later(301), over) == Pick(lapsed.tasks[0])
    assert picking.claimable_now(lapsed, "task-1", "coder-2", later(301), over) == "task-1"
    assert picking.claimable_now(lapsed, "t3", "coder-2", later(301), over) is None


@given(
    claimers=st.permutations([f"coder-{number}" for number in range(1, 7)]),
    priorities=st.lists(st.integers(1, 3), min_size=1, max_size=9),
)
def test_claimers_of_the_same_board_get_the_best_tasks(claimers: list[str], priorities: list[int]) -> None:
    tasks = [task(f"t{number}", priority=priority) for number, priority in enumerate(priorities)]
    state = seen = board(*tasks)
    got = []
    for agent in claimers:
        picked = picking.pick_task(seen, agent, NOW, NONE)
        assert isinstance(picked, Pick)
        chosen = picking.claimable_now(state, picked.task.id, agent, NOW, NONE)
        if chosen is not None:
            state, _ = claims.reserve(state, chosen, claims.Claimant(agent, HERE), f"s{chosen}", NOW, NONE)
            got.append(chosen)
    best = sorted(tasks, key=lambda one: one.priority)[: len(claimers)]
    assert got == [one.id for one in best]


def test_reviewers_with_the_same_board_get_different_reviews() -> None:
    state, first = submitted(board(task("t1"), task("t2")), "t1")
    state, second = submitted(state, "t2", "coder-2")
    over = Evidence(dead=frozenset({first, second}))
    seen, got = state, []
    for agent in ("code-reviewer-1", "code-reviewer-2", "code-reviewer-3"):
        picked = picking.pick_review(seen, agent, over)
        assert isinstance(picked, Pick)
        got.append(picking.reviewable_now(state, picked.task.id, agent, over))
        if got[-1] is not None:
            state, _ = reviews.claim_review(state, got[-1], agent, NOW, over)
    assert got == ["t1", "t2", None]


def test_a_free_slot_is_the_tasks_own_or_unnamed() -> None:
    state, _ = claimed(board(task(), task("task-2"), task("task-3")))
    assert picking.free_slot(state, state.tasks[0]) == "s1"
    assert picking.free_slot(state, state.tasks[1]) == "s2"
    reserved, _ = claims.reserve(state, "task-2", claims.Claimant("coder-2", HERE), "s2", NOW, NONE)
    assert picking.free_slot(reserved, reserved.tasks[2]) == "s3"


def test_a_free_slot_of_a_host_has_its_name() -> None:
    state, _ = claimed(board(task(), task("task-2")))
    assert picking.free_slot(state, state.tasks[0], ("h2-s4", "s2", "h1-s7"), "h1") == "h1-s7"
    assert picking.free_slot(state, state.tasks[0], ("coder-1",), "h1") == "h1-s1"
    of_host = state.with_task(replace(state.tasks[0], worktree="h1-s1"))
    assert picking.free_slot(of_host, of_host.tasks[0], (), "h1") == "h1-s1"
    assert picking.free_slot(of_host, of_host.tasks[0], (), "h2") == "h2-s1"
    assert [host_of_slot(name) for name in ("s3", "h1-s3", "a-b-s3", "coder-1", "merge-2")] == ["", "h1", "a-b", "", ""]


def test_release_fences_first_and_frees_afterwards() -> None:
    state, run = claimed(board(task()))
    fenced = claims.fence(state, "task-1", NOW)
    with pytest.raises(NotOwner):
        claims.get_owned_task(fenced, "task-1", run)
    freed = claims.release(fenced, "task-1", None, NOW, "human:ann")
    assert (freed.tasks[0].status, freed.tasks[0].assigned_to) == (S.UNCLAIMED, None)
    assert claims.release(freed, "task-1", None, NOW, "human:ann") is freed


def test_a_task_that_changed_meanwhile_is_not_released() -> None:
    """Between the two steps of a release the task may be dropped, or released and claimed by another process."""
    state, _ = claimed(board(task(), task("task-2")))
    fenced = claims.fence(state, "task-1", NOW)
    dropped = backlog.drop(fenced, "task-1", Invocation(now=NOW, by="planner-1"), None)
    with pytest.raises(Refused, match="task-1 is ABANDONED now: it is not released"):
        claims.release(dropped, "task-1", None, NOW, "human:ann")
    taken, run = claimed(claims.release(fenced, "task-1", None, NOW, "human:bob"), agent="coder-2")
    with pytest.raises(Refused, match=f"task-1 is CLAIMED under {run} now"):
        claims.release(taken, "task-1", None, NOW, "human:ann")


def test_an_unconfirmed_takeover_owns_nothing_and_is_not_blocked() -> None:
    state, old = claimed(board(task()))
    lapsed = Evidence(offline={"coder-1"}, dead={old})
    reserved, run = claims.reserve(state, "task-1", claims.Claimant("coder-2", HERE), "s1", later(301), lapsed)
    work = coding.SubmittedWork(head=HEAD, ahead=True, branch="task/task-1")
    with pytest.raises(NotOwner):
        coding.submit(reserved, "task-1", run, work, later(302))
    crashed = coding.record_session_end(
        reserved, "task-1", run, outcome=SessionOutcome.CRASHED, detail="x", moved=False, now=later(302)
    )
    assert crashed is reserved
    with pytest.raises(NotOwner, match="holds no task"):
        leases.renew_lease(reserved, run, later(302))
    with pytest.raises(Refused, match=r"task-1 cannot be blocked: coder-2 is taking it as coder-2\.1"):
        coding.block_by_supervisor(reserved, "task-1", "10 tries are used up", later(302))


def test_an_extension_is_in_history_and_renewals_never_shorten_it() -> None:
    state, run = claimed(board(task()))
    extended = leases.extend_lease(state, run, leases.Extension(900, " a long build "), NOW)
    assert extended.tasks[0].lease_expires == later(900)
    line = extended.tasks[0].history[-1]
    assert (line.event, line.agent, line.run) == ("extend lease", "coder-1", run)
    assert line.detail == "until 2026-01-01T12:15:00Z: a long build"
    assert leases.renew_lease(extended, run, later(100)).tasks[0].lease_expires == later(900)
    shorter = leases.extend_lease(state, run, leases.Extension(1, "x"), NOW)
    assert shorter.tasks[0].lease_expires == later(300)


def test_a_review_is_extended_as_a_task_is() -> None:
    state, _ = submitted(board(task()))
    state, run = reviews.claim_review(state, "task-1", "code-reviewer-1", NOW, Evidence(dead=frozenset({"coder-1.1"})))
    extended = leases.extend_lease(state, run, leases.Extension(900, "a long build"), NOW)
    assert extended.tasks[0].review_lease_expires == later(900)
    assert extended.tasks[0].lease_expires is None
    assert extended.tasks[0].history[-1].run == run
    assert leases.renew_lease(extended, run, later(100)).tasks[0].review_lease_expires == later(900)


def test_a_lease_from_a_fast_clock_is_shortened_at_renewal() -> None:
    state, run = claimed(board(task()))
    day = 24 * 3600
    state = leases.renew_lease(state, run, later(day))
    assert leases.renew_lease(state, run, later(10)).tasks[0].lease_expires == later(310)
    # The longest extension is kept.
    longest = leases.extend_lease(state, run, leases.Extension(leases.MAX_EXTENSION, "x"), later(10))
    assert longest.tasks[0].lease_expires == later(10 + leases.MAX_EXTENSION)
    assert leases.renew_lease(longest, run, later(10)).tasks[0].lease_expires == later(10 + leases.MAX_EXTENSION)


@pytest.mark.parametrize(("seconds", "reason"), [(0, "x"), (-1, "x"), (4 * 3600 + 1, "x"), (60, "  ")])
def test_an_extension_has_a_length_and_a_reason(seconds: int, reason: str) -> None:
    state, run = claimed(board(task()))
    with pytest.raises(UsageError, match="--extend") as refusal:
        leases.extend_lease(state, run, leases.Extension(seconds, reason), NOW)
    assert refusal.value.hint.startswith("liza heartbeat --extend ")


def test_only_the_run_holding_a_task_extends_its_lease() -> None:
    state, run = claimed(board(task()))
    with pytest.raises(NotOwner):
        leases.extend_lease(state, "coder-1.9", leases.Extension(60, "x"), NOW)
    for _ in range(leases.MAX_EXTENSIONS):
        state = leases.extend_lease(state, run, leases.Extension(60, "x"), NOW)
    with pytest.raises(Refused, match="20 times"):
        leases.extend_lease(state, run, leases.Extension(60, "x"), NOW)


def test_the_lease_of_planning_is_renewed_and_not_extended() -> None:
    state = replace(board(), planning=PlanningClaim(run="planner-1.1", trigger="INITIAL_PLANNING", lease_expires=NOW))
    assert leases.renew_lease(state, "planner-1.1", NOW).planning.lease_expires == later(300)
    with pytest.raises(Refused, match="plans"):
        leases.extend_lease(state, "planner-1.1", leases.Extension(60, "x"), NOW)


def test_a_failed_check_is_noted_once_by_the_holding_run() -> None:
    state, run = claimed(board(task(), handoff={"task-1": Handoff(agent="coder-1", summary="half")}))
    failed = FailedCheck(time=NOW, run=run, check="worktree", expected="it is there", actual="x" * 9000)
    noted = coding.note_failed_check(state, "task-1", failed)
    note = noted.handoff["task-1"]
    assert note.summary == "half"
    assert note.failed_check is not None
    assert note.failed_check.actual == "x" * 500
    assert coding.note_failed_check(noted, "task-1", replace(failed, check="lease")) is noted
    assert coding.note_failed_check(state, "task-1", replace(failed, run="coder-1.9")) is state
    done = coding.submit(state, "task-1", run, SubmittedWork(head=BASE, ahead=True, branch="task/task-1"), NOW)
    assert coding.note_failed_check(done, "task-1", failed) is done


@pytest.mark.parametrize("bad", ["", "coder", "coder-", "coder-x", "../coder-1", "coder-1\n", "Coder-1", "coder-1.2"])
def test_a_malformed_agent_id_is_a_usage_error(bad: str) -> None:
    with pytest.raises(UsageError):
        parse_agent_id(bad)


@pytest.mark.parametrize("bad", ["", "-a", "a/b", "..", "a b", "a\n", "é", "x" * 65, "a.lock", "@{1}"])
def test_a_malformed_task_id_is_a_usage_error(bad: str) -> None:
    with pytest.raises(UsageError):
        check_task_id(bad)


def test_tasks_added_together_are_picked_in_board_order() -> None:
    state = board(*(task(f"t{number}") for number in (2, 10, 1)))
    picked = picking.pick_task(state, "coder-1", NOW, NONE)
    assert isinstance(picked, Pick)
    assert picked.task.id == "t2"


@pytest.mark.parametrize(
    ("fields", "evidence", "busy", "reason"),
    [
        ({}, NONE, {}, None),
        ({"status": S.REJECTED, "assigned_to": "coder-2"}, NONE, {}, None),
        (
            {"status": S.CLAIMED, "assigned_to": "coder-1", "lease_expires": NOW},
            NONE,
            {},
            "its lease expired at 2026-01-01 12:00:00Z, no supervisor of coder-1 runs, and no session of it lives",
        ),
        ({"status": S.REJECTED, "assigned_to": "coder-1", "failed_by": ("coder-1",)}, NONE, {}, "coder-1 failed it"),
        (
            {"status": S.INTEGRATION_FAILED, "assigned_to": "coder-1"},
            Evidence(offline=frozenset({"coder-1"})),
            {},
            "no supervisor of coder-1 runs",
        ),
        (
            {"status": S.REJECTED, "assigned_to": "coder-1"},
            NONE,
            {"status": S.CLAIMED, "assigned_to": "coder-1"},
            "coder-1 is busy with other",
        ),
        (
            {"status": S.REJECTED, "assigned_to": "coder-1"},
            NONE,
            {},
            "coder-1 did not fix it within config.lease_duration",
        ),
    ],
)
def test_a_claim_of_anothers_task_names_owner_and_reason(
    fields: dict[str, Any], evidence: Evidence, busy: dict[str, Any], reason: str | None
) -> None:
    told = claims.takeover_reason(board(task("other", **busy)), task(**fields), "coder-2", evidence)
    assert told == (None if reason is None else f"taken over from coder-1: {reason}")
