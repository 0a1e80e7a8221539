"""Hours of the day and of the week, in local time: quiet hours, and `config.work_hours`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.configuration import Config
from liza.model.setting_limits import describe_opening, find_opening, parse_hours

BERLIN = ZoneInfo("Europe/Berlin")
DAY = "08:00-20:00"
WEEKDAYS = "mon-fri 08:00-20:00"
NIGHTS = "mon-fri 22:00-06:00"
WEEKEND = "sat-sun 10:00-12:00"


@pytest.mark.parametrize(
    ("hours", "local", "opening"),
    [
        (DAY, "2026-03-02 08:00", None),
        (DAY, "2026-03-02 19:59", None),
        (DAY, "2026-03-02 20:00", "2026-03-03 08:00"),
        (DAY, "2026-03-02 07:59", "2026-03-02 08:00"),
        (WEEKDAYS, "2026-03-06 20:00", "2026-03-09 08:00"),
        (WEEKDAYS, "2026-03-07 12:00", "2026-03-09 08:00"),
        (WEEKDAYS, "2026-03-06 12:00", None),
        (NIGHTS, "2026-03-07 05:59", None),
        (NIGHTS, "2026-03-07 06:00", "2026-03-09 22:00"),
        (NIGHTS, "2026-03-09 05:00", "2026-03-09 22:00"),
        (NIGHTS, "2026-03-08 23:00", "2026-03-09 22:00"),
        (WEEKEND, "2026-03-08 12:00", "2026-03-14 10:00"),
        ("fri-mon 08:00-09:00", "2026-03-02 08:30", None),
        ("fri-mon 08:00-09:00", "2026-03-03 08:30", "2026-03-06 08:00"),
        ("wed 08:00-09:00", "2026-03-04 09:00", "2026-03-11 08:00"),
        # The clocks go forward from 2 to 3 on 29 March, and back from 3 to 2 on 25 October.
        (DAY, "2026-03-28 23:00", "2026-03-29 08:00"),
        (DAY, "2026-10-24 23:00", "2026-10-25 08:00"),
        ("02:30-05:00", "2026-03-29 03:00", None),
        ("22:00-02:30", "2026-03-29 03:00", "2026-03-29 22:00"),
    ],
)
def test_sessions_start_when_the_clock_on_the_wall_allows(hours: str, local: str, opening: str | None) -> None:
    now = datetime.fromisoformat(local).replace(tzinfo=BERLIN).astimezone(UTC)
    wanted = None if opening is None else datetime.fromisoformat(opening).replace(tzinfo=BERLIN)
    assert find_opening(Config(work_hours=hours), now, BERLIN) == wanted


def test_a_night_with_a_change_of_the_clock_is_an_hour_shorter() -> None:
    now = datetime(2026, 3, 28, 22, tzinfo=UTC)  # 23:00 in Berlin
    opening = find_opening(Config(work_hours=DAY), now, BERLIN)
    assert opening is not None
    assert opening - now == timedelta(hours=8)


@pytest.mark.parametrize(
    "text",
    [
        "", "8-20", "08:00", "25:00-07:00", "08:00-24:00", "08:00-08:00", "Mon-Fri 08:00-20:00", "mon-fri",
        "mon,tue 08:00-20:00", "mon-fri  08:00-20:00", "mon-mo 08:00-20:00", "workdays 08:00-20:00",
        "mon-fri 8:00-20:00",
    ],
)  # fmt: skip
def test_other_texts_are_no_hours(text: str) -> None:
    assert parse_hours(text) is None


def test_without_hours_sessions_start_at_any_time() -> None:
    assert find_opening(Config(), datetime(2026, 3, 1, 3, tzinfo=UTC)) is None
    assert describe_opening(Config(), datetime(2026, 3, 1, 3, tzinfo=UTC)) is None


def test_the_sentence_names_the_day_if_it_is_not_the_next() -> None:
    now = datetime(2026, 3, 6, 20, tzinfo=UTC)
    command = "(config.work_hours): liza config set work_hours null"
    assert describe_opening(Config(work_hours=DAY), now, UTC) == f"no session starts before 08:00 {command}"
    assert describe_opening(Config(work_hours=WEEKDAYS), now, UTC) == f"no session starts before 08:00 on Mon {command}"


@given(st.sampled_from([DAY, WEEKDAYS, NIGHTS, WEEKEND, "sun-sat 23:00-01:00"]), st.integers(0, 60 * 24 * 365))
def test_the_hours_begin_at_the_next_start_and_not_before(text: str, minutes: int) -> None:
    hours, local = parse_hours(text), datetime(2026, 1, 1) + timedelta(minutes=minutes)
    assert hours is not None
    start = hours.next_start(local)
    assert hours.contains(start)
    assert not hours.contains(start - timedelta(minutes=1))
    if not hours.contains(local):
        between = (local + (start - local) * part / 10 for part in range(10))
        assert not any(map(hours.contains, between))
