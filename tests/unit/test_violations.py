"""Each broken rule of a board is told with its entry, its field, the value found and the value expected."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liza.rules import derived, invariants, paths, settings, transitions
from liza.rules.errors import UsageError
from liza.rules.history_events import HistoryEvent
from liza.rules.model import (
    Agent,
    Anomaly,
    ArchiveSummary,
    BreakerSettings,
    BreakerTrip,
    Budget,
    CircuitBreaker,
    Config,
    Discovery,
    Event,
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
from liza.rules.paths import Paths
from tests.unit.boards import BASE, HEAD, NOW, agents, board, claimed, later, task, under_review, with_config

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


def test_a_status_that_no_verb_can_have_written_is_told() -> None:
    before = board(task(), task("gone"), task("same"))
    after = board(task(status=S.MERGED), task("same"), task("new", S.MERGED), task("fresh", S.DRAFT))
    assert [str(violation) for violation in transitions.find_illegal_changes(before, after)] == [
        "task-1: status is MERGED, wanted UNCLAIMED or one of ABANDONED, CLAIMED, SUPERSEDED: it was UNCLAIMED",
        "new: status is MERGED, wanted DRAFT or UNCLAIMED: it is new",
        "gone: id is gone, wanted every task stays on the board",
    ]
    assert transitions.find_illegal_changes(before, before) == ()


@pytest.mark.parametrize(
    ("status", "events", "step"),
    [
        (S.UNCLAIMED, (), None),
        (S.MERGED, (), None),
        (S.MERGED, ("merge",), None),
        (S.MERGED, ("approve",), None),
        (S.MERGED, ("claim", "own word"), "claim"),
        (S.MERGED, ("own word",), "own word"),
        (S.UNCLAIMED, ("own word",), None),
        (S.CLAIMED, ("own word",), None),
    ],
)
def test_a_step_that_does_not_lead_to_the_status_is_named(
    status: Status, events: tuple[str, ...], step: str | None
) -> None:
    history = tuple(Event(time=NOW, event=event) for event in events)
    assert transitions.find_unexplained_step(task(status=status, history=history)) == step
    assert transitions.has_done(task(history=history), HistoryEvent.MERGE, None) is False


ROOT = Path("/crew")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("liza", ".liza"), ("state", ".liza/state.yaml"), ("state_lock", ".liza/state.yaml.lock"),
        ("journal", ".liza/log.yaml"), ("merge_lock", ".liza/merge.lock"), ("usage", ".liza/usage.jsonl"),
        ("gates", ".liza/gates.jsonl"), ("alerts", ".liza/alerts.log"), ("pins", ".liza/pins.json"),
        ("task_links", ".worktrees/.slots/tasks"), ("slots", ".worktrees/.slots"),
        ("slots_record", ".liza/worktrees.json"),
        ("api_socket", ".liza/run/api.sock"), ("api_port", ".liza/run/api.port"), ("contracts", ".liza/contracts"),
        ("specs", ".liza/specs"), ("logs", ".liza/logs"), ("runs", ".liza/run"), ("archive", ".liza/archive"),
        ("records", ".liza/records"), ("notices", ".liza/notices"), ("locks", ".liza/locks"), ("tx", ".liza/tx"),
        ("recorder_lock", ".liza/locks/recorder.lock"), ("pins_lock", ".liza/locks/pins.lock"),
        ("worktree_lock", ".liza/locks/worktree-add.lock"), ("down_lock", ".liza/locks/down.lock"),
        ("server_lock", ".liza/locks/server.lock"), ("server_start_lock", ".liza/locks/server-start.lock"),
        ("merge_turn", ".liza/locks/merge-turn.lock"), ("push_turn", ".liza/locks/push-turn.lock"),
        ("push_lock", ".liza/locks/push.lock"), ("push_failure", ".liza/run/push-failure.json"),
        ("server_failure", ".liza/run/server-failure.json"), ("spool", ".liza/tx/spool"),
        ("write_intent", ".liza/tx/seal"), ("request_sync", ".liza/tx/request-sync"),
        ("archive_intent", ".liza/tx/archive"), ("archive_index", ".liza/tx/archive.index"),
        ("archive_recorded", ".liza/tx/archive.stamps"), ("archive_compared", ".liza/tx/archive.compared"),
        ("archive_failed", ".liza/tx/archive.failed"),
    ],
)  # fmt: skip
def test_processes_of_two_versions_find_the_same_files(name: str, expected: str) -> None:
    assert getattr(Paths(ROOT), name) == ROOT / expected


def test_the_paths_of_runs_tasks_and_slots_have_their_names() -> None:
    inside, outside = Paths(ROOT), Paths(ROOT, Path("/slots"))
    assert inside.run("coder-1.7") == ROOT / ".liza/run/coder-1/coder-1.7"
    assert inside.supervisor_lock("coder-1") == ROOT / ".liza/locks/supervisor-coder-1.lock"
    assert inside.task_lock("t") == ROOT / ".liza/locks/task-t.lock"
    assert inside.worker_port("coder-1.7") == ROOT / ".liza/run/worker-coder-1.7.port"
    assert inside.signal("PAUSE") == ROOT / ".liza/PAUSE"
    assert (inside.slot("s1"), outside.slot("s1")) == (ROOT / ".worktrees/.slots/s1", Path("/slots/s1"))
    assert outside.task_link("t") == Path("/slots/tasks/t")
    assert (paths.branch_of("t"), paths.run_id("coder-1", 7), paths.person_id("ann")) == (
        "task/t",
        "coder-1.7",
        "human:ann",
    )
    assert paths.HISTORY_REF == "refs/liza/blackboard"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/me/.local/state/liza"),
        ({"XDG_STATE_HOME": "/x"}, "/x/liza"),
        ({"XDG_STATE_HOME": "x"}, "/me/.local/state/liza"),
    ],
)
def test_the_state_of_a_user_is_below_an_absolute_state_home(environ: dict[str, str], expected: str) -> None:
    assert paths.state_directory(environ, Path("/me")) == Path(expected)


def test_agents_are_sorted_by_role_and_number() -> None:
    names = ["zed", "coder-10", "code-reviewer-1", "coder-2", "planner-1", "coder-x", "apple-3"]
    assert paths.sort_agents(names) == [
        "planner-1", "coder-x", "coder-2", "coder-10", "code-reviewer-1", "zed", "apple-3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("run", "agent", "number"),
    [("coder-1.7", "coder-1", 7), ("coder-1.7", "coder-2", None), ("coder-1", "coder-1", None), ("x.1", "x", None)],
)
def test_a_run_has_a_number_for_its_own_agent(run: str, agent: str, number: int | None) -> None:
    assert paths.run_number(run, agent) == number


@pytest.mark.parametrize(
    ("check", "text", "message", "hint"),
    [
        (
            paths.agent_of, "coder-1", "'coder-1' is not a run: an agent id, a dot and a number, such as coder-1.7",
            "liza agents",
        ),
        (
            paths.parse_agent_id, "boss-1",
            f"'boss-1' is not an agent id: {AGENT_FORM}", "liza agents",
        ),
        (
            paths.check_task_id, "-a",
            f"'-a' is not a task id: {ID_FORM}", "liza task list",
        ),
    ],
)  # fmt: skip
def test_a_malformed_id_is_refused_with_its_form(check: Any, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check(text)
    assert (str(refusal.value), refusal.value.hint) == (message, hint)


@pytest.mark.parametrize("text", ["reviewer-1", "code_reviewer-1", "code-reviewer-1"])
def test_a_reviewer_has_three_spellings(text: str) -> None:
    assert paths.parse_agent_id(text) == "code-reviewer-1"


CONFIRMED = {"integration_command": "make test", "budget": {"money_per_task": 2}}
BOARD = Config(integration_command="true", budget=Budget(money_per_task=2), heartbeat_interval=9)


def test_a_setting_that_no_person_confirmed_is_not_in_effect() -> None:
    (setting,) = settings.find_unconfirmed(BOARD, CONFIRMED)
    assert (setting.key, setting.used, setting.on_board) == ("integration_command", "make test", "true")
    assert setting.description == (
        "config.integration_command was changed outside of liza to 'true'; 'make test' is used until a person "
        "confirms that"
    )
    assert settings.effective_config(BOARD, CONFIRMED) == replace(BOARD, integration_command="make test")
    assert settings.effective_config(BOARD, {**CONFIRMED, "integration_command": "true"}) is BOARD
    (cleared,) = settings.find_unconfirmed(replace(BOARD, integration_command=None), CONFIRMED)
    assert " to nothing; 'make test' is used " in cleared.description
    assert settings.changed_settings(Config(), BOARD) == {
        "integration_command": "true", "budget": {"money_per_task": 2},
    }  # fmt: skip
    assert settings.describe_effective(Config()) == (
        "the settings in effect: none (all others have their default values)"
    )
    assert settings.describe_effective(BOARD) == (
        "the settings in effect: integration_command 'true'; budget {'money_per_task': 2} "
        "(all others have their default values)"
    )


@pytest.mark.parametrize(
    ("confirmed", "valid"),
    [({}, True), (CONFIRMED, True), ({"budget": 3}, False), ([], False), (None, False), ({"unknown": object()}, True)],
)
def test_confirmed_values_of_wrong_types_are_not_used(confirmed: object, valid: bool) -> None:
    assert settings.are_valid(confirmed) is valid


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hung_aftr", "config.hung_aftr is no setting; did you mean hung_after?"),
        ("zzz", "config.zzz is no setting"),
        ("zzz.money", "config.zzz.money is no setting"),
        (
            "slots.maxx",
            "config.slots.maxx is no setting; did you mean max? (config.slots has max, max_bytes)",
        ),
        (
            "budget.money_per_tsk",
            "config.budget.money_per_tsk is no setting and limits nothing; did you mean money_per_task? "
            f"(config.budget has {', '.join(Budget.__struct_fields__)})",
        ),
    ],
)
def test_an_unknown_setting_is_told_with_the_nearest_one(key: str, text: str) -> None:
    assert settings.describe_unknown_key(key) == text
    outer, _, name = key.partition(".")
    assert settings.unknown_keys({outer: {name: 1} if name else 1, "hung_after": 5}) == (
        (key,) if not name or outer in settings.NESTED_SETTINGS else (outer,)
    )


def test_what_an_agent_does_is_derived_from_what_it_holds() -> None:
    crew = {
        **agents("coder-1", "coder-2", "coder-3", "code-reviewer-1", "planner-1"),
        "coder-4": Agent(role="coder", status="OFFLINE"), "coder-5": Agent(role="coder", status="OFFLINE"),
        "coder-6": Agent(role="coder", status="WORKING"), "coder-7": Agent(role="coder", status="WAITING"),
    }  # fmt: skip
    held = {"status": S.CLAIMED, "worktree": "s", "base_commit": BASE, "lease_expires": later(1)}
    state = board(
        task("a", assigned_to="coder-1", **held),
        task("b", assigned_to="coder-2", handoff_pending=True, **held),
        task("c", reservation=replace(RESERVED, agent="coder-3")),
        task("d", S.READY_FOR_REVIEW, reviewing_by="code-reviewer-1"),
        task("e", assigned_to="coder-4", handoff_pending=True, **held),
        agents=crew, planning=replace(board().planning, run="planner-1.2"),
    )  # fmt: skip
    after = derived.update_derived_fields(state)
    assert {name: (agent.status, agent.current_task) for name, agent in after.agents.items()} == {
        "coder-1": ("WORKING", "a"), "coder-2": ("HANDOFF", "b"), "coder-3": ("WORKING", "c"),
        "code-reviewer-1": ("REVIEWING", "d"), "planner-1": ("WORKING", None), "coder-4": ("OFFLINE", "e"),
        "coder-5": ("OFFLINE", None), "coder-6": ("IDLE", None), "coder-7": ("WAITING", None),
    }  # fmt: skip
    assert after.sprint.metrics == {
        "total": 5, "merged": 0, "in_progress": 4, "blocked": 0, "approved": 0, "rejected": 0,
    }  # fmt: skip


def test_the_metrics_of_a_sprint_count_the_archive_too() -> None:
    history = tuple(
        Event(time=datetime(2026, 1, 1, tzinfo=UTC), event=name) for name in ("approve", "reject", "deadlock")
    )
    state = board(
        task("a", S.MERGED, history=history), task("b", S.BLOCKED), task("c", S.APPROVED), task("d", S.REJECTED),
        archived=ArchiveSummary(counts={"MERGED": 3, "ABANDONED": 1}, verdicts={"approve": 2, "reject": 4}),
    )  # fmt: skip
    assert derived.sprint_metrics(state) == {
        "total": 8, "merged": 4, "in_progress": 2, "blocked": 1, "approved": 3, "rejected": 6,
    }  # fmt: skip
