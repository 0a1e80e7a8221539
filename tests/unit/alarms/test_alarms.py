"""The alarms: what stands, what does not, and one command for each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from liza.alarms.rules.alarm_checks import STALE_DRAFT, STALE_SIGNAL, AlarmFacts, evaluate_alarms
from liza.model.alarm_table import Alarm, AlarmKind, waits_for_person
from liza.model.configuration import Config
from liza.model.model import (
    Agent,
    Discovery,
    Event,
    Goal,
    MergeInProgress,
    PlanningClaim,
    State,
    Status,
    SupervisorExit,
    Task,
)
from liza.tasks.rules.picking import Evidence, MissingParts, find_unclaimable

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PAST, FUTURE = NOW - timedelta(seconds=1), NOW + timedelta(seconds=60)
COMMIT = "a" * 40


def task(task_id: str = "t", status: Status = Status.UNCLAIMED, **fields: Any) -> Task:
    base: dict[str, Any] = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "p"}
    return Task(id=task_id, status=status, **{**base, **fields})


def claimed(**fields: Any) -> Task:
    base = {"assigned_to": "coder-1", "run": "coder-1.1", "worktree": "s1", "base_commit": COMMIT}
    return task(status=Status.CLAIMED, **{**base, "lease_expires": PAST, **fields})


def board(*tasks: Task, **fields: Any) -> State:
    agents = {
        name: Agent(role=name.rpartition("-")[0], status="IDLE", runs=9)
        for name in ("coder-1", "coder-2", "code-reviewer-1", "planner-1")
    }
    fields.setdefault("config", Config(integration_command="make test"))
    return State(
        version=1, revision=7, goal=Goal(id="goal", status="IN_PROGRESS"), tasks=tasks, agents=agents, **fields
    )


def kinds(state: State, seen: AlarmFacts | None = None) -> list[str]:
    return [one.kind for one in evaluate_alarms(state, NOW, seen or AlarmFacts())]


def only(state: State, seen: AlarmFacts | None = None) -> Alarm:
    found = evaluate_alarms(state, NOW, seen or AlarmFacts())
    assert len(found) == 1, found
    return found[0]


def test_a_board_in_order_raises_nothing() -> None:
    assert kinds(board(task(), task("u", depends_on=("t",)))) == []


@pytest.mark.parametrize(
    ("evidence", "says", "step"),
    [
        (Evidence(), "its supervisor runs", "liza logs coder-1"),
        (
            Evidence(frozenset({"coder-1"}), frozenset({"coder-1.1"})),
            "has no session: another coder may take it; if you work on it by hand: cd",
            "liza up",
        ),
        (Evidence(frozenset({"coder-1"})), "not proved dead", "liza task release t"),
    ],
)
def test_a_lapsed_lease_names_what_is_known_of_its_owner(evidence: Evidence, says: str, step: str) -> None:
    found = only(board(claimed()), AlarmFacts(evidence=evidence))
    assert found.kind == "expired_lease"
    assert says in found.message
    assert found.next == step


def test_a_lease_that_still_runs_is_no_alarm() -> None:
    assert kinds(board(claimed(lease_expires=FUTURE))) == []


def test_a_stopped_task_waits_quietly_while_its_supervisor_lives() -> None:
    assert kinds(board(claimed(handoff_pending=True))) == []
    offline = AlarmFacts(evidence=Evidence(frozenset({"coder-1"}), frozenset({"coder-1.1"})))
    assert kinds(board(claimed(handoff_pending=True)), offline) == ["expired_lease"]


def in_a_lapsed_review() -> Task:
    return task(
        status=Status.READY_FOR_REVIEW,
        assigned_to="coder-1",
        worktree="s1",
        base_commit=COMMIT,
        review_commit=COMMIT,
        reviewing_by="code-reviewer-1",
        review_run="code-reviewer-1.2",
        review_lease_expires=PAST,
    )


def test_tasks_depending_on_abandoned_ones_can_never_be_claimed() -> None:
    state = board(
        task("gone", Status.ABANDONED),
        task("a", depends_on=("fine", "gone")),
        task("b", depends_on=("a",)),
        task("c", Status.SUPERSEDED, superseded_by=("gone",), rescope_reason="r"),
        task("d", depends_on=("c",)),
        task("fine"),
    )
    assert set(find_unclaimable(state)) == {"a", "b", "d"}
    assert kinds(state) == ["never_claimable"] * 3
    steps = [alarm.next for alarm in evaluate_alarms(state, NOW, AlarmFacts())]
    assert steps[:2] == ["liza task edit a --depends fine", "liza task edit b --depends ''"]


def test_a_superseded_dependency_with_living_successors_is_no_dead_end() -> None:
    state = board(
        task("old", Status.SUPERSEDED, superseded_by=("new",), rescope_reason="r"),
        task("new"),
        task("a", depends_on=("old",)),
    )
    assert find_unclaimable(state) == {}


@pytest.mark.parametrize(
    ("iteration", "most", "told"),
    [
        (1, 3, None),
        (2, 3, "task-1 nears its limit: try 2 of at most 3"),
        (10, 10, "task-1 is at its limit: try 10 of at most 10"),
        (33, 10, "task-1 is beyond its limit: try 33, and 10 were allowed"),
    ],
)
def test_the_alarm_of_a_limit_has_its_figures(iteration: int, most: int, told: str | None) -> None:
    found = evaluate_alarms(board(task("task-1", iteration=iteration, max_iterations=most)), NOW, AlarmFacts())
    assert [one.message for one in found if one.kind == "approaching_limits"] == ([] if told is None else [told])


def test_a_requested_draft_names_what_frees_it() -> None:
    def draft(age: timedelta, **fields: Any) -> State:
        added = Event(time=NOW - age, event="add", agent="planner-1")
        return board(task(status=Status.DRAFT, history=(added,)), **fields)

    plans = PlanningClaim(run="planner-1.2", trigger="INITIAL_PLANNING", lease_expires=NOW + STALE_DRAFT, count=1)
    assert kinds(draft(STALE_DRAFT - timedelta(seconds=1), planning=plans)) == []
    assert only(draft(STALE_DRAFT, planning=plans)).kind == "stale_draft"
    assert only(draft(timedelta(0))).next == "liza task edit t"
    lacks = only(
        draft(timedelta(0)), AlarmFacts(missing_parts={"t": MissingParts(("spec a.md is not there",), "liza sync")})
    )
    assert (lacks.next, "and lacks: spec a.md is not there" in lacks.message) == ("liza sync", True)


def test_drafts_that_lack_the_same_are_one_alarm() -> None:
    def draft(name: str, detail: str | None = "what they lacked once") -> Task:
        added = Event(time=NOW, event="add", agent="planner-1", detail=detail)
        return task(name, Status.DRAFT, history=(added,))

    state = board(draft("a"), draft("b"), draft("c"), draft("asked", None))
    spec = MissingParts(("spec x.md is not committed on integration",), "git add x.md && git commit && liza sync")
    found = evaluate_alarms(
        state, NOW, AlarmFacts(missing_parts={"a": spec, "b": spec, "c": MissingParts((), "liza up"), "asked": spec})
    )
    assert [(one.kind, one.about, one.message, one.next) for one in found if one.kind == "incomplete_draft"] == [
        ("incomplete_draft", "a", f"2 tasks are drafts and wait for you (a, b): {spec.missing[0]}", spec.next),
        ("incomplete_draft", "c", "c is a draft and lacks nothing any more", "liza up"),
    ]


def test_work_that_only_its_offline_coder_may_mend_is_orphaned() -> None:
    rejected = task(
        status=Status.REJECTED,
        assigned_to="coder-1",
        worktree="s1",
        review_commit=COMMIT,
        rejection_reason="wrong",
    )
    assert kinds(board(rejected)) == []
    assert kinds(board(rejected), AlarmFacts(evidence=Evidence(frozenset({"coder-1"})))) == ["orphaned_rejected"]


def test_failed_merge_has_a_reason_and_a_waiting_one_files() -> None:
    said = Event(time=NOW, event="merge failed", detail="conflict with integration in a.py")
    failed = task(
        status=Status.INTEGRATION_FAILED, assigned_to="coder-1", worktree="s1", review_commit=COMMIT, history=(said,)
    )
    assert "conflict with integration in a.py" in only(board(failed)).message
    waits = task(
        status=Status.APPROVED,
        assigned_to="coder-1",
        review_commit=COMMIT,
        approved_by="code-reviewer-1",
        merging=MergeInProgress(candidate=COMMIT, expected=COMMIT, waiting=("a.py",)),
        history=(Event(time=NOW, event="approve", agent="code-reviewer-1", commit=COMMIT),),
    )
    found = only(board(waits))
    assert (found.kind, found.next) == ("waiting_for_files", "liza merge t")
    assert "a.py" in found.message


def test_a_broken_entry_is_an_alarm_and_hides_no_other() -> None:
    state = board(task("bad", Status.CLAIMED), task("t", Status.BLOCKED, blocked_reason="r", blocked_questions=("q",)))
    found = kinds(state)
    assert found[0] == "invalid_state"
    assert "blocked" in found


def test_a_budget_pause_is_one_alarm_at_once() -> None:
    for since in (NOW, NOW - STALE_SIGNAL):
        alarm = only(board(task()), AlarmFacts(signals={"PAUSE": since}, budget_pause="t has used 9 of 8 seconds"))
        assert (alarm.kind, alarm.next) == ("budget_used", "liza resume")
        assert alarm.message == "the crew is paused: t has used 9 of 8 seconds"
        assert waits_for_person(alarm.kind)


def test_an_unread_setting_suggests_a_similar_one() -> None:
    found = only(board(task()), AlarmFacts(unknown_config=("lease_durration",)))
    assert "did you mean lease_duration" in found.message


def test_hanging_or_circular_planning_and_urgent_discoveries_are_alarms() -> None:
    hangs = PlanningClaim(run="planner-1.2", trigger="INITIAL_PLANNING", lease_expires=PAST, count=1)
    assert kinds(board(task(), planning=hangs)) == ["expired_planning_lease"]
    stuck = board(task(status=Status.BLOCKED, blocked_reason="r", blocked_questions=("q",)))
    from liza.tasks.rules.planning import find_triggers

    circles = PlanningClaim(fingerprint=find_triggers(stuck)[0].fingerprint, count=2)
    from msgspec.structs import replace

    assert kinds(replace(stuck, planning=circles)) == ["blocked"]
    settled = board(task(status=Status.MERGED))
    circles = PlanningClaim(fingerprint=find_triggers(settled)[0].fingerprint, count=2)
    (stalled,) = (
        one for one in evaluate_alarms(replace(settled, planning=circles), NOW, AlarmFacts()) if one.about == "planning"
    )
    assert stalled.message == "every task is settled, and 2 planning sessions changed nothing: it waits for a person"
    endless = replace(settled, planning=PlanningClaim(rounds=3))
    (alarm,) = (alarm for alarm in evaluate_alarms(endless, NOW, AlarmFacts()) if alarm.kind == "planning_rounds")
    assert alarm.message == (
        "every task is settled, and planners have added tasks 3 times in a row since a person said anything "
        "(config.planning_rounds)"
    )
    assert (alarm.next, waits_for_person(alarm.kind)) == ("liza resume", True)
    urgent = Discovery(id="d1", by="coder-1", urgency="immediate", description="keys in the log")
    assert "immediate_discovery" in kinds(board(task(), discovered=(urgent,)))


def test_every_alarm_has_one_command_that_fits_on_a_line() -> None:
    everything = board(
        claimed(),
        task("b", Status.BLOCKED, blocked_reason="r " * 500, blocked_questions=("q\n" * 500,)),
        task("g", Status.ABANDONED),
        task("h", depends_on=("g",)),
    )
    for one in evaluate_alarms(everything, NOW, AlarmFacts(unknown_config=("x",))):
        assert one.next
        assert "\n" not in one.message + one.next
        assert len(one.message) < 500


CRASHED = {"coder-1": SupervisorExit(time=NOW, reason="3 sessions crashed within 5 minutes")}


def test_an_exited_supervisor_gives_its_reason_and_the_command() -> None:
    found = only(board(task()), AlarmFacts(exits=CRASHED))
    assert (found.kind, found.about, found.next) == ("supervisor_left", "coder-1", "liza up")
    assert "left at 2026-01-01 12:00Z: 3 sessions crashed within 5 minutes" in found.message
    second = {"code-reviewer-2": CRASHED["coder-1"]}
    assert only(board(task()), AlarmFacts(exits=second)).next == "liza up --reviewers 2"


def test_program_that_waits_for_person_is_started_by_hand_first() -> None:
    left = SupervisorExit(
        time=NOW, reason="the program shows its trust dialog: 'Trust?'", by_hand="cd /shop && agent --x"
    )
    found = only(board(task()), AlarmFacts(exits={"coder-1": left}))
    assert found.next == "cd /shop && agent --x; liza up"
    assert found.message.endswith("'Trust?'; start it by hand once, and answer it or log in")


def test_a_killed_supervisors_work_gives_one_alarm_at_once() -> None:
    gone = AlarmFacts(unsupervised=frozenset({"coder-1"}), evidence=Evidence(offline=frozenset({"coder-1"})))
    found = only(board(claimed(lease_expires=FUTURE)), gone)
    assert (found.kind, found.next) == ("supervisor_gone", "liza up")
    assert "coder-1 holds t, and its supervisor is gone" in found.message
    assert kinds(board(claimed(lease_expires=PAST)), gone) == ["expired_lease"]
    assert kinds(board(claimed(lease_expires=FUTURE)), AlarmFacts(exits=CRASHED, unsupervised=gone.unsupervised)) == [
        "supervisor_left"
    ]
    reviewer = only(board(in_a_lapsed_review()), AlarmFacts(unsupervised=frozenset({"code-reviewer-1"})))
    assert "code-reviewer-1 holds the review of t" in reviewer.message
    hangs = PlanningClaim(run="planner-1.2", trigger="INITIAL_PLANNING", lease_expires=PAST, count=1)
    planner = only(board(task(), planning=hangs), AlarmFacts(unsupervised=frozenset({"planner-1"})))
    assert "planner-1 holds the planning" in planner.message


def test_three_held_up_sessions_in_a_row_are_an_alarm() -> None:
    def after(*events: str) -> State:
        history = tuple(Event(time=NOW, event=event, detail="liza submit: disk full") for event in events)
        return board(claimed(lease_expires=FUTURE, history=history))

    row = ("claim", "held up", "resume", "held up", "resume", "held up")
    assert "3 sessions in a row were held up; the last: liza submit: disk full" in only(after(*row)).message
    assert kinds(after(*row[:4])) == []
    assert kinds(after(*row, "resume", "crash")) == ["program_crashed"]


@pytest.mark.parametrize(("coders", "asked"), [(("coder-1",), True), (("coder-1", "coder-2"), False), ((), False)])
def test_a_task_every_coder_has_failed_asks_for_another_coder(coders: tuple[str, ...], asked: bool) -> None:
    from msgspec.structs import replace

    crew = {name: Agent(role=name.rpartition("-")[0], status="IDLE") for name in (*coders, "code-reviewer-1")}
    state = replace(board(task(failed_by=("coder-1",))), agents=crew)
    assert ("needs_another_coder" in kinds(state)) is asked


def test_another_coder_gets_the_first_free_number_and_usual_program() -> None:
    from msgspec.structs import replace

    crew = {name: Agent(role="coder", status="IDLE", runs=1, program="codex") for name in ("coder-1", "coder-3")}
    state = replace(board(task(failed_by=tuple(crew))), agents=crew)
    (alarm,) = (one for one in evaluate_alarms(state, NOW, AlarmFacts()) if one.kind == "needs_another_coder")
    assert alarm.starts == ("coder-2",)
    assert "--program codex" in alarm.next


def test_three_denials_of_a_run_by_one_rule_are_news() -> None:
    denials = {"coder-1": {"no-push": (3, "not run: git push"), "other": (2, "x")}, "coder-2": {"no-push": (2, "y")}}
    alarms = [alarm for alarm in evaluate_alarms(board(), NOW, AlarmFacts(denials=denials)) if "guard" in alarm.kind]
    assert [(alarm.kind, alarm.about, alarm.next) for alarm in alarms] == [
        ("guard_denials", "coder-1", "liza logs coder-1")
    ]
    assert "no-push denied coder-1 a tool 3 times; the last: not run: git push" in alarms[0].message
    assert not waits_for_person(alarms[0].kind)


def test_merges_without_a_test_command_name_how_to_set_it() -> None:
    def untested(**config: Any) -> list[tuple[str, str]]:
        tasks = (task(status=Status.MERGED, tested=False, merge_commit=COMMIT),)
        state = State(
            version=1, revision=1, goal=Goal(id="g", status="IN_PROGRESS"), tasks=tasks, config=Config(**config)
        )
        alarms = evaluate_alarms(state, NOW, AlarmFacts())
        return [(alarm.message, alarm.next) for alarm in alarms if alarm.kind == AlarmKind.UNTESTED_MERGES]

    set_tests = 'liza config set integration_command "make test"'
    assert untested() == [("merged without a test: t; set config.integration_command", set_tests)]
    assert untested(integration_command="make test") == [("merged without a test: t", "liza edit")]


def test_an_alarm_shows_crashes_with_the_last_words() -> None:
    crash = Event(time=NOW, event="crash", agent="coder-1", detail="exit 3. no key in the keyring")
    alarm = only(board(claimed(lease_expires=FUTURE, history=(crash, crash))))
    assert (alarm.kind, alarm.next) == ("program_crashed", "liza logs coder-1")
    assert alarm.message == "coder-1's program crashed 2 times at t: exit 3. no key in the keyring"
    ended = Event(time=NOW, event="ended", agent="coder-1")
    assert kinds(board(claimed(lease_expires=FUTURE, history=(crash, ended)))) == []
