"""Tables of the rests of a supervisor: after sessions and mergers that came to nothing, and after a sleep."""

from __future__ import annotations

from datetime import timedelta

import pytest

from liza.model.backoff import CRASH_WINDOW, ClockWatch, CrashRecord, FailureStreak, MergeTries, TaskRest
from liza.model.configuration import Config
from liza.model.session_ends import SessionOutcome
from tests.unit.boards import NOW

CONFIG = Config(restart_after_crash=5.0, restart_after_handoff=2.0)
CRASHES = (CrashRecord(50.0, "t1"),)
BEFORE = FailureStreak(1, 1, 1, CRASHES, 90.0)


@pytest.mark.parametrize(
    ("outcome", "limit_seconds", "after"),
    [
        (SessionOutcome.CRASHED, None, FailureStreak(2, 1, 1, CRASHES, 110.0)),
        (SessionOutcome.LOOPED, None, FailureStreak(2, 1, 1, CRASHES, 110.0)),
        (SessionOutcome.HELD_UP, None, FailureStreak(2, 1, 1, CRASHES, 110.0)),
        (SessionOutcome.UNANSWERED, None, FailureStreak(1, 1, 2, CRASHES, 110.0)),
        (SessionOutcome.QUOTA, None, FailureStreak(1, 2, 1, CRASHES, 220.0)),
        (SessionOutcome.QUOTA, 600.0, FailureStreak(1, 2, 1, CRASHES, 701.0)),
        (SessionOutcome.QUOTA, 1.0, FailureStreak(1, 2, 1, CRASHES, 110.0)),
        (SessionOutcome.QUOTA, -3.0, FailureStreak(1, 2, 1, CRASHES, 110.0)),
        (SessionOutcome.HANDED_OFF, None, FailureStreak(0, 0, 0, (), 102.0)),
        (SessionOutcome.FINISHED, None, FailureStreak(0, 0, 0, (), 90.0)),
        (SessionOutcome.CONTEXT_FULL, None, FailureStreak(1, 1, 1, (), 102.0)),
        (SessionOutcome.TOO_OLD, None, FailureStreak(1, 1, 1, (), 102.0)),
        (SessionOutcome.STOPPED, None, BEFORE),
        (SessionOutcome.UNUSABLE, None, BEFORE),
    ],
)
def test_the_wait_for_a_session_depends_on_the_last_end(
    outcome: SessionOutcome, limit_seconds: float | None, after: FailureStreak
) -> None:
    assert BEFORE.saw(outcome, 100.0, CONFIG, limit_seconds) == after


def test_usage_limits_of_unknown_end_wait_at_most_an_hour() -> None:
    streak, rests = FailureStreak(), []
    for _ in range(8):
        streak = streak.saw(SessionOutcome.QUOTA, 0.0, CONFIG)
        rests.append(streak.rest_seconds(0.0))
    assert rests == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]


def streak_of(*crashes: tuple[float, str | None] | tuple[float, str | None, bool]) -> FailureStreak:
    streak = FailureStreak()
    for time, task, *started in crashes:
        streak = streak.crashed(time, task, started=started != [False])
    return streak


@pytest.mark.parametrize(
    ("crashes", "reason"),
    [
        ([(1.0, "a"), (2.0, "a"), (3.0, "a"), (4.0, "a")], None),
        ([(1.0, "a"), (2.0, "b"), (3.0, "a"), (4.0, "b")], None),
        ([(1.0, "a"), (2.0, "b"), (3.0, "c")], "3 sessions of 3 tasks crashed within 5 minutes"),
        ([(1.0, "a"), (2.0, "a"), (3.0, "b"), (4.0, "c")], "4 sessions of 3 tasks crashed within 5 minutes"),
        ([(1.0, None), (2.0, None), (3.0, None)], "3 sessions crashed within 5 minutes"),
        ([(1.0, "a", False), (2.0, "a", False), (3.0, "a", False)], "3 sessions crashed within 5 minutes"),
        ([(1.0, "a", False), (2.0, "a", True), (3.0, "a", False), (4.0, "a", False)], None),
        ([(1.0, "a"), (2.0, "b"), (301.0, "c")], "3 sessions of 3 tasks crashed within 5 minutes"),
        ([(1.0, "a"), (2.0, "b"), (301.5, "c")], None),
    ],
)
def test_crashes_of_different_tasks_or_every_start_stop_a_supervisor(
    crashes: list[tuple[float, str | None]], reason: str | None
) -> None:
    assert streak_of(*crashes).crash_loop(crashes[-1][0], has_untried=False) == reason


@pytest.mark.parametrize(
    ("crashes", "reason"),
    [
        ([(1.0, "a"), (2.0, "b"), (3.0, "c")], None),
        ([(1.0, "a"), (2.0, "a"), (3.0, "b"), (4.0, "b"), (5.0, "c")], None),
        ([(1.0, "a", False), (2.0, "b", False), (3.0, "c", False)], "3 sessions crashed within 5 minutes"),
        ([(float(n), f"t{n}") for n in range(9)], None),
        ([(float(n), f"t{n}") for n in range(10)], "10 sessions of 10 tasks crashed within 5 minutes"),
    ],
)
def test_a_supervisor_tries_the_untried_tasks_before_it_leaves(
    crashes: list[tuple[float, str | None]], reason: str | None
) -> None:
    assert streak_of(*crashes).crash_loop(crashes[-1][0], has_untried=True) == reason


@pytest.mark.parametrize(
    ("outcome", "is_reset"),
    [
        (SessionOutcome.FINISHED, True),
        (SessionOutcome.HANDED_OFF, True),
        (SessionOutcome.CONTEXT_FULL, True),
        (SessionOutcome.TOO_OLD, True),
        (SessionOutcome.LOOPED, False),
        (SessionOutcome.HELD_UP, False),
        (SessionOutcome.QUOTA, False),
        (SessionOutcome.STOPPED, False),
        (SessionOutcome.UNANSWERED, False),
    ],
)
def test_a_session_that_ended_well_clears_the_crashes_before_it(outcome: SessionOutcome, is_reset: bool) -> None:
    streak = streak_of((1.0, "a"), (2.0, "b")).saw(outcome, 3.0, CONFIG, task="d").crashed(4.0, "c")
    assert (streak.crash_loop(4.0, has_untried=False) is None) is is_reset


def test_crashes_are_forgotten_after_their_window() -> None:
    assert streak_of((1.0, "a"), (2.0 + CRASH_WINDOW, "b")).crashes == (CrashRecord(2.0 + CRASH_WINDOW, "b"),)


@pytest.mark.parametrize(
    ("ends", "of_tasks", "of_all"),
    [
        ([(SessionOutcome.CRASHED, "a")], {"a": 5.0}, 0.0),
        ([(SessionOutcome.CRASHED, "a"), (SessionOutcome.CRASHED, "a")], {"a": 10.0}, 0.0),
        ([(SessionOutcome.LOOPED, "a"), (SessionOutcome.CRASHED, "a")], {"a": 10.0}, 0.0),
        ([(SessionOutcome.CRASHED, "a"), (SessionOutcome.CRASHED, "b")], {"a": 5.0, "b": 5.0}, 0.0),
        ([(SessionOutcome.CRASHED, "a"), (SessionOutcome.FINISHED, "b")], {"a": 5.0}, 0.0),
        ([(SessionOutcome.CRASHED, "a"), (SessionOutcome.FINISHED, "a")], {}, 0.0),
        ([(SessionOutcome.HELD_UP, "a")], {}, 5.0),
        ([(SessionOutcome.CRASHED, None)], {}, 5.0),
        ([(SessionOutcome.QUOTA, "a"), (SessionOutcome.CRASHED, "a")], {"a": 5.0}, 60.0),
        ([(SessionOutcome.CRASHED, "a"), (SessionOutcome.UNANSWERED, "b")], {"a": 5.0}, 5.0),
    ],
)
def test_a_rest_after_a_crash_is_for_its_task_alone(
    ends: list[tuple[SessionOutcome, str | None]], of_tasks: dict[str, float], of_all: float
) -> None:
    streak = FailureStreak()
    for outcome, of_task in ends:
        streak = streak.saw(outcome, 1.0, CONFIG, task=of_task)
    assert streak.seconds_by_task(1.0) == of_tasks
    assert streak.rest_seconds(1.0) == of_all


def test_a_task_waits_longer_after_its_next_crash() -> None:
    rested = FailureStreak(task_rests=(TaskRest("a", 1, 5.0),))
    assert rested.seconds_by_task(5.0) == {}
    assert rested.saw(SessionOutcome.CRASHED, 9.0, CONFIG, task="a").seconds_by_task(9.0) == {"a": 10.0}


def test_a_failing_merger_is_retried_on_its_revision_after_waiting() -> None:
    tries = MergeTries().started(7, "task-1")
    assert tries.was_tried(7, "task-1")
    assert not tries.was_tried(8, "task-1")
    assert not tries.was_tried(7, "task-2")
    failed = tries.saw(failed=True, now=100.0, first=5.0)
    assert failed == MergeTries(None, 1, 105.0)
    assert failed.is_resting(104.9)
    assert not failed.is_resting(105.0)
    again = failed.started(7, "task-1").saw(failed=True, now=200.0, first=5.0)
    assert again == MergeTries(None, 2, 210.0)
    assert again.started(9, "task-1").saw(failed=False, now=300.0, first=5.0) == MergeTries((9, "task-1"), 0, 210.0)


@pytest.mark.parametrize(
    ("wall", "monotonic", "has_slept"),
    [
        (10.0, 10.0, False),
        (160.0, 10.0, False),  # half a lease: the clock may have been set
        (161.0, 10.0, True),
        (-500.0, 10.0, False),  # it was set back
    ],
)
def test_the_machine_slept_if_only_the_wall_clock_went_on(wall: float, monotonic: float, has_slept: bool) -> None:
    watch = ClockWatch(NOW, 0.0).saw(NOW + timedelta(seconds=wall), monotonic, 300.0)
    assert watch.has_just_slept is has_slept
    assert watch.seconds_since_sleep(15.0) == (5.0 if has_slept else None)
    later = watch.saw(watch.wall_time + timedelta(seconds=2), monotonic + 2, 300.0)
    assert not later.has_just_slept
    assert later.slept_at == watch.slept_at
