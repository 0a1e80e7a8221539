"""Each broken rule of a board is told with its entry, its field, the value found and the value expected."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.model import invariants
from liza.model.model import (
    Agent,
    Anomaly,
    ArchiveSummary,
    BreakerSettings,
    BreakerTrip,
    Budget,
    CircuitBreaker,
    Discovery,
    Gate,
    MergeInProgress,
    MergeRetry,
    NotifySettings,
    QueueSettings,
    Reservation,
    SlotLimits,
    State,
    Status,
    TakenFeedback,
    TrackedRequest,
    Violation,
)
from tests.unit.boards import BASE, HEAD, NOW, agents, board, claimed, task, under_review, with_config

S = Status
CREW = agents("coder-1", "coder-2", "code-reviewer-1", runs=9)
RESERVED = Reservation(
    agent="coder-2", run="coder-2.1", slot="s4", host="h", boot="b", pid=1, start="1", expires=NOW, previous_run=None
)
WORK = {"assigned_to": "coder-1", "worktree": "s1", "base_commit": BASE, "review_commit": HEAD}
IN_REVIEW = under_review(board(task(), agents=agents("coder-1", "code-reviewer-1", runs=8)))[0].tasks[0]


COUNTERS = (
    "iteration", "idle_sessions", "reviews_without_verdict", "review_cycles_current", "review_cycles_total",
)  # fmt: skip
SURROGATE = ("a surrogate without its pair", "text that UTF-8 can encode")
ID_FORM = "letters, digits, '-' and '_', at most 64, first a letter or digit"
AGENT_FORM = "a role (planner, coder, code-reviewer), a dash and a number"


def of_task(**fields: Any) -> State:
    return board(task(**fields), agents=CREW)


def of_config(**fields: Any) -> State:
    return with_config(board(), **fields)


def because(status: str) -> str:
    return f"a value, because it is {status}"


CASES: list[tuple[State, tuple[tuple[str, str, str, str], ...]]] = [
    (board(), ()),
    (of_task(priority=10), (("task-1", "priority", "10", "1 to 9"),)),
    (of_task(priority=0), (("task-1", "priority", "0", "1 to 9"),)),
    (of_task(priority=9), ()),
    (of_task(priority=1), ()),
    *(
        (of_task(**{name: -1}), (("task-1", name, "-1", "0 or more"),))
        for name in COUNTERS
    ),
    *(
        (of_task(**{name: "x\ud800"}), (("task-1", name, *SURROGATE),))
        for name in ("description", "done_when", "scope", "spec_ref")
    ),
    (of_task(scope="für alle"), ()),
    *(
        (of_task(**{name: ""}), (("task-1", name, "missing", because("UNCLAIMED")),))
        for name in ("description", "done_when", "scope", "spec_ref")
    ),
    (of_task(status=S.DRAFT, scope=""), ()),
    (of_task(status=S.ABANDONED, scope=""), ()),
    *(
        (of_task(status=status), tuple(("task-1", name, "missing", because(status)) for name in names))
        for status, names in (
            (S.CLAIMED, ("assigned_to", "worktree", "base_commit", "lease_expires")),
            (S.READY_FOR_REVIEW, ("assigned_to", "worktree", "base_commit", "review_commit")),
            (S.APPROVED, ("assigned_to", "review_commit", "approved_by")),
            (S.REJECTED, ("assigned_to", "worktree", "review_commit", "rejection_reason")),
            (S.INTEGRATION_FAILED, ("assigned_to", "worktree", "review_commit")),
            (S.BLOCKED, ("blocked_reason", "blocked_questions")),
            (S.MERGED, ("merge_commit", "approved_by", "review_commit")),
            (S.SUPERSEDED, ("superseded_by", "rescope_reason")),
        )
    ),
    (of_task(epic="a/b"), (("task-1", "epic", "'a/b'", f"'a/b' is not a task id: {ID_FORM}"),)),
    (of_task(target="task/x"), (("task-1", "target", "'task/x'", "the name of a branch, without an epic"),)),
    (of_task(epic="e", target="main"), (("task-1", "target", "'main'", "the name of a branch, without an epic"),)),
    (of_task(target="main"), ()),
    (
        of_task(status=S.ABANDONED, worktree="s1"), (("task-1", "worktree", "s1", "none, because it is ABANDONED"),),
    ),
    (
        of_task(merging=MergeInProgress(candidate=HEAD, expected=BASE)),
        (("task-1", "merging", HEAD, "none, because it is UNCLAIMED"),),
    ),
    (
        of_task(set_aside=MergeRetry(kind="failed", reason="r")),
        (("task-1", "set_aside", "failed", "none, because it is UNCLAIMED"),),
    ),
    (
        of_task(assigned_to="coder-1", approved_by="coder-1"),
        (("task-1", "approved_by", "coder-1", "an agent other than its author"),),
    ),
    (
        of_task(status=S.DRAFT, reservation=RESERVED),
        (("task-1", "reservation", "coder-2.1", "none, because it is DRAFT"),),
    ),
    (of_task(reservation=RESERVED), ()),
    (board(IN_REVIEW, agents=CREW), ()),
    (
        board(replace(IN_REVIEW, reviewing_by="coder-1"), agents=CREW),
        (("task-1", "reviewing_by", "coder-1", "an agent other than its author"),),
    ),
    (
        board(replace(IN_REVIEW, review_run=None, review_lease_expires=None), agents=CREW),
        tuple(
            ("task-1", name, "missing", "a value, because it is under review")
            for name in ("review_run", "review_lease_expires")
        ),
    ),
    (
        board(replace(IN_REVIEW, status=S.CLAIMED, lease_expires=NOW), agents=CREW),
        (("task-1", "reviewing_by", "code-reviewer-1", "none, because it is CLAIMED"),),
    ),
    (
        board(agents={"coder1": Agent(role="coder", status="IDLE")}),
        (("coder1", "id", "'coder1'", f"'coder1' is not an agent id: {AGENT_FORM}"),),
    ),
    (
        board(agents={"coder-1": Agent(role="planner", status="BUSY", runs=-1)}),
        (
            ("coder-1", "role", "planner", "coder, one of planner, coder, code-reviewer"),
            ("coder-1", "status", "BUSY", f"one of {', '.join(invariants.AGENT_STATUSES)}"),
            ("coder-1", "runs", "-1", "0 or more"),
        ),
    ),
    (board(agents={"code-reviewer-1": Agent(role="code_reviewer", status="IDLE")}), ()),
    (
        board(agents={"coder-1": Agent(role="coder", status="WORKING")}),
        (("coder-1", "status", "WORKING", "another status, because it holds no task, review or planning"),),
    ),
    (
        replace(board(), goal=replace(board().goal, status="x")),
        (("goal", "status", "x", f"one of {', '.join(invariants.GOAL_STATUSES)}"),),
    ),
    (
        replace(board(), sprint=replace(board().sprint, status="x")),
        (("sprint", "status", "x", f"one of {', '.join(invariants.SPRINT_STATUSES)}"),),
    ),
    (
        board(discovered=(Discovery(id="d-1", urgency="x"),)), (("d-1", "urgency", "x", "one of immediate, deferred"),),
    ),
    (
        board(anomalies=(Anomaly(timestamp=NOW, type="workaround"), Anomaly(timestamp=NOW, type="external_blocker"))),
        (("anomalies[1]", "details.blocker_service", "missing", "a value, because it is a external_blocker"),),
    ),
    (
        replace(board(), circuit_breaker=CircuitBreaker(status="x", history=(
            BreakerTrip(time=NOW, trigger="no_merges", severity="bad", detail="d"),
        ))),
        (
            ("circuit_breaker", "status", "x", "one of OK, TRIGGERED"),
            ("circuit_breaker", "history.no_merges", "bad", "one of warn, checkpoint, halt"),
        ),
    ),
    (
        replace(board(), pull_request=TrackedRequest(number=-1, state="x", taken=(
            TakenFeedback(key="a", task="t"), TakenFeedback(key="b", task="t"), TakenFeedback(key="b", task="u"),
        ))),
        (
            ("pull_request", "number", "-1", "0 or more"),
            ("pull_request", "state", "x", "one of OPEN, CLOSED, MERGED"),
            ("pull_request", "taken", "twice b", "each key once"),
        ),
    ),
    (
        board(archived=ArchiveSummary(
            counts={"MERGED": -1, "DRAFT": 2}, verdicts={"reject": -2}, outcomes={"a": S.DRAFT},
        )),
        (
            ("archived", "MERGED", "-1", "0 or more"),
            ("archived", "reject", "-2", "0 or more"),
            ("archived", "counts", "DRAFT", "only statuses of closed tasks"),
            ("archived", "outcomes.a", "DRAFT", "MERGED or ABANDONED"),
        ),
    ),
    (of_config(merge_clean="x"), (("config", "merge_clean", "x", "one of always, after_red, never"),)),
    *((of_config(merge_clean=value), ()) for value in ("always", "after_red", "never")),
    (of_config(archive_after=-1), (("config", "archive_after", "-1", "0 or more"),)),
    (of_config(planning_rounds=-1), (("config", "planning_rounds", "-1", "0 or more"),)),
    (of_config(planning_rounds=0, archive_after=0, pull_request_interval=0, session_max=1), ()),
    (of_config(pull_request_interval=-1), (("config", "pull_request_interval", "-1", "0 to 31536000 seconds"),)),
    (of_config(session_max=0), (("config", "session_max", "0", "1 or more, or null"),)),
    (
        of_config(gates=(Gate(name="A", command=" ", timeout=0),)),
        tuple(
            ("config", "gates", problem, "gates that can be run")
            for problem in (
                "'A' is no name of a gate: small letters, digits, - and _, at most 40",
                "gate A has no command: it would pass for every candidate",
                "gate A has a time limit of 0 seconds",
            )
        ),
    ),
    (
        of_config(integration_command="x", gates=(
            Gate(name="tests", command="x"), Gate(name="a", command="x"), Gate(name="a", command="y", timeout=1),
        )),
        tuple(("config", "gates", f"two gates are named {name}", "gates that can be run") for name in ("tests", "a")),
    ),
    (
        of_config(queue=QueueSettings(batch=0, parallel=0, retries=-1)),
        (
            ("config", "queue.batch", "0", "1 or more"),
            ("config", "queue.parallel", "0", "1 or more"),
            ("config", "queue.retries", "-1", "0 or more"),
        ),
    ),
    (of_config(queue=QueueSettings(batch=1, parallel=1, retries=0)), ()),
    (
        of_config(notify=NotifySettings(targets=("https://x/secret",), quiet="late")),
        (
            ("config", "notify.targets", "-", "desktop, env:NAME or file:PATH"),
            ("config", "notify.quiet", "late", "hours such as 22:00-07:00"),
        ),
    ),
    (of_config(notify=NotifySettings(targets=("desktop", "env:URL"), quiet="22:00-07:00")), ()),
    (
        of_config(slots=SlotLimits(max=0, max_bytes=0)),
        tuple(("config", f"slots.{name}", "0", "1 or more, or no such line") for name in ("max", "max_bytes")),
    ),
    (of_config(slots=SlotLimits(max=1, max_bytes=1)), ()),
    (
        of_config(budget=Budget(money_per_task=0.0, tokens_per_task=-1, money_per_sprint=float("nan"))),
        (
            ("config", "budget.money_per_task", "0.0", "more than 0, or no such line"),
            ("config", "budget.money_per_sprint", "nan", "more than 0, or no such line"),
            ("config", "budget.tokens_per_task", "-1", "more than 0, or no such line"),
        ),
    ),
    (
        of_config(breaker=BreakerSettings(similarity=101, integration_failures=101, window=-1, severity={"x": "warn"})),
        (
            ("config", "breaker.window", "-1", "0 to 31536000 seconds"),
            ("config", "breaker.similarity", "101", "0 to 100"),
            ("config", "breaker.integration_failures", "101", "0 to 100"),
            ("config", "breaker.severity", "x", f"one of {', '.join(invariants.Pattern)}"),
        ),
    ),
    (
        of_config(breaker=BreakerSettings(similarity=100, integration_failures=0, severity={"no_merges": "bad"})),
        (("config", "breaker.severity.no_merges", "bad", "one of warn, checkpoint, halt"),),
    ),
    (board(task("a"), task("a")), (("a", "id", "a duplicate", "one task with that id"),)),
    (
        board(task(depends_on=("x",), superseded_by=("y",), status=S.DRAFT)),
        tuple(
            ("task-1", field, other, "a task that is on the board or in the archive")
            for field, other in (("depends_on", "x"), ("superseded_by", "y"))
        ),
    ),
    (board(task(depends_on=("x",)), archived=ArchiveSummary(outcomes={"x": S.MERGED})), ()),
    (
        board(task("a", depends_on=("b",)), task("b", depends_on=("c",)), task("c", depends_on=("b",))),
        (("b", "depends_on", "b → c → b", "no dependency cycle"),),
    ),
    (
        board(task("a", S.REJECTED, rejection_reason="r", **WORK), task("b", S.REJECTED, rejection_reason="r", **WORK)),
        (("b", "worktree", "s1, which a has too", "a value of its own"),),
    ),
    (of_task(run="coder-1.10"), (("task-1", "run", "coder-1.10", "a run that its agent's run counter has reached"),)),
    (of_task(run="coder-1.9"), ()),
    (of_task(run="coder-7.1"), (("task-1", "run", "coder-7.1", "a run that its agent's run counter has reached"),)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_broken_rule_is_told_with_its_entry_its_field_and_both_values(number: int) -> None:
    state, expected = CASES[number]
    found = invariants.check_board(state)
    wanted = tuple(Violation(entry=e, field=f, actual=a, expected=x) for e, f, a, x in expected)
    secret = tuple(replace(one, actual="-") if one.field == "notify.targets" else one for one in found)
    assert sorted(secret, key=str) == sorted(wanted, key=str)
    assert "secret" not in "".join(map(str, found))


def test_two_claims_of_one_agent_and_two_reviews_of_one_run_are_told() -> None:
    first, _ = claimed(board(task("a"), agents=CREW), "a")
    second = replace(first.tasks[0], id="b", worktree="s2")
    assert invariants.check_relations(replace(first, tasks=(*first.tasks, second))) == (
        Violation(entry="b", field="assigned_to", actual="coder-1, which a has too", expected="a value of its own"),
    )
    reviews = replace(first, tasks=(IN_REVIEW, replace(IN_REVIEW, id="b", worktree="s2")))
    assert invariants.check_relations(reviews) == (
        Violation(
            entry="b",
            field="review_run",
            actual="code-reviewer-1.9, which task-1 has too",
            expected="a value of its own",
        ),
    )


def test_a_cycle_is_found_from_each_of_its_tasks() -> None:
    state = board(
        task("a", depends_on=("b", "d")), task("b", depends_on=("c",)), task("c", depends_on=("a",)), task("d")
    )
    assert invariants.find_cycle(state, "a") == ("a", "b", "c", "a")
    assert invariants.find_cycle(state, "c") == ("c", "a", "b", "c")
    assert invariants.find_cycle(state, "d") == ()
    assert invariants.find_cycle(board(task("a", depends_on=("a",))), "a") == ("a", "a")
    tail = replace(state, tasks=(*state.tasks, task("x", depends_on=("a",))))
    assert invariants.find_cycle(tail, "x") == ()
