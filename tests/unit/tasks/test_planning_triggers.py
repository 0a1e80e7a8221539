"""Triggers of planning: what counts as the same reason as before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.model.derived import restart_planning_rounds
from liza.model.model import Agent, BreakerTrip, CircuitBreaker, Discovery, Event, State, Status, Task
from liza.model.statuses import WakeTrigger
from liza.supervisor.rules.actions import ClaimPlanning, SetCheckpoint, Wait
from liza.supervisor.rules.decide import decide
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.planning import (
    Trigger,
    checkpoint_reason,
    claim_planning,
    end_at_checkpoint,
    end_planning,
    find_triggers,
    leave_drafts,
    next_trigger,
    undo_planning_claim,
)
from tests.unit.boards import NOW, agents, board, later, task, with_config
from tests.unit.situations import situation


def fingerprint(state: State) -> str:
    return find_triggers(state)[0].fingerprint


def blocked(reason: str = "r", *, times: int = 1, failed_by: tuple[str, ...] = ()) -> Task:
    events = [Event(time=NOW, event=name) for _ in range(times) for name in ("claim", "block", "unblock")][:-1]
    return task(
        "t", Status.BLOCKED, blocked_reason=reason, blocked_questions=("q",), failed_by=failed_by, history=tuple(events)
    )


@pytest.mark.parametrize("failed_by", [(), ("coder-1", "coder-2")])
def test_a_task_blocked_again_is_a_new_reason_to_plan(
    failed_by: tuple[str, ...],
) -> None:
    before = board(blocked("it crashed 5 times", failed_by=failed_by))
    assert fingerprint(board(blocked("5 sessions crashed", failed_by=failed_by))) == fingerprint(before)
    assert fingerprint(board(blocked("it crashed 5 times", times=2, failed_by=failed_by))) != fingerprint(before)
    assert "it crashed 5 times" in find_triggers(before)[0].facts, "the brief of the planner has the reason"


def test_an_edited_urgent_discovery_is_the_same_reason_to_plan() -> None:
    def found(name: str, text: str) -> State:
        return board(task(), discovered=(Discovery(id=name, urgency="immediate", description=text),))

    assert fingerprint(found("d1", "keys in the log")) == fingerprint(found("d1", "keys in log.txt"))
    assert fingerprint(found("d1", "keys in the log")) != fingerprint(found("d2", "keys in the log"))


def test_a_completed_sprint_with_more_tasks_is_a_new_reason() -> None:
    merged, dropped = task("a", Status.MERGED), task("b", Status.ABANDONED)
    assert len({fingerprint(board(*tasks)) for tasks in ((merged,), (dropped,), (merged, dropped))}) == 3


FAILED = {"assigned_to": "coder-1"}
TWO_CODERS = agents("coder-1", "coder-2", "planner-1")


@pytest.mark.parametrize(
    ("fields", "present", "offline", "words"),
    [
        ({}, agents("coder-1", "planner-1"), (), ""),
        ({}, agents("coder-1", "planner-1"), ("coder-1",), "coder-1 is off, and no other coder may take it"),
        ({}, agents("planner-1"), (), "coder-1 is not on the board any more"),
        ({}, TWO_CODERS, ("coder-1",), ""),
        ({}, agents("coder-2", "planner-1"), (), ""),
        ({}, agents("coder-2", "planner-1"), ("coder-2",), "coder-1 is not on the board any more"),
        ({"failed_by": ("coder-2",)}, TWO_CODERS, ("coder-1",), "coder-1 is off"),
        ({"failed_by": ("coder-2",)}, TWO_CODERS, (), ""),
        ({"failed_by": ("coder-1", "coder-2")}, TWO_CODERS, (), "coder-1 and coder-2 failed it"),
    ],
)
def test_a_failed_merge_without_coders_wakes_a_planner_at_once(
    fields: dict[str, tuple[str, ...]], present: dict[str, Agent], offline: tuple[str, ...], words: str
) -> None:
    state = board(task("t", Status.INTEGRATION_FAILED, **{**FAILED, **fields}), agents=present)
    triggers = find_triggers(state, Evidence(offline=frozenset(offline)))
    assert [trigger.name for trigger in triggers] == (["INTEGRATION_FAILED"] if words else [])
    assert words in "".join(trigger.facts for trigger in triggers)


def test_a_trigger_waiting_for_a_person_hides_no_other() -> None:
    urgent = Discovery(id="d-1", urgency="immediate")
    state = board(blocked(), agents=agents("planner-1"), discovered=(urgent,))
    names = []
    while isinstance(trigger := next_trigger(state), Trigger):
        names.append(trigger.name)
        state, run = claim_planning(state, "planner-1", NOW)
        state = end_planning(state, run)
    assert names == ["IMMEDIATE_DISCOVERY", "IMMEDIATE_DISCOVERY", "BLOCKED_TASKS", "BLOCKED_TASKS"]
    assert "cannot wait (d-1)" in str(next_trigger(state))
    later_one = replace(state, discovered=(urgent, replace(urgent, id="d-2")))
    assert getattr(next_trigger(later_one), "name", "") == "IMMEDIATE_DISCOVERY"
    assert claim_planning(later_one, "planner-1", NOW)[0].planning.exhausted == ("BLOCKED_TASKS|t|1",)


def tripped(*severities: str, resolved: bool = False) -> State:
    trips = tuple(
        BreakerTrip(
            time=later(number),
            trigger="review_loop",
            severity=severity,
            subject=f"t{number}",
            detail=f"t{number} had 6 rejections",
            tasks=(f"t{number}",),
            resolved=later(60) if resolved else None,
        )
        for number, severity in enumerate(severities)
    )
    return board(task("t0"), agents=agents("planner-1"), circuit_breaker=CircuitBreaker(history=trips))


@pytest.mark.parametrize(
    ("state", "ids"),
    [
        (tripped("warn"), [("t0",)]),
        (tripped("warn", "checkpoint"), [("t0", "t1")]),
        (tripped("checkpoint", resolved=True), []),
        (tripped("halt"), []),
        (tripped("warn", "halt"), []),
    ],
)
def test_an_open_trip_wakes_planners_unless_only_persons_resolve_it(state: State, ids: list[tuple[str, ...]]) -> None:
    triggers = find_triggers(state)
    assert [trigger.ids for trigger in triggers] == ids
    assert all(trigger.name == "BREAKER_TRIPPED" and "t0 had 6 rejections" in trigger.facts for trigger in triggers)


def test_another_trip_is_a_new_reason_to_plan() -> None:
    assert fingerprint(tripped("warn")) != fingerprint(tripped("warn", "warn"))
    state = tripped("checkpoint")
    for _ in range(2):
        state, run = claim_planning(state, "planner-1", NOW)
        state = end_planning(state, run)
    assert "the circuit breaker tripped (t0), and 2 planning sessions changed nothing" in str(next_trigger(state))


SETTLED = board(task("t0", Status.MERGED), agents=agents("planner-1"))


def add_merged(state: State) -> State:
    return replace(state, tasks=(*state.tasks, task(f"t{len(state.tasks)}", Status.MERGED)))


def plan_round(state: State) -> State:
    """A planner is woken at the end of the sprint and adds a task, which is merged."""
    state, run = claim_planning(state, "planner-1", NOW)
    added = replace(state, tasks=(*state.tasks, task(f"t{len(state.tasks)}")))
    ended = end_planning(added, run)
    return replace(ended, tasks=(*ended.tasks[:-1], task(ended.tasks[-1].id, Status.MERGED)))


def test_planners_that_add_tasks_three_times_wait_for_a_person() -> None:
    state = SETTLED
    for rounds in range(3):
        assert (state.planning.rounds, checkpoint_reason(state)) == (rounds, None)
        state = plan_round(state)
    reason = checkpoint_reason(state)
    assert reason is not None
    assert "planners have added tasks 3 times in a row" in reason
    assert next_trigger(state) == f"{reason}: it waits for a person"
    assert decide(situation(state, "planner-1")) == SetCheckpoint(reason)
    assert isinstance(decide(situation(state, "planner-1", signals=("CHECKPOINT",))), Wait)
    freed = restart_planning_rounds(state)
    assert decide(situation(freed, "planner-1")) == ClaimPlanning(WakeTrigger.SPRINT_COMPLETE)
    assert restart_planning_rounds(freed) is freed


@pytest.mark.parametrize(("limit", "rounds", "is_checkpoint"), [(0, 9, False), (1, 1, True), (4, 3, False)])
def test_planning_rounds_limits_rounds_without_a_person(limit: int, rounds: int, is_checkpoint: bool) -> None:
    state = with_config(SETTLED, planning_rounds=limit)
    for _ in range(rounds):
        state = plan_round(state)
    assert (checkpoint_reason(state) is not None) == is_checkpoint
    unfinished = replace(state, tasks=(*state.tasks, task("other")))
    assert checkpoint_reason(unfinished) is None


def test_only_planning_that_added_tasks_is_a_round() -> None:
    state, run = claim_planning(SETTLED, "planner-1", NOW)
    assert undo_planning_claim(state, run).planning.rounds == 0
    assert end_planning(state, run).planning.rounds == 0
    urgent = replace(SETTLED, discovered=(Discovery(id="d", urgency="immediate"),))
    state, run = claim_planning(urgent, "planner-1", NOW)
    assert end_planning(add_merged(state), run).planning.rounds == 0


def test_a_dead_planners_round_counts_when_another_plans() -> None:
    state, run = claim_planning(SETTLED, "planner-1", NOW)
    gone = Evidence(abandoned=frozenset({run}))
    state, _ = claim_planning(add_merged(state), "planner-2", NOW, gone)
    assert state.planning.rounds == 1


def test_a_planning_checkpoint_hides_no_other_reason_to_plan() -> None:
    state = SETTLED
    for _ in range(3):
        state = plan_round(state)
    found = replace(state, discovered=(Discovery(id="d", urgency="immediate"),))
    assert decide(situation(found, "planner-1")) == ClaimPlanning(WakeTrigger.IMMEDIATE_DISCOVERY)


def draft(name: str, lacks: str | None = "done_when is missing") -> Task:
    """A draft that was added without something; None: it was requested."""
    return task(name, Status.DRAFT, history=(Event(time=NOW, event="add", detail=lacks),))


def drafts(*tasks: Task) -> State:
    return board(*tasks, agents=agents("planner-1"))


def plan_drafts(state: State, *, is_decided: bool) -> State:
    """A planner is woken and changes nothing. Without a decision its session ended by itself."""
    state, run = claim_planning(state, "planner-1", NOW)
    return end_planning(leave_drafts(state, run) if is_decided else state, run)


def test_only_drafts_that_lack_something_wake_a_planner() -> None:
    assert find_triggers(drafts(draft("asked", None), task("ready"))) == ()
    (trigger,) = find_triggers(drafts(draft("asked", None), draft("a"), draft("b", "scope is missing")))
    assert (trigger.name, trigger.ids) == ("OPEN_DRAFTS", ("a", "b"))
    assert trigger.facts == "a: done_when is missing; b: scope is missing"


def test_drafts_that_a_planner_leaves_wake_none_again() -> None:
    state = plan_drafts(drafts(draft("a"), draft("b")), is_decided=True)
    assert next_trigger(state) == "nothing to plan"
    fewer = replace(state, tasks=(draft("b", "scope is missing"),))
    assert next_trigger(fewer) == "nothing to plan", "edited, and still incomplete"
    more = replace(state, tasks=(*state.tasks, draft("c")))
    assert getattr(next_trigger(more), "ids", ()) == ("c",)
    assert next_trigger(plan_drafts(more, is_decided=True)) == "nothing to plan"


@pytest.mark.parametrize(("author", "is_known"), [("planner-1", True), ("human:ann", False)])
def test_a_planner_knows_the_drafts_that_it_added_itself(author: str, is_known: bool) -> None:
    """A person may add a draft while a planner plans something else: it has not seen it."""
    state, run = claim_planning(drafts(blocked()), "planner-1", NOW)
    added = task("a", Status.DRAFT, history=(Event(time=NOW, event="add", agent=author, detail="scope is missing"),))
    ended = end_planning(leave_drafts(replace(state, tasks=(*state.tasks, added)), run), run)
    assert ("OPEN_DRAFTS" not in [trigger.name for trigger in find_triggers(ended)]) == is_known
    assert leave_drafts(ended, "planner-1.99") is ended


def test_a_planner_that_fails_at_drafts_is_woken_twice() -> None:
    state, woken = drafts(draft("a")), 0
    while isinstance(next_trigger(state), Trigger):
        state, woken = plan_drafts(state, is_decided=False), woken + 1
    assert woken == 2
    assert "a draft lacks something (a)" in str(next_trigger(state))


def test_drafts_wait_while_something_more_urgent_is_planned() -> None:
    state = drafts(draft("a"), blocked())
    assert [trigger.name for trigger in find_triggers(state)] == ["BLOCKED_TASKS", "OPEN_DRAFTS"]


def test_a_planner_that_asks_for_a_person_completes_no_goal() -> None:
    state, run = claim_planning(SETTLED, "planner-1", NOW)
    assert end_planning(state, run).goal.status == "COMPLETED"
    asked = end_at_checkpoint(state, run)
    assert (asked.goal.status, asked.planning.run) == ("IN_PROGRESS", None)
    assert getattr(next_trigger(asked), "name", "") == "SPRINT_COMPLETE", "once the person has resumed the crew"
    assert end_at_checkpoint(state, "planner-1.99") is state
