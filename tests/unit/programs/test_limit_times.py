"""When a usage limit ends, as programs and vendors print it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.backoff import MAX_LIMIT
from liza.model.paths import Paths
from liza.programs.presets import preset_table
from liza.programs.presets.preset import FailurePattern
from liza.programs.session import failure_patterns
from liza.programs.session.failure_patterns import ModelSigns, find_failure, find_reset_time, update_failure

NEW_YORK = timezone(timedelta(hours=-5))
NOW = datetime(2026, 11, 28, 14, 30, tzinfo=NEW_YORK)
"""19:30 UTC, a Saturday, on a machine in New York."""

PRINTED = [
    ("You've hit your session limit · resets 3pm", "2026-11-28T20:00"),
    ("You've hit your session limit · resets 2:50pm (America/New_York)", "2026-11-28T19:50"),
    ("You've hit your session limit · resets 12:50am (America/Los_Angeles)", "2026-11-29T08:50"),
    ("You've hit your session limit · resets 8:30pm (UTC)", "2026-11-28T20:30"),
    ("You've hit your session limit · resets 9am (Pacific/Auckland)", "2026-11-28T20:00"),
    ("You've hit your limit · resets Dec 3 at 4pm (America/Recife)", "2026-12-03T19:00"),
    ("You've hit your weekly limit · resets Nov 30, 3pm (Europe/Berlin)", "2026-11-30T14:00"),
    ("You've hit your weekly limit · resets Jan 2, 5:59am (UTC)", None),
    ("You've hit your weekly limit · resets Dec 28, 5:59am (UTC)", "2026-12-28T05:59"),
    ("You're out of extra usage · resets 10pm (UTC)", "2026-11-28T22:00"),
    ("5-hour limit reached ∙ resets 2am", "2026-11-29T07:00"),
    ("Claude usage limit reached. Your limit will reset at 9am (America/Chicago).", "2026-11-29T15:00"),
    ("Claude AI usage limit reached|1795896000", "2026-11-28T20:00"),
    ("Claude AI usage limit reached|1795800000", None),
    ("resets Monday 9am", "2026-11-30T14:00"),
    ("Weekly limit: available again Sunday at 1:00 AM UTC", "2026-11-29T01:00"),
    ("resets tomorrow at 7:30am", "2026-11-29T12:30"),
    ("You've hit your usage limit. Upgrade to Pro (https://x.test/p) or try again in 5 days 22 hours 11 minutes.",
     "2026-12-04T17:41"),
    ("You've hit your usage limit. Try again in 2 hours 5 minutes.", "2026-11-28T21:35"),
    ("Upgrade to Plus, or try again at Dec 5th, 2026 8:19 PM.", "2026-12-06T01:19"),
    ("or try again at Dec 5th, 2026 8:19\u202fPM.", "2026-12-06T01:19"),
    ("or try again at 7:45 PM.", "2026-11-29T00:45"),
    ("try again at 5 Dec 2026, 20:19", "2026-12-06T01:19"),
    ('{"type":"usage_limit_reached","plan_type":"plus","resets_at":1795896000,"resets_in_seconds":13872}',
     "2026-11-28T20:00"),
    ('{\\"type\\":\\"usage_limit_reached\\",\\"resets_in_seconds\\":1800}', "2026-11-28T20:00"),
    ("You have exhausted your capacity on this model. Your quota will reset after 18h31m10s.", "2026-11-29T14:01:10"),
    ("Your quota will reset after 0s.. Retrying after 5710ms...", "2026-11-28T19:30"),
    ("Usage limit reached for some-model. Access resets at 10:57 PM GMT-3.", "2026-11-29T01:57"),
    ("Please retry in 34.5s.", "2026-11-28T19:30:34.500000"),
    ('"retryDelay": "34s"', "2026-11-28T19:30:34"),
    ('"responseHeaders":{"retry-after":"120"}', "2026-11-28T19:32"),
    ("retry-after-ms: 1500", "2026-11-28T19:30:01.500000"),
    ("Sorry, you've hit a rate limit. Please try again in 51 hours. Please review our Terms of Service",
     "2026-11-30T22:30"),
    ("Please wait for your limit to reset on December 1, 2026 at 2:00 AM or switch to auto", "2026-12-01T07:00"),
    ("Sorry, your request was rate-limited. Please wait 587 hours 33 minutes before trying again.", "2026-12-23T07:03"),
    ("Please wait 2 minutes before trying again", "2026-11-28T19:32"),
    ("Usage limit reached for 5 hour. Your limit will reset at 2026-11-28 15:30:24 [retrying in 2m 22s #8]",
     "2026-11-28T20:30:24"),
    ("limit resets at: 2026-11-29T10:13:01+0000", "2026-11-29T10:13:01"),
    ("limit resets at 2026-11-29T10:13:01Z", "2026-11-29T10:13:01"),
    ("Your limit will reset at 2026-11-29 10:13:01 UTC+05:30", "2026-11-29T04:43:01"),
    ("Free usage exceeded, subscribe to Go: retrying in 6h16m - attempt #1", "2026-11-29T01:46"),
    ("resets 3pm PST", "2026-11-28T23:00"),
    ("resets 3pm (local)", "2026-11-28T20:00"),
    # No time, or none that can be meant.
    ("Rate limits exceeded. Please wait a moment before trying again.", None),
    ("Request rejected (429) · Rate limited. Please try again later.", None),
    ("Claude usage limit reached. It resets 3", None),
    ("resets 3pm (Middle-earth/Shire)", None),
    ("resets 3pm XYZT", None),
    ("resets 13pm", None),
    ("resets 25:00", None),
    ("resets Feb 30, 3pm", None),
    ("try again in 99999999999 days", None),
    ("try again in 40 days", None),
    ("resets_at: 99999999999999", None),
    ("resets 3pm (../../etc/passwd)", "2026-11-28T20:00"),
    ("resets 3pm (America)", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "end"), PRINTED)
def test_the_end_of_a_limit_is_read_from_vendor_texts(text: str, end: str | None) -> None:
    found = find_reset_time(text, NOW)
    if end is None:
        assert found is None
        return
    assert found is not None
    assert found.utcoffset() == NOW.utcoffset()
    wanted = datetime.fromisoformat(f"{end}+00:00")
    # A printed time of day may leave out its seconds.
    assert abs(found - wanted) < timedelta(minutes=1) if wanted.second else found == wanted, found


@pytest.mark.parametrize("ago", [0, 1, 5, 14])
def test_a_limit_that_has_just_ended_ends_now(ago: int) -> None:
    at = NOW - timedelta(minutes=ago)
    printed = (f"{at:%I:%M%p}", f"{at:%b %d, %H:%M}", f"at {at.isoformat()}", f"|{at.timestamp():.0f}")
    assert [find_reset_time(f"resets {text}", NOW) for text in printed] == [NOW] * 4


def test_a_limit_that_ended_before_midnight_ends_now_after_midnight() -> None:
    assert find_reset_time("resets 11:55pm", NOW.replace(hour=0, minute=4)) == NOW.replace(hour=0, minute=4)


@pytest.mark.parametrize("ago", [16, 60, 700])
def test_a_time_of_day_long_past_means_tomorrow(ago: int) -> None:
    at = NOW - timedelta(minutes=ago)
    assert find_reset_time(f"resets {at:%H:%M}", NOW) == at + timedelta(days=1)


def test_a_date_without_a_year_is_found_beyond_new_year() -> None:
    now = datetime(2026, 12, 30, 12, tzinfo=UTC)
    assert find_reset_time("resets Jan 2, 3pm", now) == datetime(2027, 1, 2, 15, tzinfo=UTC)


def test_a_system_without_time_zones_waits_without_a_known_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(failure_patterns, "ZoneInfo", missing)
    assert find_reset_time("resets 3pm (America/New_York)", NOW) is None
    assert find_reset_time("resets 8pm (UTC)", NOW) == datetime(2026, 11, 28, 20, tzinfo=UTC)


ZONES = ["America/New_York", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland", "America/St_Johns", "UTC"]


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)),
    st.timedeltas(timedelta(minutes=1), timedelta(hours=23)),
    st.sampled_from(ZONES),
)
def test_a_printed_end_is_read_back(moment: datetime, delay: timedelta, name: str) -> None:
    now = moment.replace(tzinfo=UTC)
    end = (now + delay).astimezone(ZoneInfo(name)).replace(second=0, microsecond=0, fold=0)
    if end.astimezone(UTC).astimezone(end.tzinfo).replace(fold=0) != end or end < now:
        return
    clock = f"{end:%I:%M%p}".lstrip("0").lower()
    dated = find_reset_time(f"resets {end:%b} {end.day}, {clock} ({name})", now)
    assert dated is not None
    # At the end of summer time a clock shows one hour twice.
    assert dated - end.astimezone(UTC) in (timedelta(0), timedelta(hours=1), timedelta(hours=-1))
    undated = find_reset_time(f"resets {clock} ({name})", now)
    assert undated is not None
    assert undated in (dated, now)
    assert find_reset_time(f"resets at {end.isoformat()}", now) is not None


@given(st.text(max_size=60), st.sampled_from(["resets ", "try again in ", "try again at ", "|", "retry-after: ", ""]))
def test_no_text_stops_the_reading_of_an_end(text: str, before: str) -> None:
    found = find_reset_time(before + text, NOW)
    assert found is None or NOW <= found <= NOW + MAX_LIMIT


ROWS = preset_table.load_presets(Paths(Path("/nowhere")), Path("/nowhere")).rows
RESULT = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 429, "duration_ms": 9}


@pytest.mark.parametrize(
    "words",
    [
        "You've hit your session limit · resets 3pm (America/New_York)\n/login to switch to another account.",
        "You're out of extra usage · resets 3pm (America/New_York)",
        "Something new that is on no list, error 403, Please run /login · resets 3pm (America/New_York)",
    ],
)
def test_a_status_of_429_outranks_the_words(words: str) -> None:
    line = json.dumps({**RESULT, "result": words, "session_id": "s"}, separators=(",", ":"))
    failure = find_failure(ModelSigns(ROWS["claude"].failures, ROWS["claude"].answers), line, NOW)
    assert failure is not None
    assert (failure.kind, failure.until) == ("quota", datetime(2026, 11, 28, 20, tzinfo=UTC))


def test_the_time_of_a_limit_comes_from_its_own_line() -> None:
    signs = ModelSigns(ROWS["claude"].failures, ROWS["claude"].answers)
    info = {"status": "rejected", "resetsAt": 1795896000, "rateLimitType": "five_hour", "isUsingOverage": False}
    event = json.dumps({"type": "rate_limit_event", "rate_limit_info": info}, separators=(",", ":"))
    spoken = '{"type":"assistant","message":{"id":"m","model":"<synthetic>","role":"assistant"}}'
    last = json.dumps({**RESULT, "result": "Your group's usage limit is set to $0"}, separators=(",", ":"))
    failure = find_failure(signs, "\n".join((event, spoken, last)), NOW)
    assert failure is not None
    assert failure.message == "Your group's usage limit is set to $0"
    assert failure.until == datetime(2026, 11, 28, 20, tzinfo=UTC)
    for other in (event.replace("rejected", "allowed_warning"), event.replace("false", "true")):
        assert find_failure(signs, other, NOW) is None


@pytest.mark.parametrize(
    ("program", "line", "end"),
    [
        ("codex", '{"type":"turn.failed","error":{"message":"You\'ve hit your usage limit. Upgrade to Plus, or try '
         'again at Dec 5th, 2026 8:19 PM."}}', "2026-12-06T01:19"),
        ("gemini", "Attempt 1 failed: You have exhausted your capacity on this model. Your quota will reset after "
         "30m.. Retrying after 6173ms...", "2026-11-28T20:00"),
        ("gemini", '{"type":"result","status":"error","error":{"message":"[API Error: Usage limit reached for m. '
         'Access resets at 10:57 PM GMT-3.]"}}', "2026-11-29T01:57"),
        ("opencode", '{"type":"error","error":{"name":"APIError","data":{"message":"Too Many Requests","statusCode":429'
         ',"responseHeaders":{"retry-after":"1800"}}}}', "2026-11-28T20:00"),
        ("copilot", '{"type":"session.error","data":{"errorType":"rate_limit","message":"Sorry, you\'ve hit a rate '
         'limit. Please try again in 51 hours. Please review"}}', "2026-11-30T22:30"),
        ("pi", '{"type":"message_end","message":{"stopReason":"error","errorMessage":"Codex error: {\\"error\\":{'
         '\\"type\\":\\"usage_limit_reached\\",\\"resets_at\\":1795896000},\\"status_code\\":429}"}}',
         "2026-11-28T20:00"),
        ("qwen", '{"type":"result","is_error":false,"result":"[API Error: 429 limit, retry after 30 minutes]"}',
         "2026-11-28T20:00"),
        ("vibe", "Error: API error from mistral (model: m): Rate limit exceeded. Please wait 30 minutes.",
         "2026-11-28T20:00"),
    ],
)  # fmt: skip
def test_each_program_waits_until_the_end_that_it_prints(program: str, line: str, end: str) -> None:
    failure = find_failure(ModelSigns(ROWS[program].failures, ROWS[program].answers), line, NOW)
    assert failure is not None
    assert (failure.kind, failure.until) == ("quota", datetime.fromisoformat(f"{end}+00:00"))


def test_a_users_own_row_can_name_the_time_of_day() -> None:
    row = FailurePattern(kind="quota", match=r"^full until (?P<time>.*)")
    failure = update_failure(ModelSigns([row]), None, "full until 3pm (America/New_York)", NOW)
    assert failure is not None
    assert failure.until == datetime(2026, 11, 28, 20, tzinfo=UTC)
