"""The work record of an agent follows from the histories of tasks: each event counts for the coder who had the task."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from liza.model.model import Event, Status, Task
from liza.model.spending import LedgerEntry, TokenUsage
from liza.tasks.rules import work_record
from liza.tasks.rules.work_record import ReviewRecord, TaskOutcome, TaskRecord

START = datetime(2026, 1, 1, tzinfo=UTC)


def task(*events: tuple[str, str], status: Status = Status.MERGED, **fields: object) -> Task:
    history = tuple(
        Event(time=START + timedelta(minutes=number), event=event, agent=agent)
        for number, (event, agent) in enumerate((("add", "human:a"), *events))
    )
    return Task(id="t", status=status, history=history, **fields)


def session(run: str, cost: float | None, program: str = "claude") -> LedgerEntry:
    used = TokenUsage(input=100, output=10, cost=cost)
    return LedgerEntry(
        run=run, time=START, kind="work", program=program, outcome="done", seconds=1.0, task="t", used=used
    )


MERGED = task(
    ("claim", "coder-1"),
    ("submit", "coder-1"),
    ("reject", "code-reviewer-1"),
    ("claim", "coder-1"),
    ("submit", "coder-1"),
    ("approve", "code-reviewer-1"),
    ("merge failed", "liza"),
    ("claim", "coder-1"),
    ("submit", "coder-1"),
    ("approve", "code-reviewer-2"),
    ("merge", "liza"),
    merge_commit="c" * 40,
)
TAKEN_OVER = task(
    ("claim", "coder-1"),
    ("submit", "coder-1"),
    ("reject", "code-reviewer-1"),
    ("claim", "coder-2"),
    ("submit", "coder-2"),
    ("approve", "code-reviewer-1"),
    ("merge", "liza"),
    merge_commit="d" * 40,
)


def test_a_work_record_counts_tries_reviews_merges_time_and_cost() -> None:
    entries = [session("coder-1.1", 0.5), session("coder-1.2", 0.25, "codex"), session("coder-2.1", 9.0)]
    assert work_record.task_record(MERGED, "coder-1", entries) == TaskRecord(
        task="t",
        outcome=TaskOutcome.MERGED,
        tries=3,
        reviews=3,
        rejections=1,
        failed_merges=1,
        seconds=9 * 60,
        cost=0.75,
        tokens=220,
        programs=("claude", "codex"),
        merge_commit="c" * 40,
    )


def test_work_after_a_takeover_counts_for_the_new_coder() -> None:
    first = work_record.task_record(TAKEN_OVER, "coder-1", [])
    second = work_record.task_record(TAKEN_OVER, "coder-2", [])
    assert first == TaskRecord(task="t", outcome=TaskOutcome.GIVEN_UP, tries=1, reviews=1, rejections=1)
    assert second == TaskRecord(
        task="t", outcome=TaskOutcome.MERGED, tries=1, reviews=1, seconds=120, merge_commit="d" * 40
    )
    assert work_record.task_record(TAKEN_OVER, "coder-3", []) is None


@pytest.mark.parametrize(
    ("status", "fields", "outcome"),
    [
        (Status.CLAIMED, {}, TaskOutcome.OPEN),
        (Status.BLOCKED, {"failed_by": ("coder-1",)}, TaskOutcome.FAILED),
        (Status.ABANDONED, {}, TaskOutcome.GIVEN_UP),
        (Status.SUPERSEDED, {}, TaskOutcome.GIVEN_UP),
    ],
)
def test_the_outcome_of_a_task_that_is_not_merged(
    status: Status, fields: dict[str, object], outcome: TaskOutcome
) -> None:
    record = work_record.task_record(task(("claim", "coder-1"), status=status, **fields), "coder-1", [])
    assert record is not None
    assert record.outcome is outcome


def test_a_reviewer_is_charged_only_with_merges_it_approved() -> None:
    assert work_record.review_record([MERGED], "code-reviewer-1") == ReviewRecord(
        approved=1, rejected=1, failed_merges=1
    )
    assert work_record.review_record([MERGED], "code-reviewer-2") == ReviewRecord(approved=1)


def test_shares_are_of_closed_tasks_and_none_without_any() -> None:
    records = [
        TaskRecord(task="a", outcome=TaskOutcome.MERGED, reviews=1),
        TaskRecord(task="b", outcome=TaskOutcome.MERGED, reviews=3, rejections=2),
        TaskRecord(task="c", outcome=TaskOutcome.FAILED, reviews=1, rejections=1),
        TaskRecord(task="d", outcome=TaskOutcome.OPEN),
    ]
    assert work_record.success_rates(records) == {
        "approved_at_once": 0.333,
        "merged": 0.667,
        "failed": 0.333,
        "given_up": 0.0,
        "rejections_per_task": 1.0,
    }
    assert set(work_record.success_rates([]).values()) == {None}


def test_areas_and_languages_count_tasks_and_not_files() -> None:
    records = [
        TaskRecord(
            task="a",
            outcome=TaskOutcome.MERGED,
            paths=("src/shop/a.py", "src/shop/b.py", "src/shop/x/c.py", "README.md"),
        ),
        TaskRecord(task="b", outcome=TaskOutcome.MERGED, paths=("src/shop/a.py", "web/app.test.ts", ".gitignore")),
    ]
    assert work_record.count_areas(records) == {"src/shop": 2, ".": 2, "web": 1}
    assert work_record.count_languages(records) == {".py": 2, ".md": 1, ".ts": 1}


def test_a_deadlock_counts_as_a_rejected_review() -> None:
    stuck = task(("claim", "coder-1"), ("submit", "coder-1"), ("deadlock", "code-reviewer-1"), status=Status.BLOCKED)
    record = work_record.task_record(stuck, "coder-1", [])
    assert record is not None
    assert (record.reviews, record.rejections, record.is_approved_at_once) == (1, 1, False)
    assert work_record.review_record([stuck, MERGED], "code-reviewer-1") == ReviewRecord(
        approved=1, rejected=2, failed_merges=1
    )
    failed = task(("claim", "coder-1"), ("claim", "coder-2"), failed_by=("coder-1",))
    first = work_record.task_record(failed, "coder-1", [])
    assert first is not None
    assert (first.outcome, first.merge_commit) == (TaskOutcome.FAILED, None)


def test_a_failed_merge_after_a_rejection_charges_no_reviewer() -> None:
    odd = task(
        ("claim", "coder-1"), ("approve", "code-reviewer-1"), ("reject", "code-reviewer-2"), ("merge failed", "")
    )
    assert work_record.review_record([odd], "code-reviewer-1") == ReviewRecord(approved=1)
    assert work_record.review_record([odd], "code-reviewer-2") == ReviewRecord(rejected=1)


def test_resumed_runs_are_tries_and_other_tasks_cost_nothing() -> None:
    resumed = task(("claim", "coder-1"), ("resume", "coder-1"), status=Status.CLAIMED)
    silent = LedgerEntry(run="coder-1.1", time=START, kind="work", program="p", outcome="x", seconds=1, task="t")
    elsewhere = LedgerEntry(
        run="coder-1.2",
        time=START,
        kind="work",
        program="q",
        outcome="x",
        seconds=1,
        task="u",
        used=TokenUsage(input=9),
    )
    record = work_record.task_record(resumed, "coder-1", [silent, elsewhere, session("coder-1.3", 0.00004)])
    assert record == TaskRecord(
        task="t", outcome=TaskOutcome.OPEN, tries=2, cost=0.0, tokens=110, programs=("claude", "p")
    )
    unpriced = work_record.task_record(resumed, "coder-1", [silent, session("coder-1.3", None)])
    assert unpriced is not None
    assert unpriced.cost is None


def test_areas_are_two_directories_deep_and_the_twelve_most_changed() -> None:
    deep = TaskRecord(
        task="a", outcome=TaskOutcome.MERGED, paths=("a/b/c/d.py", "a/b/e.PY", "a/f.tar.gz", "noext", "b.c/d")
    )
    assert work_record.count_areas([deep]) == {"a/b": 1, "a": 1, ".": 1, "b.c": 1}
    assert work_record.count_languages([deep]) == {".PY": 1, ".gz": 1, ".py": 1}
    many = [
        TaskRecord(task=str(number), outcome=TaskOutcome.MERGED, paths=(f"d{min(number, 13)}/x",))
        for number in range(15)
    ]
    assert list(work_record.count_areas(many).items())[:2] == [("d13", 2), ("d0", 1)]
    assert len(work_record.count_areas(many)) == 12


def test_shares_are_rounded_and_given_up_tasks_are_closed() -> None:
    records = [TaskRecord(task=str(number), outcome=TaskOutcome.GIVEN_UP) for number in range(6)]
    records.append(TaskRecord(task="m", outcome=TaskOutcome.MERGED, reviews=2, rejections=1))
    assert work_record.success_rates(records) == {
        "approved_at_once": 0.0,
        "merged": 0.143,
        "failed": 0.0,
        "given_up": 0.857,
        "rejections_per_task": 1.0,
    }
