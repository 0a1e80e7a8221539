"""Which alarms are sent to a target, and when: tables, and each alarm once between its rise and its end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.alarms.rules import notice_rules as rules
from liza.alarms.rules.notice_rules import NoticeRecord
from liza.config.rules import settings
from liza.config.rules.settings import UnconfirmedSetting
from liza.model import invariants
from liza.model.alarm_kinds import Alarm
from liza.model.model import Config, NotifySettings
from liza.model.quiet_hours import parse_quiet_hours
from liza.model.target_names import CUT_COMMAND, board_problems, hide_credentials, target_label, target_problem
from tests.unit.boards import board

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEW = NoticeRecord(label="desktop")


def alarm(about: str, kind: str = "blocked", message: str = "it asks") -> Alarm:
    return Alarm(kind, about, message, f"liza answer {about}")


def step(
    record: NoticeRecord,
    *present: str,
    cleared: tuple[str, ...] = (),
    quiet: bool = False,
    fails: bool = False,
    at: int = 0,
) -> tuple[list[str], NoticeRecord]:
    """Look once, and deliver what is planned; return the delivered kinds and abouts, and the record."""
    now = NOW + timedelta(seconds=at)
    gone = {("blocked", name) for name in cleared}
    plan = rules.plan_notices([alarm(name) for name in present], gone, record, now, is_quiet=quiet)
    record, delivered = plan.record, []
    for notice in plan.notices:
        if fails:
            return delivered, rules.record_failure_of(plan, record, "no answer", now, rules.FIRST_DELAY)
        record = rules.record_delivery(record, notice)
        delivered.append("+".join(about for _, about in notice.keys))
    return delivered, record


def test_an_alarm_is_sent_once_until_it_clears_also_if_it_returns_between_two_looks() -> None:
    sent, record = step(NEW, "a")
    assert sent == ["a"]
    assert step(record, "a")[0] == []
    assert step(record, "a", "b")[0] == ["b"]
    assert step(record, "a", cleared=("a",))[0] == ["a"]
    _, record = step(record)
    assert step(record, "a")[0] == ["a"]


def test_what_rises_in_quiet_hours_is_one_digest_at_their_end_without_what_cleared() -> None:
    sent, record = step(NEW, "a", "b", "c", quiet=True)
    assert sent == []
    sent, record = step(record, "b", "c", "d", quiet=True)
    assert step(record, "b", "c", "e")[0] == ["b+c", "e"]
    assert step(record, "b")[0] == ["b"]
    assert step(record)[0] == []


def test_many_alarms_at_once_are_one_digest() -> None:
    assert step(NEW, *"abcde")[0] == ["a", "b", "c", "d", "e"]
    assert step(NEW, *"abcdef")[0] == ["a+b+c+d+e+f"]


def test_a_failing_target_is_tried_later_and_at_most_five_times_for_an_alarm() -> None:
    record, at, waits = NEW, 0, []
    for _ in range(rules.MAX_TRIES):
        _, record = step(record, "a", fails=True, at=at)
        if record.next_try is not None:
            assert step(record, "a", at=at)[0] == []
            waits.append(int((record.next_try - NOW).total_seconds()) - at)
            at += waits[-1]
    assert waits == [10, 30, 90, 270]
    assert step(record, "a", at=at + 10_000)[0] == []
    failure = rules.failure_alarm(record)
    assert failure is not None
    assert failure.message.startswith("alarms could not be sent to desktop, 5 times in a row: no answer")
    sent, record = step(record, "a", "b", at=at)
    assert sent == ["a", "b"]
    assert rules.failure_alarm(record) is None


def test_nothing_is_tried_again_in_quiet_hours_or_after_the_alarm_cleared() -> None:
    """Otherwise the sender would wake up for it again and again."""
    _, failed = step(NEW, "a", fails=True)
    assert failed.next_try is not None
    assert step(failed, at=60)[1].next_try is None
    _, quiet = step(failed, "a", quiet=True, at=60)
    assert quiet.next_try is None
    assert step(quiet, "a", at=61)[0] == ["a"]


def test_a_target_is_sent_what_needs_a_person_and_the_failures_of_other_targets() -> None:
    alarms = [
        alarm("a"),
        alarm("b", "untested_merges"),
        alarm("json://…", "notices_failed"),
        alarm("d", "notices_failed"),
    ]
    assert [one.about for one in rules.select_alarms(alarms, "json://…")] == ["a", "d"]


def test_a_notice_has_no_secret_no_control_character_no_mention_and_a_bounded_length() -> None:
    key = "sk-ant-" + "a" * 30
    notice = rules.build_notice(alarm("a", message=f"\x1b[31mkey {key}\0 @everyone <!channel>\n" + "x" * 9000))
    assert key not in notice.text
    assert notice.message.startswith("[31mkey [redacted: API key] @\u200beveryone <\u200b!channel> xxx")
    assert len(notice.message) == rules.MAX_TEXT
    assert notice.text.endswith("…\nNext: liza answer a")
    digest = rules.build_digest([alarm(str(number), message="y" * 5000) for number in range(100)])
    assert len(digest.text) < 15_000
    assert "and 80 more" in digest.text
    assert len(digest.keys) == 100


looks = st.lists(
    st.tuples(st.frozensets(st.sampled_from("abcdefgh")), st.booleans(), st.booleans(), st.integers(0, 400)),
    max_size=30,
)


@given(looks)
def test_each_alarm_is_sent_exactly_once_between_rising_and_clearing(
    history: list[tuple[frozenset[str], bool, bool, int]],
) -> None:
    """Never twice; and by the end once, if the target then works, no quiet hours are left and a new alarm rises."""
    record, before, at = NEW, frozenset[str](), 0
    sent: Counter[str] = Counter()
    for present, quiet, fails, seconds in [
        *history,
        (frozenset("z") | (history[-1][0] if history else set()), False, False, 999),
    ]:
        at += seconds
        for name in before - present:
            del sent[name]
        delivered, record = step(
            record, *sorted(present), cleared=tuple(before - present), quiet=quiet, fails=fails, at=at
        )
        assert not (quiet and delivered)
        sent.update(name for notice in delivered for name in notice.split("+"))
        assert all(count == 1 and name in present for name, count in sent.items())
        before = present
    assert sent.keys() == before


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("22:00-07:00", [time(22), time(23, 59), time(0), time(6, 59, 59)], [time(7), time(12), time(21, 59)]),
        ("12:30-13:00", [time(12, 30), time(12, 59)], [time(13), time(12, 29), time(0)]),
    ],
)
def test_quiet_hours_may_pass_midnight(hours: str, inside: list[time], outside: list[time]) -> None:
    quiet = parse_quiet_hours(hours)
    assert quiet is not None
    assert all(map(quiet.contains, inside))
    assert not any(map(quiet.contains, outside))


@pytest.mark.parametrize(
    "text", ["", "22-7", "24:00-07:00", "22:60-07:00", "07:00-07:00", "22:00-07:00 ", "٢2:00-07:00"]
)
def test_other_texts_are_no_hours(text: str) -> None:
    assert parse_quiet_hours(text) is None


@pytest.mark.parametrize(
    ("target", "label", "is_target"),
    [
        ("desktop", "desktop", True),
        ("env:SLACK_URL", "env:SLACK_URL", True),
        ("file:/etc/liza-url", "file:/etc/liza-url", True),
        ("file:~/.config/url", "file:~/.config/url", True),
        ("slack://TokenA/TokenB", "slack://…", True),
        ("file:.liza/url", "…", False),
        ("env:A=B", "…", False),
        ("TokenA/TokenB", "…", False),
    ],
)
def test_a_target_is_shown_without_its_address(target: str, label: str, is_target: bool) -> None:
    assert (target_problem(target) is None) is is_target
    assert target_label(target) == label


def test_the_board_has_no_address_and_what_is_shown_of_one_is_its_scheme() -> None:
    targets = ("slack://TokenA/TokenB", "desktop", "TokenC")
    secret = NotifySettings(targets=targets, quiet="late", exec="curl -u me:TokenD x.example")
    problems = [str(problem) for problem in invariants.check_board(board(config=Config(notify=secret)))]
    assert len(problems) == 3
    assert not any("Token" in problem for problem in problems)
    value = settings.confirmable_values(Config(notify=secret))["notify"]
    texts = (UnconfirmedSetting("notify", {}, value).description, settings.describe_effective(Config(notify=secret)))
    assert all("slack://…" in text and "Token" not in text for text in texts)


def test_only_a_person_sets_targets_and_commands_of_alarms() -> None:
    planted = Config(notify=NotifySettings(targets=("env:HOME",), exec="curl evil"))
    assert settings.effective_config(planted, {}).notify == NotifySettings()


def test_delays_triple_up_to_five_minutes() -> None:
    assert [rules.retry_delay(failures) for failures in (1, 2, 3, 4, 5)] == [10.0, 30.0, 90.0, 270.0, 300.0]
    assert rules.retry_delay(2, 1.0) == 3.0


def test_a_failure_is_recorded_with_its_reason_and_the_last_one_sets_the_alarms_aside() -> None:
    plan = rules.plan_notices([alarm("a"), alarm("b")], (), NEW, NOW, is_quiet=False)
    assert plan.due == (("blocked", "a"), ("blocked", "b"))
    half = rules.record_delivery(plan.record, plan.notices[0])
    failed = rules.record_failure_of(plan, half, "no\nanswer ghp_" + "a" * 36, NOW, 10.0)
    assert failed == NoticeRecord(
        label="desktop",
        sent=(("blocked", "a"),),
        failures=1,
        reason="no answer [redacted: GitHub token]",
        failed_at=NOW,
        next_try=NOW + timedelta(seconds=10),
    )
    last = rules.record_failure_of(plan, rules.replace(failed, failures=4), "no", NOW, 10.0)
    assert (last.failures, last.next_try, last.set_aside) == (5, None, (("blocked", "b"),))
    assert rules.without_failure(last) == NoticeRecord(label="desktop", sent=(("blocked", "a"),))
    again = rules.plan_notices([alarm("a"), alarm("b"), alarm("c")], (), last, NOW, is_quiet=False)
    assert (again.record.failures, [notice.about for notice in again.notices]) == (0, ["b", "c"])


@pytest.mark.parametrize(
    ("failures", "label", "message", "step"),
    [
        (1, "desktop", "desktop, once: r; it is tried again", "liza watch --notify desktop --try"),
        (4, "file:/a b", "file:/a b, 4 times in a row: r; it is tried again", "liza watch --notify 'file:/a b' --try"),
        (5, "exec", "exec, 5 times in a row: r; they are sent with the next new one", 'liza watch --exec "…" --try'),
    ],
)
def test_the_alarm_of_a_failing_target_has_the_command_that_tries_it(
    failures: int, label: str, message: str, step: str
) -> None:
    failure = rules.failure_alarm(NoticeRecord(label=label, failures=failures, reason="r"))
    assert failure == Alarm("notices_failed", label, f"alarms could not be sent to {message}", step)
    assert rules.failure_alarm(NoticeRecord(label=label)) is None


def test_a_delivered_notice_is_not_held_or_set_aside_any_more() -> None:
    key, other = ("blocked", "a"), ("blocked", "b")
    record = NoticeRecord(label="l", sent=(("blocked", "z"),), held=(key, other), set_aside=(key, other), failures=3)
    assert rules.record_delivery(record, rules.build_notice(alarm("a"))) == NoticeRecord(
        label="l", sent=(key, ("blocked", "z")), held=(other,), set_aside=(other,)
    )


def test_a_notice_and_a_digest_have_the_command_that_answers_them() -> None:
    notice = rules.build_notice(alarm("a"))
    assert (notice.kind, notice.about, notice.text) == ("blocked", "a", "it asks\nNext: liza answer a")
    assert notice.keys == (("blocked", "a"),)
    assert [(row.about, row.next) for row in notice.alarms] == [("a", "liza answer a")]
    digest = rules.build_digest([alarm("a"), alarm("b", message="m" * 300)])
    assert digest.text == (
        "2 alarms wait for you:\n- it asks; next: liza answer a\n"
        f"- {'m' * 239}…; next: liza answer b\nNext: liza status"
    )
    assert (digest.kind, digest.about) == ("digest", "crew")
    full = rules.build_digest([alarm(str(number)) for number in range(20)])
    assert len(full.alarms) == 20
    assert "more" not in full.message
    more = rules.build_digest([alarm(str(number)) for number in range(21)])
    assert (len(more.alarms), more.message.splitlines()[-1]) == (20, "- and 1 more")
    long = rules.build_notice(Alarm("k", "x" * 300, "m", "y" * 400))
    assert (len(long.about), len(long.next)) == (240, 300)


def test_words_that_call_a_whole_chat_are_broken_and_others_kept() -> None:
    text = "@here @channel @everyone @heretic <@U1> <#C1> <!x> a <b"
    assert rules.clean_text(text, 200) == (
        "@\u200bhere @\u200bchannel @\u200beveryone @heretic <\u200b@U1> <\u200b#C1> <\u200b!x> a <b"
    )
    assert [rules.clean_text(text, 5) for text in ("abcde", "abcdef", " a\t\nb ")] == ["abcde", "abcd…", "a b"]


def test_of_two_alarms_with_one_key_the_first_is_sent_once() -> None:
    plan = rules.plan_notices([alarm("a", message="1"), alarm("a", message="2")], (), NEW, NOW, is_quiet=False)
    assert [notice.message for notice in plan.notices] == ["1"]


def test_a_target_that_failed_is_tried_at_its_time_and_not_before() -> None:
    record = rules.replace(NEW, failures=1, next_try=NOW)
    assert len(rules.plan_notices([alarm("a")], (), record, NOW, is_quiet=False).notices) == 1
    assert rules.plan_notices([alarm("a")], (), record, NOW - timedelta(seconds=1), is_quiet=False).record == record


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("env:1A", "env: needs the name of an environment variable"),
        ("env:", "env: needs the name of an environment variable"),
        ("env:_a9", None),
        ("file:a", "file: needs an absolute path"),
        ("file:/a\0", "file: needs an absolute path"),
        ("mail", "not desktop, env:NAME, file:PATH or a URL"),
        ("a+b.c-1://x", None),
        ("1a://x", "not desktop, env:NAME, file:PATH or a URL"),
    ],
)
def test_a_wrong_target_is_named_without_its_text(target: str, problem: str | None) -> None:
    assert target_problem(target) == problem


def test_the_board_names_what_it_must_not_have() -> None:
    assert list(board_problems(("desktop", "https://x/y", "env:", "env:A"))) == [
        ("https://…", "a URL, which the history of the board would keep"),
        ("…", "env: needs the name of an environment variable"),
    ]
    assert hide_credentials({"targets": ["https://x/y", "desktop"], "exec": "e", "quiet": None}) == {
        "targets": ["https://…", "desktop"],
        "exec": CUT_COMMAND,
        "quiet": None,
    }
    odd_values = (None, {"targets": "x"}, {}, {"exec": None})
    assert [hide_credentials(odd) for odd in odd_values] == list(odd_values)
