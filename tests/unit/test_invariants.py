from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.rules import invariants
from liza.rules.derived import update_derived_fields
from liza.rules.history_events import HistoryEvent
from liza.rules.model import (
    Agent,
    Anomaly,
    Budget,
    CircuitBreaker,
    Config,
    Discovery,
    Goal,
    MergeInProgress,
    State,
    Status,
    TakenFeedback,
    TrackedRequest,
)
from liza.rules.tasks.planning import claim_planning
from liza.rules.transitions import TRANSITIONS, Invocation, apply_verb, find_illegal_changes
from tests.unit.boards import BASE, NOW, agents, board, claimed, task, under_review

S = Status
TAKEN = TakenFeedback(key="comment x", task="t")


def _one(**fields: Any) -> State:
    return board(task(**fields), agents=agents("coder-1", runs=9))


def _limited(**limits: Any) -> State:
    return replace(board(), config=Config(budget=Budget(**limits)))


@pytest.mark.parametrize(
    ("state", "entry", "field"),
    [
        (board(task("../x")), "../x", "id"),
        (_one(priority=0), "task-1", "priority"),
        (_one(iteration=-1), "task-1", "iteration"),
        (_one(description=""), "task-1", "description"),
        (_one(status=S.CLAIMED), "task-1", "assigned_to"),
        (_one(status=S.BLOCKED), "task-1", "blocked_reason"),
        (_one(status=S.MERGED), "task-1", "merge_commit"),
        (_one(worktree="s1", status=S.ABANDONED), "task-1", "worktree"),
        (_one(merging=MergeInProgress(candidate=BASE, expected=BASE)), "task-1", "merging"),
        (_one(reviewing_by="code-reviewer-1"), "task-1", "reviewing_by"),
        (_one(assigned_to="coder-1", approved_by="coder-1"), "task-1", "approved_by"),
        (_one(depends_on=("nowhere",)), "task-1", "depends_on"),
        (_one(run="coder-1.10"), "task-1", "run"),
        (_one(run="coder-7.1"), "task-1", "run"),
        (_one(run="coder-1.²"), "task-1", "run"),
        (_one(run=f"coder-1.{'1' * 5000}"), "task-1", "run"),
        (board(task(), task()), "task-1", "id"),
        (_limited(money_per_sprint=-1.0), "config", "budget.money_per_sprint"),
        (_limited(tokens_per_task=0), "config", "budget.tokens_per_task"),
        (_limited(money_per_task=float("nan")), "config", "budget.money_per_task"),
        (replace(board(), config=Config(archive_after=-5)), "config", "archive_after"),
        (replace(board(), config=Config(session_max=0)), "config", "session_max"),
        (replace(board(), config=Config(pull_request_interval=-1)), "config", "pull_request_interval"),
        (replace(board(), pull_request=TrackedRequest(number=-1)), "pull_request", "number"),
        (replace(board(), pull_request=TrackedRequest(state="GONE")), "pull_request", "state"),
        (replace(board(), pull_request=TrackedRequest(taken=(TAKEN, TAKEN))), "pull_request", "taken"),
        (board(agents={"boss": Agent(role="coder", status="IDLE")}), "boss", "id"),
        (board(agents={"coder-1": Agent(role="planner", status="IDLE")}), "coder-1", "role"),
        (board(agents={"coder-1": Agent(role="coder", status="HAPPY")}), "coder-1", "status"),
        (replace(board(), goal=Goal(id="g", status="DONE")), "goal", "status"),
        (board(agents={"coder-1": Agent(role="coder", status="WORKING")}), "coder-1", "status"),
        (
            board(agents={"code-reviewer-1": Agent(role="code-reviewer", status="REVIEWING")}),
            "code-reviewer-1",
            "status",
        ),
        (board(anomalies=(Anomaly(timestamp=NOW, type="mood"),)), "anomalies[0]", "type"),
        (board(anomalies=(Anomaly(timestamp=NOW, type="retry_loop"),)), "anomalies[0]", "details.count"),
        (board(discovered=(Discovery(id="d-1", urgency="soon"),)), "d-1", "urgency"),
        (board(circuit_breaker=CircuitBreaker(status="OFF")), "circuit_breaker", "status"),
    ],
)
def test_each_broken_rule_names_entry_field_found_and_wanted(state: State, entry: str, field: str) -> None:
    found = invariants.check_board(state)
    assert (entry, field) in [(one.entry, one.field) for one in found]
    assert all(one.actual and one.expected for one in found)


def test_a_cycle_of_dependencies_is_named_once_with_its_path() -> None:
    state = board(task("a", depends_on=("b",)), task("b", depends_on=("c",)), task("c", depends_on=("a",)), task("d"))
    found = [one for one in invariants.check_board(state) if one.field == "depends_on"]
    assert len(found) == 1
    assert found[0].actual == "a → b → c → a"
    assert invariants.find_cycle(state, "b")
    assert not invariants.find_cycle(state, "d")


def test_a_long_chain_of_dependencies_is_no_cycle_and_does_not_overflow() -> None:
    tasks = [task(f"t{n}", depends_on=(f"t{n + 1}",) if n < 4999 else ()) for n in range(5000)]
    assert invariants.check_relations(board(*tasks)) == ()


def test_two_tasks_in_one_worktree_or_two_claims_of_one_agent_are_found() -> None:
    state, _ = claimed(board(task(), task("task-2")))
    twin = replace(state.tasks[0], id="task-2")
    found = {one.field for one in invariants.check_relations(replace(state, tasks=(state.tasks[0], twin)))}
    assert {"worktree", "assigned_to"} <= found


def test_boards_that_the_rules_make_break_no_invariant() -> None:
    state, _, _ = under_review(board(task(), agents={}))
    assert invariants.check_board(state) == ()


def test_an_agent_that_holds_a_task_a_review_or_planning_works_on_something() -> None:
    state, _, _ = under_review(board(task(), agents={}))
    claims, _ = claimed(board(task(), agents=agents("planner-1")))
    planned, _ = claim_planning(board(agents=agents("planner-1")), "planner-1", NOW)
    for holding in map(update_derived_fields, (state, claims, planned)):
        assert {"WORKING", "REVIEWING"} & {agent.status for agent in holding.agents.values()}
        assert invariants.check_board(holding) == ()


def test_a_change_by_liza_repairs_the_status_of_an_agent_that_works_on_nothing() -> None:
    state, _ = claimed(board(task(), agents={}))
    edited = replace(update_derived_fields(state), tasks=())
    assert [(broken.entry, broken.field) for broken in invariants.check_board(edited)] == [("coder-1", "status")]
    assert invariants.check_board(update_derived_fields(edited)) == ()


@pytest.mark.parametrize("verb", sorted({arrow.verb for arrow in TRANSITIONS}))
@pytest.mark.parametrize("source", list(Status))
def test_a_status_changes_only_along_an_arrow_of_the_table(verb: HistoryEvent, source: Status) -> None:
    said = Invocation(now=NOW, by="somebody")
    arrow = next((one for one in TRANSITIONS if one.verb == verb and source in one.sources), None)
    if arrow is not None:
        moved = apply_verb(task(status=source), verb, said)
        assert moved.status is arrow.target
        assert moved.history[-1].event == verb
    else:
        with pytest.raises(Exception, match="no transition"):
            apply_verb(task(status=source), verb, said)


def test_a_change_that_no_arrow_explains_is_judged() -> None:
    before, _ = claimed(board(task(), task("task-2")))
    after = before.with_task(replace(before.tasks[0], status=S.MERGED))
    (found,) = find_illegal_changes(before, replace(after, tasks=after.tasks[:1]))[:1]
    assert (found.entry, found.actual) == ("task-1", "MERGED")
    assert "it was CLAIMED" in found.expected
    assert [one.entry for one in find_illegal_changes(before, replace(before, tasks=before.tasks[:1]))] == ["task-2"]
    assert find_illegal_changes(before, before) == ()
    born = board(task("new", S.APPROVED))
    assert "it is new" in find_illegal_changes(board(), born)[0].expected
