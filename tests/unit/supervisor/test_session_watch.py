"""Tables of what a supervisor remembers of a session: each row is one observation and the state after it."""

from __future__ import annotations

import pytest

from liza.supervisor.rules.session_facts import (
    ActivityWatch,
    IdleTime,
    ModelAnswers,
    QuestionTime,
    SessionTimes,
    check_interval,
)


@pytest.mark.parametrize(
    ("before", "fingerprint", "changed_at"),
    [
        (ActivityWatch(1.0), ("a",), 9.0),
        (ActivityWatch(1.0, 5.0, ("a",)), ("a",), 1.0),
        (ActivityWatch(1.0, 5.0, ("a",)), ("b",), 9.0),
    ],
)
def test_a_session_was_active_when_its_fingerprint_changed(
    before: ActivityWatch, fingerprint: tuple[object, ...], changed_at: float
) -> None:
    after = before.saw(fingerprint, 9.0)
    assert after == ActivityWatch(changed_at, 9.0, fingerprint)
    assert after.restarted(20.0).changed_at == 20.0


@pytest.mark.parametrize(
    ("used", "changed_at"),
    [
        (0.0, 0.0),
        (0.3, 0.0),  # a loop around `sleep 1`, for 100 s
        (0.54, 0.0),
        (0.56, 100.0),
        (90.0, 100.0),
    ],
)
def test_a_silent_session_using_cpu_is_active(used: float, changed_at: float) -> None:
    watch = ActivityWatch(0.0, 95.0, ("a",), 7.0).saw(("a",), 100.0, 7.0 + used)
    assert watch.changed_at == changed_at
    assert watch.cpu_seconds == (7.0 if changed_at == 0.0 else 7.0 + used)


def test_an_ended_process_does_not_hide_later_work() -> None:
    watch = ActivityWatch(0.0, 5.0, ("a",), 90.0).saw(("a",), 10.0, 2.0).saw(("a",), 20.0, 3.0)
    assert watch.changed_at == 20.0


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [((600, 60, 300), 30.0), ((60, 60, 300), 3.0), ((600, 60, 40), 10.0), ((600, 5, 300), 5.0), ((1, 60, 300), 0.25)],
)
def test_a_session_is_checked_twenty_times_before_counting_as_hung(
    limits: tuple[float, float, float], seconds: float
) -> None:
    assert check_interval(*limits) == seconds
    assert ActivityWatch(1.0, 8.0, ("a",)).seconds_to_check(9.0, 5.0) == 4.0
    assert ActivityWatch(1.0, 2.0, ("a",)).seconds_to_check(9.0, 5.0) == 0.0


@pytest.mark.parametrize(
    ("watch", "is_due"),
    [
        (ActivityWatch(1.0), True),  # never checked
        (ActivityWatch(1.0, 8.0, ("a",)), False),
        (ActivityWatch(1.0, 4.0, ("a",)), True),
    ],
)
def test_activity_is_checked_at_first_and_then_once_per_interval(watch: ActivityWatch, is_due: bool) -> None:
    assert watch.is_due(9.0, 5.0) is is_due


@pytest.mark.parametrize(
    ("before", "signs", "is_first_answer", "answered_at"),
    [
        (ModelAnswers(), ("a",), False, None),  # the first signs are those of the start
        (ModelAnswers(), ("a",), True, 9.0),  # unless a tool has run already
        (ModelAnswers(None, ("a",)), ("a",), True, None),
        (ModelAnswers(None, ("a",)), ("b",), False, 9.0),
        (ModelAnswers(3.0, ("a",)), ("a",), False, 3.0),
        (ModelAnswers(3.0, ("a",)), ("b",), False, 9.0),
    ],
)
def test_a_model_answers_when_signs_that_need_it_change(
    before: ModelAnswers, signs: tuple[object, ...], is_first_answer: bool, answered_at: float | None
) -> None:
    assert before.saw(signs, 9.0, is_first_answer=is_first_answer) == ModelAnswers(answered_at, signs)
    assert before.answered(7.0) == ModelAnswers(7.0, before.signs)


@pytest.mark.parametrize(
    ("before", "is_waiting", "after", "seconds"),
    [
        (IdleTime(), False, IdleTime(), 0.0),
        (IdleTime(), True, IdleTime(9.0), 0.0),
        (IdleTime(2.0, 1), True, IdleTime(2.0, 1), 7.0),
        (IdleTime(2.0, 1), False, IdleTime(None, 1), 0.0),
    ],
)
def test_idle_time_restarts_with_each_wait_and_reminder(
    before: IdleTime, is_waiting: bool, after: IdleTime, seconds: float
) -> None:
    assert before.saw(is_waiting=is_waiting, now=9.0) == after
    assert after.seconds(9.0) == seconds
    assert after.reminded() == IdleTime(None, before.reminders + 1)


@pytest.mark.parametrize(
    ("before", "is_shown", "after", "seconds"),
    [
        (QuestionTime(), False, QuestionTime(), 0.0),
        (QuestionTime(), True, QuestionTime(9.0), 0.0),
        (QuestionTime(4.0, 3.0), True, QuestionTime(4.0, 3.0), 8.0),
        (QuestionTime(4.0, 3.0), False, QuestionTime(None, 8.0), 8.0),
        (QuestionTime(None, 3.0), True, QuestionTime(9.0, 3.0), 3.0),
    ],
)
def test_question_times_are_kept_and_the_present_one_counts(
    before: QuestionTime, is_shown: bool, after: QuestionTime, seconds: float
) -> None:
    assert before.saw(is_shown=is_shown, now=9.0) == after
    assert after.seconds(9.0) == seconds


def test_the_closing_command_is_as_old_as_its_first_observation() -> None:
    times = SessionTimes(1.0, 2.0, 3.0)
    assert times.saw(is_closed=False, now=5.0).since_closing_command(9.0) is None
    closed = times.saw(is_closed=True, now=5.0)
    assert closed.saw(is_closed=True, now=8.0) == closed
    assert closed.since_closing_command(9.0) == 4.0
    assert closed.renewed(7.0) == SessionTimes(1.0, 2.0, 7.0, 5.0)
