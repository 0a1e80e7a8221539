from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.model import invariants
from liza.model.configuration import BreakerSettings, Budget, Config, Gate, NotifySettings
from liza.model.derived import update_derived_fields
from liza.model.history_events import HistoryEvent
from liza.model.model import Agent, Anomaly, ArchiveSummary, State, Status, TakenFeedback, TrackedRequest
from liza.model.transitions import TRANSITIONS, Invocation, apply_verb, find_illegal_changes
from liza.tasks.rules.planning import claim_planning
from tests.unit.boards import NOW, agents, board, claimed, task, under_review

S = Status
TAKEN = TakenFeedback(key="comment x", task="t")


def _one(**fields: Any) -> State:
    return board(task(**fields), agents=agents("coder-1", runs=9))


def test_a_long_dependency_chain_is_no_cycle_and_cannot_overflow() -> None:
    tasks = [task(f"t{n}", depends_on=(f"t{n + 1}",) if n < 4999 else ()) for n in range(5000)]
    assert invariants.check_relations(board(*tasks)) == ()


def test_boards_that_the_rules_make_break_no_invariant() -> None:
    state, _, _ = under_review(board(task(), agents={}))
    assert invariants.check_board(state) == ()


def test_an_agent_holding_a_task_review_or_planning_is_working() -> None:
    state, _, _ = under_review(board(task(), agents={}))
    claims, _ = claimed(board(task(), agents=agents("planner-1")))
    planned, _ = claim_planning(board(agents=agents("planner-1")), "planner-1", NOW)
    for holding in map(update_derived_fields, (state, claims, planned)):
        assert {"WORKING", "REVIEWING"} & {agent.status for agent in holding.agents.values()}
        assert invariants.check_board(holding) == ()


def test_a_change_by_liza_corrects_an_idle_agents_status() -> None:
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


def violations(state: State) -> list[tuple[str, str, str, str]]:
    return [(one.entry, one.field, one.actual, one.expected) for one in invariants.check_board(state)]


def _config(**fields: Any) -> State:
    return replace(board(), config=Config(**fields))


ID_FORM = "letters, digits, '-' and '_', at most 64, first a letter or digit"
RUN_FORM = "a run that its agent's run counter has reached"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (board(task("../x")), ("../x", "id", "'../x'", f"'../x' is not a task id: {ID_FORM}")),
        (_one(run="coder-1.²"), ("task-1", "run", "coder-1.²", RUN_FORM)),
        (_one(run=f"coder-1.{'1' * 5000}"), ("task-1", "run", f"coder-1.{'1' * 5000}", RUN_FORM)),
        (_one(epic="a b"), ("task-1", "epic", "'a b'", f"'a b' is not a task id: {ID_FORM}; a-b is one")),
        (
            _config(budget=Budget(seconds_per_task=0)),
            ("config", "budget.seconds_per_task", "0", "more than 0, or no such line"),
        ),
        (
            _config(permissions="bypas"),
            ("config", "permissions", "bypas", "one of prompts, bypass; did you mean bypass?"),
        ),
        (
            _config(notify=NotifySettings(quiet="9" * 50)),
            ("config", "notify.quiet", "9" * 40, "hours such as 22:00-07:00"),
        ),
        (
            _config(notify=NotifySettings(link="ftp://box")),
            (
                "config",
                "notify.link",
                "ftp://…",
                "an address such as https://box.example: http or https, without a user name or a query, at most 200"
                " characters",
            ),
        ),
        (
            _config(notify=NotifySettings(targets=("env:",))),
            (
                "config",
                "notify.targets",
                "… (env: needs the name of an environment variable)",
                "desktop, env:NAME or file:PATH",
            ),
        ),
        (
            _config(breaker=BreakerSettings(cost_without_merge=float("nan"))),
            ("config", "breaker.cost_without_merge", "nan", "0 or more"),
        ),
        (
            _config(breaker=BreakerSettings(severity={"no_merges": "hal"})),
            ("config", "breaker.severity.no_merges", "hal", "one of warn, checkpoint, halt; did you mean halt?"),
        ),
        (
            replace(board(), pull_request=TrackedRequest(state="OPE")),
            ("pull_request", "state", "OPE", "one of OPEN, CLOSED, MERGED; did you mean OPEN?"),
        ),
    ],
)
def test_a_violation_has_the_value_and_what_is_allowed(state: State, expected: tuple[str, str, str, str]) -> None:
    assert violations(state) == [expected]


@pytest.mark.parametrize("kind", ["mood", "retry_loop"])
def test_an_anomaly_has_a_known_type_and_its_details(kind: str) -> None:
    (entry, field, _, _), *_ = violations(board(anomalies=(Anomaly(timestamp=NOW, type=kind),)))
    assert (entry, field) == ("anomalies[0]", "type" if kind == "mood" else "details.count")


@pytest.mark.parametrize(
    "state",
    [
        _one(epic="invoices"),
        _config(
            budget=Budget(money_per_task=0.01),
            breaker=BreakerSettings(window=0, similarity=100, integration_failures=100, severity={"no_merges": "halt"}),
        ),
        replace(
            board(task(depends_on=("a",))), archived=ArchiveSummary(counts={"MERGED": 0}, outcomes={"a": S.MERGED})
        ),
        board(agents={"coder-1": Agent(role="coder", status="HANDOFF")}),
        replace(board(), pull_request=TrackedRequest(taken=(TAKEN, TakenFeedback(key="comment y", task="t")))),
    ],
)
def test_values_at_their_limits_are_allowed(state: State) -> None:
    assert violations(state) == []


def test_gates_that_cannot_run_and_unknown_patterns_are_violations() -> None:
    ((entry, field, _, expected),) = violations(_config(gates=(Gate(name="", command="make"),)))
    assert (entry, field, expected) == ("config", "gates", "gates that can be run")
    wrong = violations(_config(breaker=BreakerSettings(severity={"no_merge": "halt"})))
    assert [(field, actual) for _, field, actual, _ in wrong] == [("breaker.severity", "no_merge")]
    assert wrong[0][3].endswith("did you mean no_merges?")


def test_each_transition_names_its_actors_and_reason() -> None:
    assert all(row.who and row.cause for row in TRANSITIONS)
    wanted = [
        NotifySettings(),
        NotifySettings(targets=("desktop",)),
        NotifySettings(exec="a"),
        NotifySettings(exec=" "),
    ]
    assert [one.is_wanted for one in wanted] == [False, True, True, False]
