"""What a supervisor does about programs that cannot be used, models that do not answer, money, and messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.briefs.rules.message_rules import Message, PutInBrief, TryLater, TypeMessage
from liza.model.model import State
from liza.model.session_ends import SessionOutcome, SilenceKind, StopReason
from liza.programs.rules.model_silence import ModelSilence
from liza.supervisor.rules import actions, decide
from liza.tasks.rules import claims, coding
from tests.unit.boards import NOW, board, claimed, task
from tests.unit.situations import changed, living, situation

MESSAGE = Message(id="m", priority="urgent", text="t", sender="human", created=NOW)


def at(state: State, **facts: Any) -> actions.Action:
    return decide.decide(situation(state, **facts))


def ended(state: State, run: str, outcome: SessionOutcome) -> State:
    return coding.record_session_end(state, "task-1", run, outcome=outcome, detail="why", moved=False, now=NOW)


def test_an_unusable_program_gives_the_task_back_with_the_reason() -> None:
    state, run = claimed(board(task()))
    state = ended(state, run, SessionOutcome.UNUSABLE)
    assert at(state, unusable_reason="not logged in") == actions.GiveBack(run)
    assert at(claims.stop(state, "task-1", run, NOW), unusable_reason="not logged in") == actions.Exit(
        5, "not logged in"
    )
    assert at(board(), unusable_reason="not logged in") == actions.Exit(5, "not logged in")


@pytest.mark.parametrize("outcome", ["held up", "quota", "unusable", "unanswered"])
def test_an_end_without_the_sessions_fault_is_no_try(outcome: str) -> None:
    state, run = claimed(board(task()))
    after = ended(state, run, SessionOutcome(outcome))
    found = after.task("task-1")
    assert found is not None
    assert (found.idle_sessions, found.failed_by) == (0, ())
    resumed, _ = claims.resume(after, "task-1", run, NOW)
    gone_on = resumed.task("task-1")
    assert gone_on is not None
    assert gone_on.iteration == 1


def test_a_task_is_kept_while_its_program_awaits_a_limit() -> None:
    state, run = claimed(board(task()))
    state = ended(state, run, SessionOutcome.QUOTA)
    held = state.task("task-1")
    assert held is not None
    half = timedelta(seconds=state.config.lease_duration / 2)
    late = state.with_task(replace(held, lease_expires=NOW + half - timedelta(seconds=1)))
    assert at(late, rest_seconds=3600.0) == actions.RenewLease(run)
    waits = at(state, rest_seconds=3600.0)
    assert isinstance(waits, actions.Wait)
    assert waits.seconds is not None
    assert waits.seconds < state.config.lease_duration


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        (
            {"never_ready": "the program shows its trust dialog", "needs_person": True},
            (StopReason.PERSON_NEEDED, "the program shows its trust dialog"),
        ),
        ({"never_ready": "silent", "ready": False}, (StopReason.NOT_READY, "silent")),
        (
            {"silence": ModelSilence(SilenceKind.SILENT, 301.0)},
            (StopReason.NO_ANSWER, "no answer from its model for 301 s"),
        ),
        (
            {"silence": ModelSilence(SilenceKind.SERVER, 301.0, "500", retried=True)},
            (StopReason.NO_ANSWER, "its model answers with errors: 500"),
        ),
        (
            {"silence": ModelSilence(SilenceKind.BROKEN, 3.0, "cut", retried=True, failed_requests=10)},
            (StopReason.NO_ANSWER, "its model's answers break off: cut"),
        ),
        (
            {"silence": ModelSilence(SilenceKind.LOGIN, 6.0, "401", retried=True)},
            (StopReason.LOGIN_REFUSED, "the model refuses the program's login: 401"),
        ),
        (
            {"silence": ModelSilence(SilenceKind.LOGIN, 1.0, "401", retried=True, failed_requests=3)},
            (StopReason.LOGIN_REFUSED, "the model refuses the program's login: 401"),
        ),
        (
            {"silence": ModelSilence(SilenceKind.QUOTA, 1.0, "429", retry_at=NOW + timedelta(hours=1), retried=True)},
            (StopReason.USAGE_LIMIT, "a usage limit is reached: 429"),
        ),
    ],
)
def test_a_session_that_can_produce_nothing_is_ended_with_reason(
    facts: dict[str, Any], wanted: tuple[StopReason, str]
) -> None:
    state, run = claimed(board(task()))
    assert at(state, session=living(run, **facts)) == actions.StopSession(run, *wanted)


@pytest.mark.parametrize(
    ("model", "told", "seconds"),
    [
        (ModelSilence(SilenceKind.SILENT, 10.0), None, 50.01),
        (ModelSilence(SilenceKind.SILENT, 299.0), ("silent", ""), 1.01),
        (ModelSilence(SilenceKind.LOGIN, 1.0, "401", retried=True), ("login", "401"), 4.01),
        (
            ModelSilence(SilenceKind.QUOTA, 10.0, "429", retry_at=NOW + timedelta(seconds=5), retried=True),
            ("quota", "429"),
            None,
        ),
        (None, None, None),
    ],
)
def test_a_silent_model_is_reported_once_and_waited_for(
    model: ModelSilence | None, told: tuple[str, str] | None, seconds: float | None
) -> None:
    state, run = claimed(board(task()))
    if told is not None:
        assert at(state, session=living(run, silence=model)) == actions.NoteModelSilence(run, model)
    waits = at(state, session=living(run, silence=model, reported_silence=told))
    assert isinstance(waits, actions.Wait)
    assert waits.seconds == pytest.approx(seconds or state.config.heartbeat_interval)
    assert at(state, session=living(run, reported_silence=("server", "500"))) == actions.NoteModelSilence(run, None)


def test_a_program_waiting_at_its_terminal_is_reminded_then_ended() -> None:
    state, run = claimed(board(task()))
    assert isinstance(at(state, session=living(run, idle=60.0)), actions.Wait)
    assert at(state, session=living(run, idle=61.0)) == actions.Remind(run)
    assert at(state, session=living(run, idle=61.0, reminders=1)) == actions.Remind(run)
    assert at(state, session=living(run, idle=61.0, reminders=2)) == actions.StopSession(run, StopReason.IDLE)


def test_work_over_budget_pauses_the_crew_and_ends_its_session() -> None:
    state, run = claimed(board(task()))
    assert at(state, session=living(run), over_budget="too much") == actions.PauseCrew("too much")
    paused = at(state, session=living(run), over_budget="too much", signals=("PAUSE",))
    assert paused == actions.StopSession(run, StopReason.STOP)
    assert at(board(task()), over_budget="too much") == actions.PauseCrew("too much")
    assert isinstance(at(board(task()), over_budget="too much", signals=("PAUSE",)), actions.Wait)


def test_a_message_is_delivered_when_possible_and_otherwise_waited_for() -> None:
    state, run = claimed(board(task()))
    for step in (TypeMessage(MESSAGE), PutInBrief((MESSAGE,))):
        assert at(state, session=living(run), message_step=step) == actions.DeliverMessage(run, step)
    waits = at(state, session=living(run), message_step=TryLater("busy", 0.5))
    assert isinstance(waits, actions.Wait)
    assert waits.seconds == 0.5
    assert isinstance(at(state, session=living(run), message_step=TryLater("busy")), actions.Wait)


def test_an_unanswered_question_ends_the_session_in_the_end() -> None:
    state, run = claimed(board(task()))
    asks = living(run, question="a menu", reported_question="a menu", has_terminal=True, since_activity=1801.0)
    unanswered = "no person answered: the program shows a menu"
    assert at(state, session=asks) == actions.StopSession(run, StopReason.PERSON_NEEDED, unanswered)
    waits = at(
        state, session=living(run, question="a menu", reported_question="a menu"), message_step=TypeMessage(MESSAGE)
    )
    assert isinstance(waits, actions.Wait), "it could not be typed, and a try would be used up"


def test_question_at_the_terminal_is_reported_once_and_its_end() -> None:
    state, run = claimed(board(task()))
    asking = living(run, has_terminal=True, question="a menu: 'Yes'")
    assert at(state, session=asking) == actions.ReportQuestion(run, "a menu: 'Yes'")
    told = changed(asking, reported_question="a menu: 'Yes'")
    assert at(state, session=told) == actions.Wait(f"{run} is at work", decide.RUNNING_POLL_SECONDS)
    assert at(state, session=changed(told, question=None)) == actions.ReportQuestion(run, None)


def test_a_session_whose_runtime_reported_its_end_gets_grace() -> None:
    state, run = claimed(board(task()))
    wait = at(state, session=living(run, end_reported=5.0))
    assert isinstance(wait, actions.Wait)
    assert wait.seconds == pytest.approx(15.01)
    stop = actions.StopSession(run, StopReason.END_REPORTED)
    assert at(state, session=living(run, end_reported=20.0)) == stop


def test_a_waiting_session_is_checked_when_its_reminder_is_due() -> None:
    state, run = claimed(board(task()))
    wait = at(state, session=living(run, idle=15.0, is_waiting=True))
    assert isinstance(wait, actions.Wait)
    assert wait.seconds == pytest.approx(45.01)
