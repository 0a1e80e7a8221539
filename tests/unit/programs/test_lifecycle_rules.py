"""Which event of a run's life is applied: by its table, its time and the state before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.errors import FutureTime, UsageError
from liza.programs.hooks.hook_events import TurnPhase
from liza.programs.rules.lifecycle_rules import (
    MAX_CLOCK_LEAD,
    NEXT_EVENTS,
    READY_EVENTS,
    WAITING_STATES,
    LifecycleEvent,
    ReportedState,
    check_year,
    judge_event,
    parse_state,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
E = LifecycleEvent


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_each_event_is_a_phase_of_a_turn() -> None:
    assert [event.value for event in LifecycleEvent] == [phase.value for phase in TurnPhase]


@pytest.mark.parametrize("event", LifecycleEvent)
def test_any_first_event_is_applied(event: LifecycleEvent) -> None:
    assert judge_event(None, event, NOW, NOW).applied


@pytest.mark.parametrize(
    ("before", "event", "applied"),
    [
        (E.STARTED, E.READY, True),
        (E.STARTED, E.BUSY, True),
        (E.READY, E.STARTED, False),
        (E.READY, E.BUSY, True),
        (E.BUSY, E.READY, False),
        (E.BUSY, E.IDLE, True),
        (E.IDLE, E.BUSY, True),
        (E.IDLE, E.STOPPING, True),
        (E.STOPPING, E.BUSY, False),
        (E.STOPPING, E.IDLE, False),
        (E.STOPPING, E.STOPPED, True),
        (E.BUSY, E.STOPPED, True),
        (E.STOPPED, E.STARTED, False),
    ],
)
def test_a_run_never_returns_to_an_earlier_lifecycle_state(
    before: LifecycleEvent, event: LifecycleEvent, applied: bool
) -> None:
    verdict = judge_event(ReportedState(before, NOW), event, later(1), later(1))
    assert verdict.applied is applied
    assert applied or f"{before} does not become {event}" in str(verdict.reason)


def test_late_and_repeated_events_are_marked() -> None:
    idle = ReportedState(E.IDLE, NOW)
    assert "late" in str(judge_event(idle, E.BUSY, later(-0.001), NOW).reason)
    assert "repeated" in str(judge_event(idle, E.IDLE, later(1), later(1)).reason)
    assert judge_event(idle, E.BUSY, NOW, NOW).applied


def test_the_order_of_arrival_decides_after_a_clock_set_back() -> None:
    busy, lead = ReportedState(E.BUSY, NOW), MAX_CLOCK_LEAD.total_seconds()
    assert "late" in str(judge_event(busy, E.IDLE, later(-lead), later(-lead)).reason), "a clock may lead by that much"
    assert judge_event(busy, E.IDLE, later(-lead - 1), later(-lead - 1)).applied
    hour_ago = later(-3600)
    assert judge_event(busy, E.IDLE, hour_ago, hour_ago).applied
    assert not judge_event(busy, E.READY, hour_ago, hour_ago).applied, "a run still never goes back"
    assert not judge_event(busy, E.BUSY, hour_ago, hour_ago).applied


def test_an_event_of_the_future_is_refused_by_its_time() -> None:
    assert judge_event(None, E.BUSY, NOW + MAX_CLOCK_LEAD, NOW).applied
    with pytest.raises(FutureTime, match="61 s in the future"):
        judge_event(None, E.BUSY, later(61), NOW)


@given(st.lists(st.tuples(st.sampled_from(E), st.integers(0, 50)), max_size=30))
def test_repeated_reports_in_any_order_change_nothing(
    reports: list[tuple[LifecycleEvent, int]],
) -> None:
    state: ReportedState | None = None
    for event, second in [*reports, *reports]:
        before = state
        if judge_event(state, event, later(second), later(60)).applied:
            state = ReportedState(event, later(second))
            assert before is None or (state.time >= before.time and event in NEXT_EVENTS[before.state])
            again = judge_event(state, event, later(second), later(60))
            assert not again.applied


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "0001-06-01T00:00:00Z", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_no_time_zone_can_show_is_refused(text: str) -> None:
    time = datetime.fromisoformat(text)
    with pytest.raises(UsageError, match=text[:4]):
        judge_event(None, E.READY, time, NOW)
    with pytest.raises(UsageError, match="not within the years"):
        check_year(time)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.timezones()))
def test_each_accepted_time_can_be_shown_in_each_time_zone(time: datetime) -> None:
    check_year(time)
    for hours in (-14, 0, 14):
        time.astimezone(timezone(timedelta(hours=hours)))


@pytest.mark.parametrize("phase", ["", "Ready", "unknown"])
def test_a_stored_phase_that_is_no_state_is_none(phase: str) -> None:
    assert parse_state(phase) is None
    assert [parse_state(event.value) for event in E] == list(E)


def test_a_refused_event_has_its_times() -> None:
    idle = ReportedState(E.IDLE, NOW)
    assert judge_event(idle, E.IDLE, later(1), later(1)).reason == (
        "repeated: the run is idle since 2026-01-01T12:00:00+00:00"
    )
    assert judge_event(idle, E.BUSY, later(-1), NOW).reason == (
        "late: 2026-01-01T11:59:59+00:00 is before the event idle at 2026-01-01T12:00:00+00:00"
    )
    assert judge_event(idle, E.READY, NOW, NOW).reason == "no transition: a run that is idle does not become ready"
    with pytest.raises(FutureTime) as refused:
        judge_event(None, E.READY, later(61), NOW)
    assert str(refused.value) == "the timestamp 2026-01-01T12:01:01+00:00 is 61 s in the future; the limit is 60 s"
    assert refused.value.hint == "date -u"
    with pytest.raises(UsageError) as refused_year:
        check_year(datetime(9999, 1, 1, tzinfo=UTC))
    assert refused_year.value.hint == "date -u"


def test_which_events_may_follow_each_state() -> None:
    every = set(E)
    assert {
        None: every,
        E.STARTED: every - {E.STARTED},
        E.READY: every - {E.STARTED, E.READY},
        E.BUSY: {E.IDLE, E.STOPPING, E.STOPPED},
        E.IDLE: {E.BUSY, E.STOPPING, E.STOPPED},
        E.STOPPING: {E.STOPPED},
        E.STOPPED: set(),
    } == NEXT_EVENTS
    assert ({E.READY, E.BUSY, E.IDLE}, {E.READY, E.IDLE}) == (READY_EVENTS, WAITING_STATES)
