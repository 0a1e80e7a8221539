"""Which account is used next, and until when one is not used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.usage.rules import account_rules
from liza.usage.rules.account_rules import AccountRecord, Lifetime, NoneUsable, Obstacle

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER, EARLIER = NOW + timedelta(hours=1), NOW - timedelta(hours=1)
LIMITED = AccountRecord(obstacle=Obstacle.LIMIT, reason="limit", until=LATER, failures=1)
OVER = AccountRecord(obstacle=Obstacle.LIMIT, reason="limit", until=NOW, failures=1)
REFUSED = AccountRecord(obstacle=Obstacle.LOGIN, reason="401", failures=1)


def test_the_table_of_choices() -> None:
    table = [
        # what is known, the account of the conversation, the choice
        ({}, None, "a"),
        ({"a": LIMITED}, None, "b"),
        ({"a": REFUSED}, None, "b"),
        ({"a": OVER}, None, "a"),
        ({"a": LIMITED, "b": REFUSED}, None, "c"),
        # a conversation keeps its account, unless it cannot be used
        ({}, "c", "c"),
        ({"c": LIMITED}, "c", "a"),
        ({}, "gone", "a"),
    ]
    for records, preferred, expected in table:
        choice = account_rules.choose_account(("a", "b", "c"), records, NOW, preferred)
        assert choice == expected, (records, preferred)


def test_without_usable_accounts_the_earliest_end_and_reasons_count() -> None:
    soon = account_rules.after_limit(AccountRecord(), NOW, "429", NOW + timedelta(minutes=5), 5.0)
    choice = account_rules.choose_account(("a", "b", "c"), {"a": LIMITED, "b": soon, "c": REFUSED}, NOW)
    assert choice == NoneUsable(NOW + timedelta(minutes=5), "a: limit; b: 429; c: 401")
    assert account_rules.choose_account(("c",), {"c": REFUSED}, NOW) == NoneUsable(None, "c: 401")


def test_a_limit_without_an_end_grows_until_a_session_succeeds() -> None:
    record, seconds = AccountRecord(), []
    for _ in range(3):
        record = account_rules.after_limit(record, NOW, "429", None, 5.0)
        assert record.until is not None
        seconds.append((record.until - NOW).total_seconds())
    assert seconds == [60.0, 120.0, 240.0]
    again = account_rules.after_limit(account_rules.after_success(record), NOW, "429", None, 5.0)
    assert again.until == NOW + timedelta(minutes=1)


def test_a_limit_that_ends_now_counts_for_a_few_seconds() -> None:
    record, seconds = AccountRecord(), []
    for _ in range(6):
        record = account_rules.after_limit(record, NOW, "429", EARLIER, 5.0)
        assert record.until is not None
        seconds.append((record.until - NOW).total_seconds())
    assert seconds == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_another_sessions_limit_does_not_replace_a_refused_login() -> None:
    refused = account_rules.after_refusal(AccountRecord(), "401")
    assert account_rules.after_limit(refused, NOW, "429", LATER, 5.0) == refused
    assert account_rules.after_unreadable(refused, NOW, "locked") == refused


@pytest.mark.parametrize(
    ("life", "age", "due"),
    [(3600, 0, False), (3600, 3200, False), (3600, 3301, True), (60, 40, False), (60, 49, True), (60, 3600, True)],
)
def test_a_credential_is_replaced_before_it_ends(life: int, age: int, due: bool) -> None:
    lifetime = Lifetime(NOW, NOW + timedelta(seconds=life))
    reason = account_rules.rotation_reason(AccountRecord(), lifetime, NOW + timedelta(seconds=age))
    assert (reason is not None) == due


def test_a_credential_is_replaced_only_when_its_account_is_unusable() -> None:
    assert account_rules.rotation_reason(LIMITED, Lifetime(NOW), NOW) == "limit"
    assert account_rules.rotation_reason(OVER, Lifetime(NOW), NOW) is None
    assert account_rules.rotation_reason(AccountRecord(), Lifetime(NOW), NOW) is None


NAMES = ("a", "b", "c", "d")
TIMES = st.integers(-3600, 3600).map(lambda seconds: NOW + timedelta(seconds=seconds))
RECORDS = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        AccountRecord,
        obstacle=st.none() | st.sampled_from(list(Obstacle)),
        reason=st.just("why"),
        until=st.none() | TIMES,
    ),
)


@given(RECORDS, st.none() | st.sampled_from([*NAMES, "gone"]))
def test_the_chosen_account_is_usable_or_waiting_ends_with_one(
    records: dict[str, AccountRecord], preferred: str | None
) -> None:
    choice = account_rules.choose_account(NAMES, records, NOW, preferred)
    usable = [name for name in NAMES if account_rules.is_usable(records.get(name, AccountRecord()), NOW)]
    if isinstance(choice, str):
        assert choice in usable
        assert choice == preferred or preferred not in usable
        return
    assert not usable
    if choice.until is not None:
        assert choice.until > NOW
        after = account_rules.choose_account(NAMES, records, choice.until)
        assert isinstance(after, str)


@given(st.lists(st.sampled_from(["limit", "refusal", "unreadable", "success", "clear"]), max_size=8))
def test_sessions_use_the_first_account_without_an_obstacle(ends: list[str]) -> None:
    records: dict[str, AccountRecord] = {}
    now = NOW
    for end in [*ends, *["success"] * len(NAMES)]:
        now += timedelta(seconds=1)
        choice = account_rules.choose_account(NAMES, records, now)
        if isinstance(choice, NoneUsable):
            records = {name: AccountRecord() for name in records}
            continue
        record = records.get(choice, AccountRecord())
        assert account_rules.is_usable(record, now)
        earlier = NAMES[: NAMES.index(choice)]
        assert not any(account_rules.is_usable(records.get(name, AccountRecord()), now) for name in earlier)
        records[choice] = _after_end(end, record, now)


def _after_end(end: str, record: AccountRecord, now: datetime) -> AccountRecord:
    match end:
        case "limit":
            return account_rules.after_limit(record, now, "429", None, 5.0)
        case "refusal":
            return account_rules.after_refusal(record, "401")
        case "unreadable":
            return account_rules.after_unreadable(record, now, "locked")
        case "success":
            return account_rules.after_success(record)
        case _:
            return AccountRecord()


def test_a_limit_reported_for_years_lasts_a_month() -> None:
    record = account_rules.after_limit(AccountRecord(), NOW, "429", NOW + timedelta(days=7 * 365), 5.0)
    assert record.until == NOW + account_rules.MAX_LIMIT
    week = NOW + timedelta(days=7)
    assert account_rules.after_limit(AccountRecord(), NOW, "429", week, 5.0).until == week


@pytest.mark.parametrize(
    ("record", "word"),
    [
        (AccountRecord(), "usable"),
        (OVER, "usable"),
        (LIMITED, "limited"),
        (REFUSED, "set aside"),
        (AccountRecord(obstacle=Obstacle.SOURCE, until=LATER), "not readable"),
    ],
)
def test_the_state_of_an_account_is_a_word(record: AccountRecord, word: str) -> None:
    assert account_rules.describe_record(record, NOW) == word


def test_each_end_of_a_session_leaves_its_record() -> None:
    assert account_rules.after_unreadable(AccountRecord(), NOW, "locked") == AccountRecord(
        obstacle=Obstacle.SOURCE, reason="locked", until=NOW + timedelta(minutes=1), failures=1
    )
    assert account_rules.after_refusal(LIMITED, "401") == AccountRecord(
        obstacle=Obstacle.LOGIN, reason="401", failures=2
    )
    limited = account_rules.after_limit(LIMITED, NOW, "429", LATER, 5.0)
    assert (limited.reason, limited.until, limited.failures) == ("429", LATER, 2)
    past = account_rules.after_limit(AccountRecord(), NOW, "429", NOW, 5.0)
    assert past.until == NOW + timedelta(seconds=5)
    assert account_rules.after_limit(AccountRecord(), NOW, "429", NOW + timedelta(days=99), 5.0).until == (
        NOW + timedelta(days=32)
    )


def test_a_credential_is_renewed_before_its_end() -> None:
    def left(life: int, read_before: int = 0) -> float | None:
        end = NOW + timedelta(seconds=life)
        return account_rules.seconds_to_renewal(Lifetime(NOW - timedelta(seconds=read_before), end), NOW)

    assert left(3600) == 3300
    assert left(1500) == 1200
    assert left(100) == 80
    assert left(-10) == -10
    assert account_rules.seconds_to_renewal(Lifetime(NOW), NOW) is None
    assert account_rules.rotation_reason(AccountRecord(), Lifetime(EARLIER, NOW), NOW) == "the credential expires"


def test_the_words_of_the_accounts_file_are_fixed() -> None:
    assert list(Obstacle) == ["limit", "login", "source"]
