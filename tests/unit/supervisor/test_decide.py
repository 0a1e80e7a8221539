from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.model.backoff import MAX_BACKOFF, backoff
from liza.model.model import BreakerTrip, CircuitBreaker, Discovery, Event, MergeInProgress, State, Status, Task
from liza.model.session_ends import SessionOutcome, StopReason
from liza.supervisor.rules import actions, decide
from liza.supervisor.rules.session_facts import MergeFacts, SessionFacts, SessionState
from liza.tasks.rules import claims, coding
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.planning import claim_planning, end_planning, find_triggers, next_trigger, undo_planning_claim
from liza.usage.rules.loop_detection import Stuck
from tests.unit.boards import HEAD, NOW, agents, board, claimed, submitted, task, under_review, with_config
from tests.unit.situations import living, situation

S = Status
OVER, NEVER = SessionState.OVER, SessionState.NEVER


def at(state: State, agent: str = "coder-1", **facts: Any) -> actions.Action:
    return decide.decide(situation(state, agent, **facts))


def test_an_idle_agent_takes_the_work_of_its_role() -> None:
    assert at(board(task())) == actions.Claim("task-1")
    state, run = submitted(board(task()))
    over = Evidence(dead=frozenset({run}))
    assert at(state, "code-reviewer-1", evidence=over) == actions.ClaimReview("task-1")
    assert isinstance(at(state, "code-reviewer-1"), actions.Wait)
    assert at(board(), "planner-1") == actions.ClaimPlanning("INITIAL_PLANNING")


def test_a_claim_starts_a_first_session_and_then_resumes() -> None:
    state, run = claimed(board(task()))
    assert at(state, session=SessionFacts(run=run, state=NEVER)) == actions.StartSession(run)
    assert at(state) == actions.Resume("task-1", run)


def test_a_retiring_coder_finishes_its_work_and_takes_no_other() -> None:
    assert at(board(task()), retiring=True) == actions.Exit(0, "retired: no task waited for it")
    state, run = claimed(board(task()))
    assert isinstance(at(state, session=living(run), retiring=True), actions.Wait)
    assert at(state, session=SessionFacts(run=run, state=OVER), retiring=True) == actions.ConcludeSession(run)
    assert at(state, retiring=True) == actions.Resume("task-1", run)
    assert isinstance(at(board(task()), retiring=True, job="a merge runs"), actions.Wait)


def test_a_restarted_supervisor_watches_its_living_session() -> None:
    state, run = claimed(board(task()))
    assert isinstance(at(state, session=living(run)), actions.Wait)
    assert at(state, session=SessionFacts(run=run, state=OVER)) == actions.ConcludeSession(run)


def test_a_session_without_progress_is_warned_once_then_ended() -> None:
    state, run = claimed(board(task()))
    first, final = Stuck("no progress: x", final=False), Stuck("no progress: y", final=True)
    assert at(state, session=living(run, stuck=first)) == actions.Warn(run, "no progress: x")
    assert isinstance(at(state, session=living(run, stuck=first, warned=True)), actions.Wait)
    assert at(state, session=living(run, stuck=final)) == actions.Warn(run, "no progress: y")
    assert at(state, session=living(run, stuck=final, warned=True)) == actions.StopSession(
        run, StopReason.NO_PROGRESS, "no progress: y"
    )
    assert isinstance(at(state, session=living(run, stuck=final, warned=True, since_closing_command=1.0)), actions.Wait)


def test_a_supervisor_with_a_working_agent_still_merges_unless_paused() -> None:
    state, run = claimed(board(*_approved().tasks, task("task-9")), "task-9")
    assert at(state, session=living(run)) == actions.Merge("task-1")
    for held_up in ({"signals": ("PAUSE",)}, {"job": "merge task-1 runs"}, {"merge_lock_free": False}):
        assert isinstance(at(state, session=living(run), **held_up), actions.Wait), held_up
    assert isinstance(at(state, session=living(run), leaving=True), actions.StopSession)


def test_a_leaving_supervisor_gives_its_task_back_once_and_leaves() -> None:
    state, run = claimed(board(task()))
    assert at(state, leaving=True) == actions.GiveBack(run)
    stopped = claims.stop(state, "task-1", run, NOW)
    assert at(stopped, leaving=True) == actions.Exit(0, "stopped")
    assert at(stopped, signals=("ABORT",)) == actions.Exit(0, "stopped")
    assert at(stopped) == actions.Resume("task-1", run)
    # It was stopped before its first session began: a run that said its stop could not say it again.
    assert at(stopped, session=SessionFacts(run=run, state=NEVER)) == actions.Resume("task-1", run)


def test_a_session_whose_task_was_taken_over_is_ended() -> None:
    state, run = claimed(board(task()))
    state, _ = claims.resume(state, "task-1", run, NOW)
    assert at(state, session=living(run)) == actions.StopSession(run, StopReason.FENCED)


def test_a_session_has_grace_after_its_closing_command() -> None:
    state, run = claimed(board(task()))
    state = coding.submit(state, "task-1", run, SubmittedWork(head=HEAD, ahead=True, branch="task/task-1"), NOW)
    waiting = at(state, session=living(run, since_closing_command=5.0))
    assert isinstance(waiting, actions.Wait)
    assert waiting.seconds == 15.0
    assert at(state, session=living(run, since_closing_command=20.0)) == actions.StopSession(run, StopReason.LINGERING)
    at_terminal = at(state, session=living(run, since_closing_command=5.0, has_terminal=True))
    assert isinstance(at_terminal, actions.Wait)
    assert at_terminal.seconds == 1.0
    rests = living(run, since_closing_command=0.1, has_terminal=True, is_turn_over=True)
    assert at(state, session=rests) == actions.StopSession(run, StopReason.OVER)


@pytest.mark.parametrize(
    ("facts", "reason", "detail"),
    [
        ({"ready": False, "since_start": 61.0}, StopReason.NOT_READY, "not ready after 60 s"),
        ({"since_activity": 601.0}, StopReason.HUNG, "hung: no activity for 601 s"),
    ],
)
def test_a_session_that_never_began_or_hangs_is_ended(facts: dict[str, Any], reason: StopReason, detail: str) -> None:
    state, run = claimed(board(task()))
    assert at(state, session=living(run, **facts)) == actions.StopSession(run, reason, detail)


def test_a_program_starting_in_a_terminal_is_watched_for_questions() -> None:
    state, run = claimed(board(task()))
    for terminal, ready, seconds in (
        (True, False, 1.0),
        (True, True, 10.0),
        (False, True, 60.0),
        (False, False, 55.01),
    ):
        wait = at(state, session=living(run, since_start=5.0, has_terminal=terminal, ready=ready))
        assert isinstance(wait, actions.Wait)
        assert wait.seconds == pytest.approx(seconds)


def test_the_heartbeat_goes_on_while_the_session_lives() -> None:
    state, run = claimed(board(task()))
    assert at(state, session=living(run, since_heartbeat=60.0)) == actions.RenewLease(run)
    calm = at(state, session=living(run, since_heartbeat=20.0))
    assert isinstance(calm, actions.Wait)
    assert calm.seconds == 40.0


def test_abort_ends_a_living_session_then_releases_and_leaves() -> None:
    state, run = claimed(board(task()))
    assert at(state, signals=("ABORT",), session=living(run)) == actions.StopSession(run, StopReason.STOP)
    assert at(state, signals=("ABORT",)) == actions.GiveBack(run)
    assert isinstance(at(board(), signals=("ABORT",)), actions.Exit)


@pytest.mark.parametrize("signal", ["PAUSE", "CHECKPOINT"])
def test_a_pause_starts_nothing_new_and_leaves_living_sessions_alone(signal: str) -> None:
    assert isinstance(at(board(task()), signals=(signal,)), actions.Wait)
    state, run = claimed(board(task()))
    assert isinstance(at(state, signals=(signal,)), actions.Wait)
    assert isinstance(at(state, signals=(signal,), session=living(run)), actions.Wait)


def test_a_crash_loop_stops_the_supervisor() -> None:
    assert at(board(task()), crash_loop="they crash") == actions.Exit(1, "they crash")


def test_a_rest_after_crashes_of_one_task_delays_no_other() -> None:
    first, second = (Evidence(resting={name: 4.0}) for name in ("task-1", "task-2"))
    both = Evidence(resting={"task-1": 4.0, "task-2": 3.0})
    assert at(board(task()), evidence=first) == actions.Wait("task-1: resting before the next session", 4.0)
    tasks = board(task(), task("task-2"))
    assert at(tasks, evidence=first) == actions.Claim("task-2")
    assert at(tasks, evidence=second) == actions.Claim("task-1")
    waits = at(tasks, evidence=both)
    assert isinstance(waits, actions.Wait)
    assert waits.seconds == 3.0
    state, run = claimed(board(task()))
    assert at(state, evidence=first) == actions.Wait("resting before the next session", 4.0)
    assert at(state, evidence=second) == actions.Resume("task-1", run)


def test_a_rest_after_a_failed_review_delays_no_other_review() -> None:
    state, run = submitted(board(task()))
    over = Evidence(dead=frozenset({run}))
    resting = replace(over, resting={"task-1": 4.0})
    waits = actions.Wait("task-1: resting before the next session", 4.0)
    assert at(state, "code-reviewer-1", evidence=resting) == waits
    assert at(state, "code-reviewer-1", evidence=replace(over, resting={"t": 4.0})) == actions.ClaimReview("task-1")


def test_a_rest_after_a_crash_holds_back_the_next_session() -> None:
    state, _ = claimed(board(task()))
    assert at(state, rest_seconds=4.0) == actions.Wait("resting before the next session", 4.0)
    assert [backoff(count, 5.0, MAX_BACKOFF) for count in (1, 2, 3, 9, 9999)] == [5.0, 10.0, 20.0, 300.0, 300.0]


def test_a_limit_blocks_a_task_instead_of_resuming_it() -> None:
    state, run = claimed(with_config(board(task()), max_coder_iterations=1))
    assert isinstance(at(state), actions.BlockTask)
    assert at(claims.stop(state, "task-1", run, NOW)) == actions.Resume("task-1", run)
    held_up = coding.record_session_end(
        state, "task-1", run, outcome=SessionOutcome.HELD_UP, detail="x", moved=False, now=NOW
    )
    assert at(held_up) == actions.Resume("task-1", run)


def _approved() -> State:
    from liza.tasks.rules import reviews

    state, _, review = under_review(board(task()))
    return reviews.approve(state, "task-1", review, HEAD, NOW)


@pytest.mark.parametrize("agent", ["coder-1", "code-reviewer-1", "planner-1"])
def test_an_approved_task_is_merged_before_anything_else(agent: str) -> None:
    assert at(_approved(), agent) == actions.Merge("task-1")
    assert not isinstance(at(_approved(), agent, merge_lock_free=False), actions.Merge)


def test_only_an_idle_crew_renews_an_old_proof() -> None:
    old = MergeFacts(may_prove=True)
    merged = board(replace(task(), status=Status.MERGED))
    assert isinstance(decide.decide(replace(situation(merged, "coder-1"), merging=old)), actions.RenewProof)
    assert isinstance(decide.decide(situation(merged, "coder-1")), actions.Wait)
    for state, agent in ((board(task()), "code-reviewer-1"), (claimed(board(task()))[0], "coder-2")):
        assert isinstance(decide.decide(replace(situation(state, agent), merging=old)), actions.Wait)
    paused = replace(situation(merged, "coder-1", signals=("PAUSE",)), merging=old)
    assert isinstance(decide.decide(paused), actions.Wait)


def test_while_a_job_runs_nothing_else_is_begun() -> None:
    assert at(_approved(), job="merge task-1 runs") == actions.Wait("merge task-1 runs")


def test_after_a_sleep_nothing_is_taken_over_for_one_lease() -> None:
    state, run = claimed(board(task()))
    state = state.with_task(replace(state.tasks[0], lease_expires=NOW))
    facts: dict[str, Any] = {"evidence": Evidence(offline=frozenset({"coder-1"}), dead=frozenset({run}))}
    later = replace(state, agents={**state.agents, **agents("coder-2")})
    assert at(later, "coder-2", since_clock_gap=10.0, **facts) == actions.Wait(
        "the machine slept: no expired claim is taken over for one lease duration", 290.0
    )
    assert at(later, "coder-2", since_clock_gap=301.0, **facts) == actions.Claim("task-1")


BLOCKED: dict[str, Any] = {"blocked_reason": "r", "blocked_questions": ("q",)}


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (board(), "INITIAL_PLANNING"),
        (board(task(status=S.BLOCKED, **BLOCKED)), "BLOCKED_TASKS"),
        (board(task(status=S.BLOCKED, failed_by=("coder-1", "coder-2"), **BLOCKED)), "HYPOTHESIS_EXHAUSTION"),
        (board(task(), discovered=(Discovery(id="d1", urgency="immediate"),)), "IMMEDIATE_DISCOVERY"),
        (board(task(status=S.ABANDONED)), "SPRINT_COMPLETE"),
        (board(task(status=S.INTEGRATION_FAILED, failed_by=("coder-1", "coder-2"))), "INTEGRATION_FAILED"),
    ],
)
def test_what_wakes_a_planner(state: State, name: str) -> None:
    assert [one.name for one in find_triggers(state)] == [name]


def test_the_same_facts_wake_a_planner_twice_at_most() -> None:
    state = board(task(status=S.BLOCKED, **BLOCKED), agents=agents("planner-1"))
    for _ in range(2):
        state, run = claim_planning(state, "planner-1", NOW)
        state = end_planning(state, run)
    assert "waits for a person" in str(next_trigger(state))
    blocked_again = Event(time=NOW, event="block", agent="coder-1")
    again = state.with_task(replace(state.tasks[0], history=(*state.tasks[0].history, blocked_again)))
    assert not isinstance(next_trigger(again), str)


def test_an_abandoned_review_or_planning_is_taken_over() -> None:
    state, run, review = under_review(board(task()))
    state = replace(state, agents={**state.agents, **agents("code-reviewer-2")})
    over = Evidence(dead=frozenset({run}))
    assert isinstance(at(state, "code-reviewer-2", evidence=over), actions.Wait)
    gone = Evidence(dead=over.dead, abandoned=frozenset({review}))
    assert at(state, "code-reviewer-2", evidence=gone) == actions.ClaimReview("task-1")
    planned, planning_run = claim_planning(board(agents=agents("planner-1", "planner-2")), "planner-1", NOW)
    assert isinstance(at(planned, "planner-2"), actions.Wait)
    left = Evidence(abandoned=frozenset({planning_run}))
    assert at(planned, "planner-2", evidence=left) == actions.ClaimPlanning("INITIAL_PLANNING")


def test_a_supervisor_leaving_after_crashes_gives_its_task_back_first() -> None:
    state, run = claimed(board(task()))
    assert at(state, crash_loop="they crash") == actions.GiveBack(run)
    stopped = claims.stop(state, "task-1", run, NOW)
    assert isinstance(at(stopped, crash_loop="they crash"), actions.Exit)


def test_only_one_planner_plans_and_its_empty_plan_completes_goals() -> None:
    done: Task = task(status=S.ABANDONED)
    state, run = claim_planning(board(done, agents=agents("planner-1")), "planner-1", NOW)
    assert next_trigger(state) == f"{run} is planning SPRINT_COMPLETE"
    assert end_planning(state, run).goal.status == "COMPLETED"
    assert end_planning(state, "planner-9.1") is state


def test_a_held_up_planner_may_be_woken_again() -> None:
    woken, run = claim_planning(board(task(status=S.ABANDONED), agents=agents("planner-1")), "planner-1", NOW)
    state = undo_planning_claim(woken, run)
    assert (state.goal.status, state.planning.run, state.planning.count) == ("IN_PROGRESS", None, 0)
    assert undo_planning_claim(woken, "planner-9.1") is woken
    assert not isinstance(next_trigger(state), str)


def test_a_waiting_candidate_is_left_alone_by_the_loop() -> None:
    state = _approved()
    waiting = state.with_task(
        replace(state.tasks[0], merging=MergeInProgress(candidate=HEAD, expected=HEAD, waiting="a.py"))
    )
    assert isinstance(at(waiting), actions.Wait)


def test_a_supervisor_wakes_when_the_time_of_its_session_ends() -> None:
    state, run = claimed(board(task()))
    for left, wanted in ((None, 60.0), (7.5, 7.51), (0.0, 0.01), (90.0, 60.0)):
        action = at(state, session=living(run), seconds_left=left)
        assert isinstance(action, actions.Wait)
        assert action.seconds == pytest.approx(wanted)


TRIPPED = board(
    task(status=S.BLOCKED, **BLOCKED),
    agents=agents("planner-1"),
    circuit_breaker=CircuitBreaker(
        history=(BreakerTrip(time=NOW, trigger="review_loop", severity="checkpoint", detail="task-1 loops"),)
    ),
)
BY_BREAKER: dict[str, Any] = {"signals": ("CHECKPOINT",), "signals_of_breaker": ("CHECKPOINT",)}


@pytest.mark.parametrize(
    ("facts", "plans"),
    [
        (BY_BREAKER, True),
        ({"signals": ("CHECKPOINT",)}, False),
        ({"signals": ("CHECKPOINT", "PAUSE"), "signals_of_breaker": ("CHECKPOINT",)}, False),
        ({"signals": ("CHECKPOINT", "PAUSE"), "signals_of_breaker": ("CHECKPOINT", "PAUSE")}, False),
        ({**BY_BREAKER, "over_budget": "$9 of $8 are spent"}, False),
        ({**BY_BREAKER, "rest_seconds": 5.0}, False),
        ({**BY_BREAKER, "state": replace(TRIPPED, circuit_breaker=CircuitBreaker())}, False),
    ],
)
def test_at_a_breaker_checkpoint_a_planner_wakes_only_for_trips(facts: dict[str, Any], plans: bool) -> None:
    state = facts.pop("state", TRIPPED)
    found = at(state, "planner-1", **facts)
    assert (found == actions.ClaimPlanning("BREAKER_TRIPPED")) is plans
    assert plans or isinstance(found, actions.Wait)
    assert isinstance(at(board(task(), agents=agents("coder-1")), "coder-1", **BY_BREAKER), actions.Wait)


def test_planning_for_a_trip_continues_at_its_checkpoint_alone() -> None:
    state, run = claim_planning(TRIPPED, "planner-1", NOW)
    assert at(state, "planner-1", session=SessionFacts(run, SessionState.NEVER), **BY_BREAKER) == actions.StartSession(
        run
    )
    other = replace(state, planning=replace(state.planning, trigger="BLOCKED_TASKS"))
    assert isinstance(at(other, "planner-1", session=SessionFacts(run, SessionState.NEVER), **BY_BREAKER), actions.Wait)
