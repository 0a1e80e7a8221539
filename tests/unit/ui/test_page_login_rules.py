"""Codes, cookies and host names of the page, at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.errors import UsageError
from liza.ui.web.login import CODE_LIFE, IDLE_LIFE, LOCK_TIME, MAX_LIFE, MAX_WRONG, Browser, LoginCodes
from liza.ui.web.page_guards import find_origin, own_path, parse_host_name

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
MOMENT = timedelta(seconds=1)


def test_a_code_is_taken_once_and_for_five_minutes() -> None:
    codes = LoginCodes()
    code = codes.issue(NOW)
    assert codes.take(code, NOW + CODE_LIFE - MOMENT)
    assert not codes.take(code, NOW + CODE_LIFE - MOMENT)
    assert not codes.take(codes.issue(NOW), NOW + CODE_LIFE)


def test_after_ten_wrong_codes_none_is_taken_for_a_minute() -> None:
    codes = LoginCodes()
    code = codes.issue(NOW)
    for number in range(MAX_WRONG):
        assert not codes.is_locked(NOW)
        assert not codes.take(f"wrong{number}", NOW)
    assert not codes.take(code, NOW + LOCK_TIME - MOMENT)
    assert codes.take(code, NOW + LOCK_TIME)


@pytest.mark.parametrize(
    ("since", "used", "is_valid"),
    [
        (timedelta(0), IDLE_LIFE - MOMENT, True),
        (timedelta(0), IDLE_LIFE, False),
        (MAX_LIFE - MOMENT, timedelta(0), True),
        (MAX_LIFE, timedelta(0), False),
        (timedelta(0), -timedelta(days=1), True),
    ],
    ids=["used today", "unused for long", "almost a month", "a month", "the clock was set back"],
)
def test_a_login_ends_after_half_a_day_unused_or_a_month(since: timedelta, used: timedelta, is_valid: bool) -> None:
    assert Browser(digest="", since=NOW - max(since, used), used=NOW - used).is_valid(NOW) is is_valid


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("box.ts.net", "box.ts.net"),
        ("Box.TS.net:443", "box.ts.net"),
        ("box:8443", "box:8443"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_name_of_a_tunnel_may_have_a_port(text: str, name: str) -> None:
    assert parse_host_name(text) == name
    assert find_origin(name, name) == f"https://{name}"


@pytest.mark.parametrize(
    "text",
    [
        "https://box",
        "box/",
        "box:",
        "box:0",
        "box:65536",
        "-box",
        "a..b",
        ".box",
        "b ox",
        "box\n",
        "x" * 64,
        "é",
        "[::1]",
    ],
)
def test_what_is_no_host_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_host_name(text)


@given(st.text(alphabet="127.0localhsteviexmp:/@[]9 "))
def test_without_a_tunnel_the_page_is_at_this_machine_only(host: str) -> None:
    origin = find_origin(host, "")
    if origin is not None:
        name, _, port = host.partition(":")
        assert name in ("127.0.0.1", "localhost")
        assert not port or port.isdigit()
        assert origin == f"http://{host}"


@given(st.text(alphabet="/\\ab:.@?#\t\n[] %2f"))
def test_a_login_leads_back_to_this_page_only(path: str) -> None:
    own = own_path(path)
    assert own.startswith("/")
    assert own[1:2] not in ("/", "\\")
    assert own.isprintable()
