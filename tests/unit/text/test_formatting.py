"""Counts, durations, sizes, times and TOML as text."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.text.formats import (
    closest_match,
    count_noun,
    did_you_mean,
    format_bytes,
    format_duration,
    format_key,
    format_table,
    format_time,
    format_value,
)


@pytest.mark.parametrize(
    ("number", "plural", "text"),
    [(0, None, "0 tries"), (1, "tries", "1 try"), (2, "tries", "2 tries"), (12345, "tries", "12,345 tries")],
)
def test_a_count_has_its_noun(number: int, plural: str | None, text: str) -> None:
    assert count_noun(number, "try", plural or "tries") == text
    assert count_noun(number, "task") == f"{number:,} task{'s' * (number != 1)}"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (40.9, "40 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (3659, "1 h"),
        (7500, "2 h 5 min"),
        (172_799, "47 h 59 min"),
        (172_800, "2 days"),
        (300_000, "3 days"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (999.9, "999 bytes"),
        (1000, "1 kB"),
        (40_400, "40 kB"),
        (999_999, "1000 kB"),
        (1e6, "1 MB"),
        (12_400_000, "12 MB"),
        (999e6, "999 MB"),
        (1e9, "1.0 GB"),
        (1.55e12, "1550.0 GB"),
    ],
)
def test_a_size_is_in_powers_of_a_thousand(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_a_time_is_shown_in_utc_when_utc_has_it() -> None:
    east = timezone(timedelta(hours=2))
    assert format_time(datetime(2026, 1, 31, 1, 2, 3, 999, tzinfo=east)) == "2026-01-30T23:02:03Z"
    assert format_time(datetime(1, 1, 1, 0, 0, 0, 5, tzinfo=east)) == "0001-01-01T00:00:00+02:00"


def test_a_suggestion_is_the_similar_word_as_it_is_written() -> None:
    assert did_you_mean("Shwo", ["SHOW", "list"]) == "; did you mean SHOW?"
    assert did_you_mean("x", ["show"]) == ""
    assert (closest_match("abcde", ["abcxy"]), closest_match("abcde", ["abxyz"])) == ("abcxy", None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        ('a"b', '"a\\"b"'),
        ("ü\x7f", '"ü\\u007f"'),
        ([1, ("a",)], '[1, ["a"]]'),
        ({"a b": 1, "c-d_1": {"e": 2}}, '{"a b" = 1, c-d_1 = {e = 2}}'),
    ],
)
def test_a_value_is_toml_on_one_line(value: Any, text: str) -> None:
    assert format_value(value) == text
    assert tomllib.loads(f"x = {text}")["x"] == tomllib.loads(f"x = {format_value(value)}")["x"]


def test_a_key_is_quoted_where_toml_needs_it() -> None:
    assert [format_key(name) for name in ("a-Z_9", "a.b", "", "ü")] == ["a-Z_9", '"a.b"', '""', '"ü"']


def test_a_table_has_dotted_keys_before_lists_and_no_blanks() -> None:
    values = {
        "name": "a",
        "none": None,
        "empty": "",
        "list": [],
        "off": False,
        "zero": 0,
        "deep": {"x y": {"z": 1}, "gone": {}},
        "rows": ({"a": 1, "b": {"c": 2}}, {"a": ""}),
        "words": ["p", {"q": 1}],
    }
    assert list(format_table("programs.x", values)) == [
        "[programs.x]",
        'name = "a"',
        "zero = 0",
        'deep."x y".z = 1',
        'words = ["p", {q = 1}]',
        "[[programs.x.rows]]",
        "a = 1",
        "b.c = 2",
        "[[programs.x.rows]]",
    ]


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 9) | st.text(min_size=1, max_size=5), max_size=4))
def test_a_table_can_be_read_again(values: dict[str, Any]) -> None:
    assert tomllib.loads("\n".join(format_table("t", values)))["t"] == values


def test_times_of_utc_are_kept() -> None:
    assert format_time(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31T12:00:00Z"
