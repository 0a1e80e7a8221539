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
from liza.model.alarm_table import Alarm
from liza.model.configuration import Config, NotifySettings
from liza.model.model import Agent
from liza.model.setting_limits import (
    CUT_COMMAND,
    MAX_LINK,
    board_problems,
    hide_credentials,
    is_link,
    parse_hours,
    target_label,
    target_problem,
)
from tests.unit.boards import board, task

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NEW = NoticeRecord(label="desktop")


def alarm(about: str, kind: str = "blocked", message: str = "it asks") -> Alarm:
    return Alarm(kind, about, message, f"liza answer {about}")


def step(record: NoticeRecord, *present: str, fails: bool = False, at: int = 0) -> tuple[list[str], NoticeRecord]:
    """Look once, and deliver what is planned; return the delivered abouts, and the record."""
    now, delivered = NOW + timedelta(seconds=at), []
    alarms = [alarm(name) for name in present]
    record = rules.without_cleared(record, alarms)
    for notice in rules.plan_notices(alarms, record, now):
        if fails:
            return delivered, rules.record_failure_of(record, "no answer", now)
        record = rules.record_delivery(record, notice)
        delivered.append("+".join(about for _, about in notice.keys))
    return delivered, record


def test_many_alarms_at_once_are_one_digest() -> None:
    assert step(NEW, *"abcde")[0] == ["a", "b", "c", "d", "e"]
    assert step(NEW, *"abcdef")[0] == ["a+b+c+d+e+f"]


def test_a_failing_notice_target_is_an_alarm_and_retried() -> None:
    _, record = step(NEW, "a", fails=True)
    assert step(record, "a", at=59)[0] == []
    failure = rules.failure_alarm(record, NOW)
    assert failure is not None
    assert "desktop: no answer" in failure.message
    assert rules.failure_alarm(record, NOW + timedelta(days=1)) is None
    sent, record = step(record, "a", "b", at=60)
    assert sent == ["a", "b"]
    assert rules.failure_alarm(record, NOW) is None


def test_a_target_gets_alarms_for_persons_and_failures_of_others() -> None:
    alarms = [
        alarm("a"),
        alarm("b", "untested_merges"),
        alarm("json://…", "notices_failed"),
        alarm("d", "notices_failed"),
    ]
    assert [one.about for one in rules.select_alarms(alarms, "json://…")] == ["a", "d"]


def test_a_notice_has_bounded_length_without_secrets_or_mentions() -> None:
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


looks = st.lists(st.tuples(st.frozensets(st.sampled_from("abcdefgh")), st.booleans(), st.integers(0, 400)), max_size=30)


@given(looks)
def test_each_alarm_is_sent_exactly_once_between_rising_and_clearing(
    history: list[tuple[frozenset[str], bool, int]],
) -> None:
    """Never twice; and by the end once, if the target then works."""
    record, before, at = NEW, frozenset[str](), 0
    sent: Counter[str] = Counter()
    for present, fails, seconds in [*history, (history[-1][0] if history else frozenset("z"), False, 999)]:
        at += seconds
        for name in before - present:
            del sent[name]
        delivered, record = step(record, *sorted(present), fails=fails, at=at)
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
    quiet = parse_hours(hours)
    assert quiet is not None
    today = NOW.date()
    assert all(quiet.contains(datetime.combine(today, each)) for each in inside)
    assert not any(quiet.contains(datetime.combine(today, each)) for each in outside)


@pytest.mark.parametrize(
    "text", ["", "22-7", "24:00-07:00", "22:60-07:00", "07:00-07:00", "22:00-07:00 ", "٢2:00-07:00"]
)
def test_other_texts_are_no_hours(text: str) -> None:
    assert parse_hours(text) is None


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


def test_the_board_refuses_notice_addresses_and_shows_only_their_scheme() -> None:
    targets = ("slack://TokenA/TokenB", "desktop", "TokenC")
    secret = NotifySettings(targets=targets, quiet="late", exec="curl -u me:TokenD x.example")
    problems = [str(problem) for problem in invariants.check_board(board(config=Config(notify=secret)))]
    assert len(problems) == 3
    assert not any("Token" in problem for problem in problems)
    value = settings.confirmable_values(Config(notify=secret))["notify"]
    texts = (UnconfirmedSetting("notify", {}, value).description, settings.describe_effective(Config(notify=secret)))
    assert all("slack://…" in text and "Token" not in text for text in texts)


def test_only_a_person_sets_targets_and_commands_of_alarms() -> None:
    planted = Config(notify=NotifySettings(targets=("env:HOME",), exec="curl evil", link="https://evil.example"))
    assert settings.effective_config(planted, {}).notify == NotifySettings()


@pytest.mark.parametrize(
    ("label", "step"),
    [
        ("desktop", "liza watch --notify desktop --try"),
        ("file:/a b", "liza watch --notify 'file:/a b' --try"),
        ("exec", 'liza watch --exec "…" --try'),
    ],
)
def test_the_alarm_of_a_failing_target_has_a_test_command(label: str, step: str) -> None:
    record = rules.record_failure_of(NoticeRecord(label=label), "no\nanswer ghp_" + "a" * 36, NOW)
    failure = rules.failure_alarm(record, NOW)
    assert failure is not None
    assert failure.next == step
    assert f"{label}: no answer [redacted: GitHub token]" in failure.message


def test_a_notice_and_a_digest_contain_the_answering_command() -> None:
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


def test_mentions_of_a_whole_chat_are_broken_up_in_notices() -> None:
    text = "@here @channel @everyone @heretic <@U1> <#C1> <!x> a <b"
    assert rules.clean_text(text, 200) == (
        "@\u200bhere @\u200bchannel @\u200beveryone @heretic <\u200b@U1> <\u200b#C1> <\u200b!x> a <b"
    )
    assert [rules.clean_text(text, 5) for text in ("abcde", "abcdef", " a\t\nb ")] == ["abcde", "abcd…", "a b"]


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


LINKS = ["http://127.0.0.1:8420", "https://box.tailnet.ts.net/", "http://[::1]:80/liza", "https://h/" + "a" * 190]
NO_LINKS = [
    "", "box:8420", "ftp://box", "file:///etc/passwd", "javascript://x", "https://", "https:///x", "https://me@box",
    "https://me:word@box", "https://box\nx", "https://box/\x1b", "https://box/ x", "https://böx", "https://box?a=1",
    "https://box/#t=1", "https://box//evil", "https://box:", "https://-box", "https://box\n", "https://h/" + "a" * 191,
]  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
def test_an_address_of_a_page_is_a_link(link: str) -> None:
    assert is_link(link)
    assert list(invariants.check_board(board(config=Config(notify=NotifySettings(link=link))))) == []


@pytest.mark.parametrize("link", NO_LINKS)
def test_a_link_that_is_no_address_is_refused_and_not_used(link: str) -> None:
    assert not is_link(link)
    state = board(config=Config(notify=NotifySettings(link=link)))
    assert [problem.field for problem in invariants.check_board(state)] == ["notify.link"]
    assert rules.build_notice(alarm("a"), rules.page_links(state)).text == "it asks\nNext: liza answer a"


def test_a_password_in_a_link_is_never_shown() -> None:
    secret = Config(notify=NotifySettings(link="https://me:TokenA@box"))
    texts = [str(problem) for problem in invariants.check_board(board(config=secret))]
    value = settings.confirmable_values(secret)["notify"]
    texts += [UnconfirmedSetting("notify", {}, value).description, settings.describe_effective(secret)]
    assert all("https://…" in text and "Token" not in text for text in texts)
    assert hide_credentials({"link": LINKS[0]}) == {"link": LINKS[0]}
    assert len(LINKS[-1]) == MAX_LINK


@pytest.mark.parametrize("link", LINKS[:2])
def test_a_notice_ends_with_the_address_of_its_page(link: str) -> None:
    agents = {"coder-1": Agent(role="coder", status="IDLE")}
    links = rules.page_links(board(task("t1"), agents=agents, config=Config(notify=NotifySettings(link=link))))
    base = link.rstrip("/")
    pages = {"t1": f"{base}/tasks/t1", "coder-1": f"{base}/sessions/coder-1", "budget": f"{base}/", "t2": f"{base}/"}
    notices = [rules.build_notice(alarm(about), links) for about in pages]
    assert [notice.text.splitlines()[-1] for notice in notices] == list(pages.values())
    digest = rules.build_digest([alarm(about) for about in pages], links)
    assert digest.text.endswith(f"\nNext: liza status\n{base}/")
    assert [row.link for row in digest.alarms] == list(pages.values())
