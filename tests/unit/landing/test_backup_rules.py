"""Which branches of tasks are pushed, and when a failed push is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from liza.landing.rules.backup_rules import (
    RETRY_AFTER,
    BackupFailure,
    TaskTips,
    backup_alarms,
    find_due,
    find_unpushed,
    is_waiting,
)
from liza.landing.rules.push_rules import parse_ref_results
from liza.model.configuration import Config
from liza.model.model import Event, Goal, State, Status, Task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = BackupFailure(
    reason="gone",
    next="liza push",
    tasks=("t",),
    since=NOW,
    last=NOW - timedelta(seconds=RETRY_AFTER - 1),
)
OTHERS = replace(FAILED, tasks=("other",))


def board(status: Status, last: str = "submit", push: str = "auto") -> State:
    task = Task(id="t", status=status, base_commit="base", history=(Event(time=NOW, event=last),))
    config = Config(push=push)  # type: ignore[arg-type]
    return State(version=1, revision=1, goal=Goal(id="g", status="IN_PROGRESS"), tasks=(task,), config=config)


@pytest.mark.parametrize(
    ("status", "last", "tip", "pushed", "failure", "is_due"),
    [
        (Status.READY_FOR_REVIEW, "submit", "tip", None, None, True),
        (Status.READY_FOR_REVIEW, "submit", "tip", "tip", None, False),
        (Status.READY_FOR_REVIEW, "submit", "tip", "before the rebase", None, True),
        (Status.UNCLAIMED, "add", None, None, None, False),
        (Status.CLAIMED, "claim", "base", None, None, False),
        (Status.CLAIMED, "claim", "tip", None, None, False),  # its session commits now
        (Status.CLAIMED, "crash", "tip", None, None, True),
        (Status.CLAIMED, "handoff", "tip", None, None, True),
        (Status.REJECTED, "reject", "tip", None, None, True),
        (Status.BLOCKED, "block", "tip", None, None, True),
        (Status.MERGED, "merge", "tip", None, None, False),
        (Status.MERGED, "merge", "tip", None, FAILED, True),
        (Status.MERGED, "merge", "tip", None, OTHERS, False),
        (Status.ABANDONED, "drop", "tip", None, None, False),
        (Status.READY_FOR_REVIEW, "submit", "tip", None, OTHERS, True),
    ],
)
def test_a_task_is_pushed_when_no_session_writes_and_no_delay_runs(
    status: Status, last: str, tip: str | None, pushed: str | None, failure: BackupFailure | None, is_due: bool
) -> None:
    tips = TaskTips({"t": tip} if tip else {}, {"t": pushed} if pushed else {}, {})
    assert find_due(board(status, last), tips, failure) == (("t",) if is_due else ())


@pytest.mark.parametrize(("begun", "is_due"), [("tip", True), ("before the rebase", False)])
def test_a_merged_task_whose_push_was_killed_is_due(begun: str, is_due: bool) -> None:
    tips = TaskTips({"t": "tip"}, {"t": "old"}, {"t": begun})
    assert find_due(board(Status.MERGED), tips, None) == (("t",) if is_due else ())
    assert find_due(board(Status.MERGED), TaskTips({"t": "tip"}, {"t": "tip"}, {"t": begun}), None) == ()


def test_a_failed_push_waits_five_minutes_and_a_clock_that_was_set_back_delays_nothing() -> None:
    assert is_waiting(FAILED, NOW)
    assert not is_waiting(FAILED, NOW + timedelta(seconds=1))
    assert not is_waiting(replace(FAILED, last=NOW + timedelta(days=1)), NOW)
    assert not is_waiting(None, NOW)


@pytest.mark.parametrize(
    ("remote", "own"),
    [(None, "pushed"), ("pushed", "pushed"), ("begun", "begun"), ("other", "pushed")],
)
def test_a_commit_whose_push_was_killed_is_the_crews_own(remote: str | None, own: str) -> None:
    assert TaskTips({}, {"t": "pushed"}, {"t": "begun"}).own_tip("t", remote) == own


@pytest.mark.parametrize(
    ("push", "failure", "is_told"),
    [("auto", FAILED, True), ("never", FAILED, False), ("auto", OTHERS, False), ("auto", None, False)],
)
def test_one_alarm_names_branches_that_are_not_at_origin(
    push: str, failure: BackupFailure | None, is_told: bool
) -> None:
    alarms = list(backup_alarms(board(Status.READY_FOR_REVIEW, push=push), failure))
    shown = [(alarm.message, alarm.next) for alarm in alarms]
    assert shown == ([("no backup of t at origin since 2026-01-01 00:00Z: gone", "liza push")] if is_told else [])


def test_the_result_of_each_branch_is_read_from_what_git_prints() -> None:
    output = (
        "To /x\n*\taa:refs/heads/task/a\t[new branch]\n!\tbb:refs/heads/task/b\t[rejected] (stale info)\n"
        "=\tcc:refs/heads/task/c\t[up to date]\nDone\n"
    )
    rejected = "[rejected] (stale info)"
    assert parse_ref_results(output) == {
        "refs/heads/task/a": None,
        "refs/heads/task/b": rejected,
        "refs/heads/task/c": None,
    }


def test_an_alarm_names_five_tasks_without_secrets_and_only_those_on_the_board() -> None:
    state = board(Status.READY_FOR_REVIEW)
    names = ("t", *"abcdef")
    tasks = tuple(replace(state.tasks[0], id=name) for name in names)
    failure = replace(FAILED, tasks=(*names[:6], "gone"), reason=f"no: ghp_{'a' * 36}", next=f"x ghp_{'a' * 36}")
    (alarm,) = backup_alarms(replace(state, tasks=tasks), failure)
    assert (alarm.kind, alarm.about, alarm.next) == ("push_failed", "origin", "x [redacted: GitHub token]")
    assert alarm.message == (
        "no backup of t, a, b, c, d and 1 more at origin since 2026-01-01 00:00Z: no: [redacted: GitHub token]"
    )
    (fewer,) = backup_alarms(replace(state, tasks=tasks), replace(FAILED, tasks=names[:5]))
    assert fewer.message.startswith("no backup of t, a, b, c, d at origin")


@pytest.mark.parametrize(
    ("status", "tip", "pushed", "is_told"),
    [
        (Status.CLAIMED, "tip", None, True),
        (Status.CLAIMED, "tip", "tip", False),
        (Status.CLAIMED, "base", None, False),
        (Status.CLAIMED, None, None, False),
        (Status.MERGED, "tip", None, False),
    ],
)
def test_a_branch_is_unpushed_while_its_own_commits_are_nowhere_else(
    status: Status, tip: str | None, pushed: str | None, is_told: bool
) -> None:
    tips = TaskTips({"t": tip} if tip else {}, {"t": pushed} if pushed else {}, {})
    assert find_unpushed(board(status), tips) == (("t",) if is_told else ())


def test_a_claimed_task_without_a_history_is_not_at_rest() -> None:
    state = board(Status.CLAIMED)
    new = replace(state, tasks=(replace(state.tasks[0], history=()),))
    assert find_due(new, TaskTips({"t": "tip"}, {}, {}), None) == ()
    for event in ("stop", "held up", "quota", "ended"):
        assert find_due(board(Status.CLAIMED, event), TaskTips({"t": "tip"}, {}, {}), None) == ("t",)
