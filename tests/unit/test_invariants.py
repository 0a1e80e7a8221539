from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.rules import invariants
from liza.rules.derived import update_derived_fields
from liza.rules.history_events import HistoryEvent
from liza.rules.model import (
    URGENCIES,
    Agent,
    Anomaly,
    ArchiveSummary,
    BreakerSettings,
    BreakerTrip,
    Budget,
    CircuitBreaker,
    Config,
    Discovery,
    Gate,
    Goal,
    MergeInProgress,
    NotifySettings,
    QueueSettings,
    SlotLimits,
    Sprint,
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


def violations(state: State) -> list[tuple[str, str, str, str]]:
    return [(one.entry, one.field, one.actual, one.expected) for one in invariants.check_board(state)]


def _config(**fields: Any) -> State:
    return replace(board(), config=Config(**fields))


TASK_ID = "{!r} is not a task id: letters, digits, '-' and '_', at most 64, first a letter or digit"
WANTED_SESSION = "1 or more, or null"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (_one(priority=10), ("task-1", "priority", "10", "1 to 9")),
        (_one(idle_sessions=-1), ("task-1", "idle_sessions", "-1", "0 or more")),
        (_one(reviews_without_verdict=-1), ("task-1", "reviews_without_verdict", "-1", "0 or more")),
        (_one(review_cycles_current=-1), ("task-1", "review_cycles_current", "-1", "0 or more")),
        (_one(review_cycles_total=-2), ("task-1", "review_cycles_total", "-2", "0 or more")),
        (_one(scope="\udc80"), ("task-1", "scope", "a surrogate without its pair", "text that UTF-8 can encode")),
        (_one(done_when=""), ("task-1", "done_when", "missing", "a value, because it is UNCLAIMED")),
        (_one(epic="a b"), ("task-1", "epic", "'a b'", TASK_ID.format("a b") + "; a-b is one")),
        (_one(target="a b"), ("task-1", "target", "'a b'", "the name of a branch, without an epic")),
        (_one(epic="e", target="x"), ("task-1", "target", "'x'", "the name of a branch, without an epic")),
        (
            _one(merging=MergeInProgress(candidate=BASE, expected=BASE)),
            ("task-1", "merging", BASE, "none, because it is UNCLAIMED"),
        ),
        (
            _one(status=S.ABANDONED, worktree="s1"),
            ("task-1", "worktree", "s1", "none, because it is ABANDONED"),
        ),
        (
            _one(assigned_to="coder-1", approved_by="coder-1"),
            ("task-1", "approved_by", "coder-1", "an agent other than its author"),
        ),
        (
            _one(depends_on=("x",)),
            ("task-1", "depends_on", "x", "a task that is on the board or in the archive"),
        ),
        (_one(run="coder-2.1"), ("task-1", "run", "coder-2.1", "a run that its agent's run counter has reached")),
        (board(task("a"), task("a")), ("a", "id", "a duplicate", "one task with that id")),
        (
            board(agents={"coder-1": Agent(role="planner", status="IDLE")}),
            ("coder-1", "role", "planner", "coder, one of planner, coder, code-reviewer"),
        ),
        (
            board(agents={"coder-1": Agent(role="coder", status="IDLE", runs=-1)}),
            ("coder-1", "runs", "-1", "0 or more"),
        ),
        (
            board(agents={"coder-1": Agent(role="coder", status="REVIEWING")}),
            ("coder-1", "status", "REVIEWING", "another status, because it holds no task, review or planning"),
        ),
        (_config(archive_after=-1), ("config", "archive_after", "-1", "0 or more")),
        (_config(pull_request_interval=-1), ("config", "pull_request_interval", "-1", "0 to 31536000 seconds")),
        (_config(session_max=0), ("config", "session_max", "0", WANTED_SESSION)),
        (_config(queue=QueueSettings(batch=0)), ("config", "queue.batch", "0", "1 or more")),
        (_config(queue=QueueSettings(parallel=0)), ("config", "queue.parallel", "0", "1 or more")),
        (_config(queue=QueueSettings(retries=-1)), ("config", "queue.retries", "-1", "0 or more")),
        (_config(slots=SlotLimits(max=0)), ("config", "slots.max", "0", "1 or more, or no such line")),
        (_limited(seconds_per_task=0), ("config", "budget.seconds_per_task", "0", "more than 0, or no such line")),
        (
            _config(permissions="bypas"),
            ("config", "permissions", "bypas", "one of confined, bypass; did you mean bypass?"),
        ),
        (
            _config(merge_clean="x"),
            ("config", "merge_clean", "x", "one of always, after_red, never"),
        ),
        (
            _config(notify=NotifySettings(quiet="9" * 50)),
            ("config", "notify.quiet", "9" * 40, "hours such as 22:00-07:00"),
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
        (_config(breaker=BreakerSettings(window=-1)), ("config", "breaker.window", "-1", "0 to 31536000 seconds")),
        (
            _config(breaker=BreakerSettings(cost_without_merge=float("nan"))),
            ("config", "breaker.cost_without_merge", "nan", "0 or more"),
        ),
        (_config(breaker=BreakerSettings(similarity=101)), ("config", "breaker.similarity", "101", "0 to 100")),
        (
            _config(breaker=BreakerSettings(integration_failures=101)),
            ("config", "breaker.integration_failures", "101", "0 to 100"),
        ),
        (
            _config(breaker=BreakerSettings(severity={"no_merges": "hal"})),
            ("config", "breaker.severity.no_merges", "hal", "one of warn, checkpoint, halt; did you mean halt?"),
        ),
        (
            replace(board(), archived=ArchiveSummary(counts={"MERGED": -1})),
            ("archived", "MERGED", "-1", "0 or more"),
        ),
        (
            replace(board(), archived=ArchiveSummary(verdicts={"approve": -1})),
            ("archived", "approve", "-1", "0 or more"),
        ),
        (
            replace(board(), archived=ArchiveSummary(counts={"CLAIMED": 1})),
            ("archived", "counts", "CLAIMED", "only statuses of closed tasks"),
        ),
        (
            replace(board(), archived=ArchiveSummary(outcomes={"a": S.SUPERSEDED})),
            ("archived", "outcomes.a", "SUPERSEDED", "MERGED or ABANDONED"),
        ),
        (
            replace(board(), pull_request=TrackedRequest(number=-1)),
            ("pull_request", "number", "-1", "0 or more"),
        ),
        (
            replace(board(), pull_request=TrackedRequest(taken=(TakenFeedback(key="k", task="u"), TAKEN, TAKEN))),
            ("pull_request", "taken", "twice comment x", "each key once"),
        ),
        (
            replace(board(), pull_request=TrackedRequest(state="OPE")),
            ("pull_request", "state", "OPE", "one of OPEN, CLOSED, MERGED; did you mean OPEN?"),
        ),
        (
            board(circuit_breaker=CircuitBreaker(history=(BreakerTrip(time=NOW, trigger="no_merges", severity="x"),))),
            ("circuit_breaker", "history.no_merges", "x", "one of warn, checkpoint, halt"),
        ),
        (
            board(discovered=(Discovery(id="d-1", urgency="later"),)),
            ("d-1", "urgency", "later", f"one of {', '.join(URGENCIES)}"),
        ),
        (
            replace(board(), sprint=Sprint(status="DONE")),
            ("sprint", "status", "DONE", "one of IN_PROGRESS, CHECKPOINT, COMPLETED, ABORTED"),
        ),
    ],
)
def test_a_violation_tells_the_value_and_what_is_allowed(state: State, expected: tuple[str, str, str, str]) -> None:
    assert violations(state) == [expected]


@pytest.mark.parametrize(
    "state",
    [
        _one(priority=1),
        _one(priority=9),
        _one(target="release/1"),
        _one(epic="invoices"),
        _one(run="coder-1.9"),
        board(task(status=S.DRAFT, description="", done_when="", scope="", spec_ref="")),
        _config(
            session_max=1,
            archive_after=0,
            pull_request_interval=0,
            queue=QueueSettings(batch=1, parallel=1, retries=0),
            slots=SlotLimits(max=1),
            budget=Budget(money_per_task=0.01),
            breaker=BreakerSettings(window=0, similarity=100, integration_failures=100, severity={"no_merges": "halt"}),
            notify=NotifySettings(targets=("desktop",), quiet="22:00-07:00"),
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


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (S.CLAIMED, "assigned_to worktree base_commit lease_expires"),
        (S.READY_FOR_REVIEW, "assigned_to worktree base_commit review_commit"),
        (S.APPROVED, "assigned_to review_commit approved_by"),
        (S.REJECTED, "assigned_to worktree review_commit rejection_reason"),
        (S.INTEGRATION_FAILED, "assigned_to worktree review_commit"),
        (S.BLOCKED, "blocked_reason blocked_questions"),
        (S.MERGED, "merge_commit approved_by review_commit"),
        (S.SUPERSEDED, "superseded_by rescope_reason"),
    ],
)
def test_each_status_needs_its_fields(status: Status, fields: str) -> None:
    assert violations(_one(status=status)) == [
        ("task-1", field, "missing", f"a value, because it is {status}") for field in fields.split()
    ]


def test_a_review_belongs_to_a_task_that_waits_for_one_and_to_another_agent() -> None:
    reviewed = _one(reviewing_by="coder-1", assigned_to="coder-1")
    assert violations(reviewed) == [
        ("task-1", "reviewing_by", "coder-1", "none, because it is UNCLAIMED"),
        ("task-1", "reviewing_by", "coder-1", "an agent other than its author"),
        ("task-1", "review_run", "missing", "a value, because it is under review"),
        ("task-1", "review_lease_expires", "missing", "a value, because it is under review"),
    ]


def test_what_two_tasks_share_is_told_with_both() -> None:
    held = {"assigned_to": "coder-1", "worktree": "s1", "base_commit": BASE, "lease_expires": NOW, "run": "coder-1.1"}
    two = board(task("a", S.CLAIMED, **held), task("b", S.CLAIMED, **held), agents=agents("coder-1", runs=1))
    assert violations(two) == [
        ("b", "worktree", "s1, which a has too", "a value of its own"),
        ("b", "assigned_to", "coder-1, which a has too", "a value of its own"),
    ]


def test_a_cycle_through_a_task_is_found_with_its_path() -> None:
    tasks = (task("a", depends_on=("b", "c")), task("b"), task("c", depends_on=("d",)), task("d", depends_on=("a",)))
    assert invariants.find_cycle(board(*tasks), "a") == ("a", "c", "d", "a")
    assert invariants.find_cycle(board(*tasks), "b") == ()
    loop = board(task("x", depends_on=("a",)), *tasks)
    assert invariants.find_cycle(loop, "x") == ()
    assert ("a", "depends_on", "a → c → d → a", "no dependency cycle") in violations(board(*tasks))


def test_gates_that_cannot_run_and_patterns_that_do_not_exist_are_violations() -> None:
    ((entry, field, _, expected),) = violations(_config(gates=(Gate(name="", command="make"),)))
    assert (entry, field, expected) == ("config", "gates", "gates that can be run")
    wrong = violations(_config(breaker=BreakerSettings(severity={"no_merge": "halt"})))
    assert [(field, actual) for _, field, actual, _ in wrong] == [("breaker.severity", "no_merge")]
    assert wrong[0][3].endswith("did you mean no_merges?")


def test_each_transition_says_who_may_do_it_and_why_and_notices_are_wanted_with_a_target_or_a_command() -> None:
    assert all(row.who and row.cause for row in TRANSITIONS)
    wanted = [
        NotifySettings(),
        NotifySettings(targets=("desktop",)),
        NotifySettings(exec="a"),
        NotifySettings(exec=" "),
    ]
    assert [one.is_wanted for one in wanted] == [False, True, True, False]
