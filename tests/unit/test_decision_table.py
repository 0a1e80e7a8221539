"""What a supervisor does next, for each fact just before and just after the value at which it matters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.breaker.rules import loop_detection
from liza.breaker.rules.loop_detection import Progress, Stuck, ToolCall
from liza.briefs.rules import message_rules
from liza.briefs.rules.message_rules import (
    DeliveryChannels,
    Message,
    MessageStage,
    PutInBrief,
    TellPerson,
    TryLater,
    TypeMessage,
)
from liza.merging.rules import merge_rules
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import session_ends
from liza.model.model import Delivery, Event, Reservation, State, Status
from liza.model.session_ends import SilenceKind, StopReason
from liza.programs.rules import model_silence
from liza.programs.rules.model_silence import ModelSilence
from liza.recovery.rules import retention
from liza.supervisor.rules import actions, decide
from liza.supervisor.rules.actions import (
    AskHandoff,
    BlockTask,
    Claim,
    DeliverMessage,
    Exit,
    GiveBack,
    Merge,
    NoteModelSilence,
    PauseCrew,
    Remind,
    RenewLease,
    ReportQuestion,
    Resume,
    StartSession,
    StopSession,
    Wait,
    Warn,
)
from liza.supervisor.rules.session_facts import SessionFacts, SessionState, SupervisorFacts
from liza.tasks.rules import claims
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.planning import claim_planning
from tests.unit.boards import HEAD, NOW, OTHER, agents, board, claimed, later, task, under_review, with_config
from tests.unit.situations import living, situation
from tests.unit.test_merging import BY, approved
from tests.unit.test_merging import board as merge_board

S = Status
RUN = "coder-1.1"
STATE = claimed(board(task()))[0]
AGED = with_config(STATE, session_max=600)
STUCK, FINAL = Stuck(reason="no progress: x", final=False), Stuck(reason="no progress: x", final=True)
MESSAGE = Message(id="m", priority="normal", text="hello", sender="ann", created=NOW)
SILENT = ModelSilence(kind=SilenceKind.SILENT, seconds=60.0)


def at(state: State, agent: str = "coder-1", **facts: Any) -> actions.Action:
    return decide.decide(situation(state, agent, **facts))


def working(state: State = STATE, **facts: Any) -> actions.Action:
    """The action for a session that is at work, with these facts of it; other facts are of the situation."""
    outside = {
        name: facts.pop(name)
        for name in ("message_step", "over_budget", "seconds_left", "signals", "job")
        if name in facts
    }
    return at(state, session=living(RUN, **facts), **outside)


def stop(reason: StopReason, detail: str = "") -> StopSession:
    return StopSession(RUN, reason, detail) if detail else StopSession(RUN, reason)


AT_WORK = f"{RUN} is at work"


@pytest.mark.parametrize(
    ("facts", "action"),
    [
        ({}, Wait(AT_WORK, 60)),
        ({"since_activity": 539}, Wait(AT_WORK, 60)),
        ({"since_activity": 600}, Wait(AT_WORK, 0.01)),
        ({"next_check": 7.0}, Wait(AT_WORK, 7.01)),
        ({"since_activity": 601}, stop(StopReason.HUNG, "hung: no activity for 601 s")),
        (
            {"since_activity": 1801, "question": "Trust?", "reported_question": "Trust?"},
            stop(StopReason.PERSON_NEEDED, "no person answered: the program shows Trust?"),
        ),
        ({"since_heartbeat": 59}, Wait(AT_WORK, 1)),
        ({"since_heartbeat": 60}, RenewLease(RUN)),
        ({"question": "Trust?"}, ReportQuestion(RUN, "Trust?")),
        ({"reported_question": "Trust?"}, ReportQuestion(RUN, None)),
        ({"silence": replace(SILENT, seconds=59.0)}, Wait(AT_WORK, 1.01)),
        ({"silence": SILENT}, NoteModelSilence(RUN, SILENT)),
        ({"silence": SILENT, "reported_silence": ("silent", "")}, Wait(AT_WORK, 60)),
        ({"message_step": TypeMessage(MESSAGE)}, DeliverMessage(RUN, TypeMessage(MESSAGE))),
        ({"message_step": TryLater("x", 7.0)}, Wait(AT_WORK, 7.0)),
        ({"message_step": TryLater("x")}, Wait(AT_WORK, 60)),
        (
            {"message_step": TypeMessage(MESSAGE), "question": "Q", "reported_question": "Q"}, Wait(AT_WORK, 60),
        ),
        ({"seconds_left": 5.0}, Wait(AT_WORK, 5.01)),
        ({"ready": False, "since_start": 50.0}, Wait(AT_WORK, 10.01)),
        ({"ready": False, "since_start": 60.0}, Wait(AT_WORK, 0.01)),
        ({"ready": False, "since_start": 60.5}, stop(StopReason.NOT_READY, "not ready after 60 s")),
        ({"has_terminal": True}, Wait(AT_WORK, 10.0)),
        ({"has_terminal": True, "ready": False}, Wait(AT_WORK, 1.0)),
        ({"is_waiting": True, "idle": 40.0}, Wait(AT_WORK, 20.01)),
        ({"is_waiting": True, "idle": 60.0}, Wait(AT_WORK, 0.01)),
        ({"is_waiting": True, "idle": 61.0}, Remind(RUN)),
        ({"is_waiting": True, "idle": 61.0, "reminders": 1}, Remind(RUN)),
        ({"is_waiting": True, "idle": 61.0, "reminders": 2}, stop(StopReason.IDLE)),
        ({"end_reported": 19.0}, Wait(AT_WORK, 1.01)),
        ({"end_reported": 20.0}, stop(StopReason.END_REPORTED)),
        ({"stuck": STUCK}, Warn(RUN, "no progress: x")),
        ({"stuck": STUCK, "warned": True}, Wait(AT_WORK, 60)),
        ({"stuck": FINAL}, Warn(RUN, "no progress: x")),
        ({"stuck": FINAL, "warned": True}, stop(StopReason.NO_PROGRESS, "no progress: x")),
        ({"stuck": FINAL, "warned": True, "since_closing_command": 1.0}, Wait(AT_WORK, 60)),
        ({"context_usage": 0.8}, Wait(AT_WORK, 60)),
        ({"context_usage": 0.81}, AskHandoff(RUN, 0.81)),
        ({"context_usage": 0.95, "asked": True, "context_asked": True}, Wait(AT_WORK, 60)),
        ({"context_usage": 0.96}, stop(StopReason.CONTEXT_FULL, "96% of its context window is used")),
        ({"context_usage": 0.96, "since_closing_command": 1.0}, Wait(AT_WORK, 60)),
        ({"over_budget": "the sprint has used $1"}, PauseCrew("the sprint has used $1")),
        ({"over_budget": "the sprint has used $1", "signals": ("PAUSE",)}, stop(StopReason.STOP)),
        ({"over_budget": "the sprint has used $1", "signals": ("CHECKPOINT",)}, stop(StopReason.STOP)),
        ({"signals": ("ABORT",)}, stop(StopReason.STOP)),
        ({"signals": ("PAUSE",)}, Wait(AT_WORK, 60)),
        ({"never_ready": "no login"}, stop(StopReason.NOT_READY, "no login")),
        ({"never_ready": "no login", "needs_person": True}, stop(StopReason.PERSON_NEEDED, "no login")),
    ],
)  # fmt: skip
def test_a_session_at_work_goes_on_until_something_is_due(facts: dict[str, Any], action: actions.Action) -> None:
    facts.pop("asked", None)
    assert working(**facts) == action


@pytest.mark.parametrize(
    ("facts", "action"),
    [
        ({"is_waiting": True, "since_start": 599.0}, Wait(AT_WORK, 1.01)),
        ({"is_waiting": True, "since_start": 600.0}, stop(StopReason.TOO_OLD, "it is idle and 600 s old")),
        ({"since_start": 700.0}, Wait(AT_WORK, 60)),
        ({"is_waiting": True, "since_start": 700.0, "since_closing_command": 1.0}, Wait(AT_WORK, 60)),
    ],
)
def test_only_an_idle_session_is_ended_by_its_age(facts: dict[str, Any], action: actions.Action) -> None:
    assert working(AGED, **facts) == action


@pytest.mark.parametrize(
    ("facts", "action"),
    [
        ({}, StopSession("coder-1.7", StopReason.FENCED)),
        ({"since_closing_command": 5.0, "is_turn_over": True}, StopSession("coder-1.7", StopReason.OVER)),
        ({"since_closing_command": 5.0}, Wait("coder-1.7 has run its closing command", 15.0)),
        ({"since_closing_command": 5.0, "has_terminal": True}, Wait("coder-1.7 has run its closing command", 1.0)),
        ({"since_closing_command": 19.5, "has_terminal": True}, Wait("coder-1.7 has run its closing command", 0.5)),
        ({"since_closing_command": 20.0}, StopSession("coder-1.7", StopReason.LINGERING)),
    ],
)
def test_a_session_without_work_has_the_grace_and_no_more(facts: dict[str, Any], action: actions.Action) -> None:
    assert at(STATE, session=living("coder-1.7", **facts)) == action


STOPPED = claims.stop(STATE, "task-1", RUN, NOW)
TRIED = STATE.with_task(replace(STATE.tasks[0], iteration=10))
NEVER, OVER = SessionFacts(run=RUN, state=SessionState.NEVER), SessionFacts(run=RUN, state=SessionState.OVER)
REVIEWED = under_review(board(task()))[0]


@pytest.mark.parametrize(
    ("state", "facts", "action"),
    [
        (STATE, {"session": OVER}, actions.ConcludeSession(RUN)),
        (STATE, {"session": OVER, "leaving": True}, actions.ConcludeSession(RUN)),
        (STATE, {"leaving": True}, GiveBack(RUN)),
        (STOPPED, {"leaving": True}, Exit(0, "stopped")),
        (board(), {"leaving": True}, Exit(0, "stopped")),
        (board(), {"signals": ("ABORT",)}, Exit(0, "stopped")),
        (STATE, {"unusable_reason": "no login"}, GiveBack(RUN)),
        (STOPPED, {"unusable_reason": "no login"}, Exit(5, "no login")),
        (STATE, {"crash_loop": "they crash"}, GiveBack(RUN)),
        (board(), {"crash_loop": "they crash"}, Exit(1, "they crash")),
        (STATE, {"over_budget": "too much"}, PauseCrew("too much")),
        (STATE, {"over_budget": "too much", "signals": ("PAUSE",)}, Wait("PAUSE is set; liza resume removes it")),
        (STATE, {"job": "the set-up runs"}, Wait("the set-up runs")),
        (STATE, {"signals": ("CHECKPOINT",)}, Wait("CHECKPOINT is set; liza resume removes it")),
        (STATE, {"session": NEVER}, StartSession(RUN)),
        (STOPPED, {"session": NEVER}, Resume("task-1", RUN)),
        (STATE, {}, Resume("task-1", RUN)),
        (TRIED, {}, BlockTask("task-1", "10 tries of at most 10 are used up")),
        (STATE, {"rest_seconds": 50.0}, Wait("resting before the next session", 50.0)),
        (STATE, {"rest_seconds": 200.0}, Wait("resting before the next session", 150.01)),
        (STOPPED, {"rest_seconds": 200.0}, Wait("resting before the next session", 200.0)),
        (
            STATE.with_task(replace(STATE.tasks[0], lease_expires=later(149))), {"rest_seconds": 200.0},
            RenewLease(RUN),
        ),
        (board(), {"retiring": True}, Exit(0, "retired: no task waited for it")),
        (board(task()), {"rest_seconds": 3.0}, Wait("resting before the next session", 3.0)),
        (board(task()), {"signals": ("PAUSE",)}, Wait("PAUSE is set; liza resume removes it")),
        (board(task()), {}, Claim("task-1")),
        (board(), {}, Wait("no task is claimable")),
        (merge_board(approved()), {}, Merge("t")),
        (merge_board(approved()), {"rest_seconds": 9.0}, Merge("t")),
        (merge_board(), {"resumable_merge": "x"}, Merge("x")),
        (merge_board(approved()), {"merge_lock_free": False}, Wait("no task is claimable")),
    ],
)  # fmt: skip
def test_a_supervisor_without_a_session_does_one_thing(
    state: State, facts: dict[str, Any], action: actions.Action
) -> None:
    assert at(state, **facts) == action


def test_a_supervisor_that_leaves_after_crashes_names_the_set_up_that_failed() -> None:
    crashed = SupervisorFacts(crash_loop="they crash", failed_set_up="no npm")
    leaving = decide.decide(replace(situation(board()), supervisor=crashed))
    assert leaving == Exit(1, "they crash; the last: no npm")


def test_a_review_without_its_session_is_given_back_and_planning_too() -> None:
    assert at(REVIEWED, "code-reviewer-1") == GiveBack("code-reviewer-1.1")
    planned, run = claim_planning(board(agents=agents("planner-1")), "planner-1", NOW)
    assert at(planned, "planner-1") == GiveBack(run)
    assert at(planned, "planner-1", session=SessionFacts(run=run, state=SessionState.NEVER)) == StartSession(run)


def test_a_merge_is_started_beside_a_session_but_not_beside_a_job_or_a_signal() -> None:
    state = replace(STATE, tasks=(*STATE.tasks, approved()))
    assert working(state) == Merge("t")
    assert working(state, job="a merge runs") == Wait(AT_WORK, 60)
    assert working(state, signals=("PAUSE",)) == Wait(AT_WORK, 60)


def test_a_wait_ends_when_a_retry_is_due_and_an_expired_claim_is_taken_over() -> None:
    failure = MergeFailure(kind=MergeFailureKind.FAILED, message="disk full")
    state = merge_rules.retry_or_fail(merge_board(approved()), "t", failure, BY)
    assert at(state) == Wait("no task is claimable", 10.0)
    held = replace(state, tasks=(*state.tasks, replace(STATE.tasks[0], lease_expires=later(4))))
    assert at(held, "coder-2").seconds == 5.0  # type: ignore[union-attr]
    assert at(replace(STATE, tasks=(replace(STATE.tasks[0], lease_expires=later(20)),)), "coder-2").seconds == 21.0  # type: ignore[union-attr]
    past = replace(STATE, tasks=(replace(STATE.tasks[0], lease_expires=NOW - timedelta(seconds=0.9)),))
    assert at(past, "coder-2").seconds == 0.5  # type: ignore[union-attr]
    older = replace(STATE, tasks=(replace(STATE.tasks[0], lease_expires=NOW - timedelta(seconds=1)),))
    assert at(older, "coder-2").seconds is None  # type: ignore[union-attr]


def test_after_a_sleep_an_expired_claim_has_one_lease_more() -> None:
    lapsed = replace(
        STATE, tasks=(replace(STATE.tasks[0], lease_expires=NOW),), agents={**STATE.agents, **agents("coder-2")}
    )
    dead = Evidence(offline=frozenset({"coder-1"}), dead=frozenset({RUN}))
    assert at(lapsed, "coder-2", evidence=dead) == Claim("task-1")
    assert at(lapsed, "coder-2", evidence=dead, since_clock_gap=299.0) == Wait(
        "the machine slept: no expired claim is taken over for one lease duration", 1.0
    )
    assert at(lapsed, "coder-2", evidence=dead, since_clock_gap=300.0) == Claim("task-1")


def test_a_returned_task_at_its_limit_is_blocked_by_its_coder() -> None:
    fields = {"assigned_to": "coder-1", "worktree": "s1", "base_commit": OTHER, "review_commit": HEAD}
    state = board(task(status=S.REJECTED, iteration=10, rejection_reason="no", **fields))
    assert at(state) == BlockTask("task-1", "10 tries of at most 10 are used up; it was rejected: no")


DELIVERY = Delivery()
TERMINAL = DeliveryChannels(run=RUN, has_terminal=True)
HOOKS = DeliveryChannels(run=RUN, has_hooks=True)
BOTH = DeliveryChannels(run=RUN, has_terminal=True, has_hooks=True, in_turn=True)
STREAM = DeliveryChannels(run=RUN, has_stream=True)
FILED = replace(MESSAGE, stage=MessageStage.FILED, tried=NOW, attempts=1)
LAST_PAUSE = DELIVERY.retry_backoffs[-1]


@pytest.mark.parametrize(
    ("message", "channels", "seconds", "step"),
    [
        (MESSAGE, None, 0.0, TryLater("no session runs: it goes into the next brief")),
        (MESSAGE, TERMINAL, 0.0, TypeMessage(MESSAGE)),
        (MESSAGE, HOOKS, 0.0, TryLater("its hook takes it at the end of the turn")),
        (MESSAGE, STREAM, 0.0, TryLater("its runtime takes it from its stream")),
        (MESSAGE, DeliveryChannels(run=RUN), 0.0, PutInBrief((MESSAGE,))),
        (MESSAGE, BOTH, 1.0, TryLater("its hook takes it while the turn lasts", DELIVERY.readiness_timeout - 1.0)),
        (MESSAGE, BOTH, DELIVERY.readiness_timeout, TypeMessage(MESSAGE)),
        (FILED, TERMINAL, 1.0, TryLater("it is in the brief", LAST_PAUSE - 1.0)),
        (FILED, TERMINAL, LAST_PAUSE, TellPerson((FILED,))),
        (FILED, STREAM, LAST_PAUSE, TellPerson((FILED,))),
        (replace(MESSAGE, stage=MessageStage.TOLD), TERMINAL, 0.0, TryLater("nothing waits")),
        (replace(MESSAGE, acknowledged=NOW), TERMINAL, 0.0, TryLater("nothing waits")),
    ],
)
def test_a_message_takes_the_way_that_its_session_has(
    message: Message, channels: DeliveryChannels | None, seconds: float, step: object
) -> None:
    assert message_rules.next_step([message], channels, later(seconds), DELIVERY) == step


def test_ids_of_one_second_are_sorted_by_their_number_without_the_mark_of_their_sender() -> None:
    names = ["20260101-120000-1000", "20260101-120000-999", "20260101-120000-abcd-0998", "20260101-120000-001"]
    assert sorted(names, key=message_rules.age_key)[0] == "20260101-120000-001"
    assert message_rules.age_key("20260101-120000-abcd-b") == (17, "20260101-120000-abcd-b")
    assert message_rules.age_key("20260101-120000-999") == (19, "20260101-120000-999")


RUNS = tuple(f"coder-1.{number}" for number in range(1, 26))


@pytest.mark.parametrize(
    ("used", "newest", "archived"),
    [
        (frozenset(), 20, RUNS[:5]), (frozenset({"coder-1.2"}), 20, (RUNS[0], *RUNS[2:5])), (frozenset(), 25, ()),
        (frozenset(), 26, ()), (frozenset(), 0, RUNS), (frozenset(RUNS), 0, ()),
    ],
)  # fmt: skip
def test_the_newest_runs_and_those_in_use_are_not_archived(
    used: frozenset[str], newest: int, archived: tuple[str, ...]
) -> None:
    assert retention.runs_to_archive(RUNS, used, newest) == archived


def test_runs_are_in_use_while_their_task_is_open_or_reserved() -> None:
    taken = Reservation(
        agent="coder-3", run="coder-3.1", slot="s", host="h", boot="b", pid=1, start="1", expires=NOW,
        previous_run="coder-2.1",
    )  # fmt: skip
    state = replace(
        board(
            task(run="coder-1.1", review_run="code-reviewer-1.1"), task("a", S.MERGED, run="coder-9.9"),
            task("b", S.MERGED, reservation=taken),
        ),
        planning=replace(board().planning, run="planner-1.1"),
    )  # fmt: skip
    assert retention.runs_in_use(state) == {"coder-1.1", "code-reviewer-1.1", "coder-3.1", "coder-2.1", "planner-1.1"}
    assert retention.runs_to_archive(RUNS, frozenset()) == RUNS[:5]


def call(number: int, result: str = "r", seconds: float = 0.0) -> ToolCall:
    return ToolCall(call=f"c{number}", result=result, description=f"call {number}", at=seconds)


def test_32_calls_are_remembered() -> None:
    progress = Progress()
    for number in range(33):
        progress = loop_detection.add_call(progress, call(number), 10.0)
    assert progress.seen_pairs == tuple((f"c{number}", "r") for number in range(1, 33))


@pytest.mark.parametrize(
    ("model", "left", "told", "text"),
    [
        (SILENT, 240.0, True, "no answer from its model for 60 s"),
        (replace(SILENT, seconds=59.9), 240.1, False, "no answer from its model for 60 s"),
        (ModelSilence(SilenceKind.LOGIN, 2.0, "401"), 3.0, True, "the model refuses the program's login: 401"),
        (
            ModelSilence(SilenceKind.LOGIN, 2.0, "401", failed_requests=3), 0.0, True,
            "the model refuses the program's login: 401",
        ),
        (ModelSilence(SilenceKind.QUOTA, 2.0, "429"), 298.0, True, "a usage limit is reached: 429"),
        (
            ModelSilence(SilenceKind.SERVER, 2.0, "500", failed_requests=9), 298.0, True,
            "its model answers with errors: 500",
        ),
        (
            ModelSilence(SilenceKind.BROKEN, 2.0, "cut", failed_requests=10), 0.0, True,
            "its model's answers break off: cut",
        ),
        (replace(SILENT, failed_requests=10), 240.0, True, "no answer from its model for 60 s"),
    ],
)  # fmt: skip
def test_a_model_that_does_not_answer_has_a_time_for_each_kind(
    model: ModelSilence, left: float, told: bool, text: str
) -> None:
    assert model_silence.seconds_to_end(model, 300.0) == pytest.approx(left)
    assert model_silence.is_reported(model, 300.0) is told
    assert model_silence.describe_reason(model) == text


def test_silence_is_told_after_a_minute_or_a_fifth_of_a_shorter_limit() -> None:
    assert (model_silence.report_delay(300.0), model_silence.report_delay(100.0)) == (60.0, 20.0)
    quota = ModelSilence(SilenceKind.QUOTA, 1.0, retry_at=later(300))
    assert not model_silence.is_quota_wait_too_long(quota, NOW, 300.0)
    assert model_silence.is_quota_wait_too_long(quota, NOW, 299.0)
    assert not model_silence.is_quota_wait_too_long(replace(quota, retry_at=None), NOW, 1.0)
    assert not model_silence.is_quota_wait_too_long(replace(quota, kind=SilenceKind.SERVER), NOW, 1.0)


def test_the_events_of_a_run_are_counted_on_the_board() -> None:
    events = tuple(Event(time=NOW, event=event, run=RUN) for event in ("claim", "submit"))
    claimed, submitted = board(task(history=events[:1]), task("b")), board(task(history=events), task("b"))
    for state, run, number in ((claimed, RUN, 1), (submitted, RUN, 2), (submitted, "coder-1.2", 0)):
        assert session_ends.count_events(state, run) == number
        assert session_ends.has_closing_event(state, run) is (number == 2)
