"""Which branches of tasks are pushed, and when a failed push or reading is tried again and is an alarm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from liza.landing.rules import remote_failures
from liza.landing.rules.push_rules import TaskTips, find_unpushed
from liza.landing.rules.remote_failures import (
    RETRY_AFTER,
    backup_alarms,
    count_failure,
    is_waiting,
    next_poll_seconds,
    sync_alarms,
)
from liza.model.configuration import Config
from liza.model.errors import LizaError
from liza.model.model import Event, Goal, State, Status, Task, TrackedRequest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = count_failure(None, "origin", LizaError("gone", "liza push"), NOW)


def board(status: Status, last: str = "submit", push: str = "auto") -> State:
    task = Task(id="t", status=status, base_commit="base", history=(Event(time=NOW, event=last),))
    config = Config(push=push)  # type: ignore[arg-type]
    return State(version=1, revision=1, goal=Goal(id="g", status="IN_PROGRESS"), tasks=(task,), config=config)


@pytest.mark.parametrize(
    ("status", "last", "tip", "pushed", "is_due", "is_unpushed"),
    [
        (Status.READY_FOR_REVIEW, "submit", "tip", None, True, True),
        (Status.READY_FOR_REVIEW, "submit", "tip", "tip", False, False),
        (Status.READY_FOR_REVIEW, "submit", "tip", "before the rebase", True, True),
        (Status.UNCLAIMED, "add", None, None, False, False),
        (Status.CLAIMED, "claim", "base", None, False, False),
        (Status.CLAIMED, "claim", "tip", None, False, True),  # its session commits now
        (Status.CLAIMED, "crash", "tip", None, True, True),
        (Status.CLAIMED, "handoff", "tip", None, True, True),
        (Status.CLAIMED, "stop", "tip", None, True, True),
        (Status.REJECTED, "reject", "tip", None, True, True),
        (Status.BLOCKED, "block", "tip", None, True, True),
        (Status.MERGED, "merge", "tip", None, False, False),
        (Status.ABANDONED, "drop", "tip", None, False, False),
    ],
)
def test_an_open_branch_is_pushed_when_no_session_writes(
    status: Status, last: str, tip: str | None, pushed: str | None, is_due: bool, is_unpushed: bool
) -> None:
    tips = TaskTips({"t": tip} if tip else {}, {"t": pushed} if pushed else {})
    assert find_unpushed(board(status, last), tips, at_rest=True) == (("t",) if is_due else ())
    assert find_unpushed(board(status, last), tips) == (("t",) if is_unpushed else ())


def test_a_failed_push_waits_five_minutes_by_any_clock() -> None:
    assert is_waiting(FAILED, NOW + timedelta(seconds=RETRY_AFTER - 1))
    assert not is_waiting(FAILED, NOW + timedelta(seconds=RETRY_AFTER))
    assert not is_waiting(FAILED, NOW - timedelta(days=1))
    assert not is_waiting(None, NOW)


def test_one_alarm_has_the_time_since_which_origin_lacks_branches() -> None:
    again = count_failure(FAILED, "origin", LizaError(f"no: ghp_{'a' * 36}", "x"), NOW + timedelta(hours=1))
    (alarm,) = backup_alarms(board(Status.READY_FOR_REVIEW), again)
    assert (alarm.kind, alarm.about, alarm.next) == ("push_failed", "origin", "x")
    assert alarm.message.endswith("since 2026-01-01 00:00Z: no: [redacted: GitHub token]")
    assert list(backup_alarms(board(Status.READY_FOR_REVIEW, push="never"), again)) == []
    assert list(backup_alarms(board(Status.READY_FOR_REVIEW), None)) == []


def test_only_an_open_pull_request_alarms_after_failed_readings() -> None:
    request = TrackedRequest(number=7, repository="github.com/acme/shop", state="OPEN")
    state = replace(board(Status.MERGED), pull_request=request)
    failure, raised = None, []
    for _ in range(4):
        failure = count_failure(failure, "7", LizaError("gh: no"), NOW)
        raised.append([(alarm.message, alarm.next) for alarm in sync_alarms(state, failure)])
    assert raised[:2] == [[], []]
    assert raised[2] == [("pull request #7 was not read 3 times in a row: gh: no", "liza sync --pr")]
    for other in (replace(request, number=8), replace(request, state="CLOSED")):
        assert list(sync_alarms(replace(state, pull_request=other), failure)) == []
    assert count_failure(failure, "8", LizaError("gh: no"), NOW).failures == 1


def test_the_pause_doubles_with_each_failure_to_fifteen_minutes() -> None:
    assert [next_poll_seconds(60, failures) for failures in (0, 1, 2, 9)] == [60.0, 120.0, 240.0, 900.0]
    assert next_poll_seconds(3600, 5) == 3600.0
    assert remote_failures.ALARM_AFTER == 3
