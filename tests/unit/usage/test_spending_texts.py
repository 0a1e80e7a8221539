"""Usage and limits as people read them: each figure, and what is estimated or not known."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from liza.model import spending
from liza.model.configuration import Budget
from liza.model.spending import LedgerEntry, TokenUsage
from liza.text.formats import format_bytes

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def entry(used: TokenUsage | None, seconds: float = 10.0, **fields: Any) -> LedgerEntry:
    facts = {"run": "coder-1.1", "kind": "work", "program": "claude", "outcome": "finished", "task": "t", "sprint": "s"}
    return LedgerEntry(time=NOW, seconds=seconds, used=used, **{**facts, **fields})


PRICED = entry(TokenUsage(input=1000, cached=400, output=200, cost=0.125))
UNPRICED = entry(TokenUsage(input=30, output=4), program="codex")
ESTIMATED = entry(TokenUsage(input=10, output=5, estimated=15))
SILENT = entry(None, program="pi")


def test_the_estimate_of_a_silent_program_grows_with_its_calls() -> None:
    assert spending.estimate_usage(0, 0) == TokenUsage(input=8000, output=0, estimated=8000)
    assert spending.estimate_usage(2, 4000) == TokenUsage(input=3 * 8500, output=1000, estimated=3 * 8500 + 1000)


@pytest.mark.parametrize(
    ("budget", "spent", "why"),
    [
        (Budget(), [UNPRICED], None),
        (Budget(tokens_per_task=5), [UNPRICED], None),
        (Budget(money_per_task=5), [], None),
        (Budget(money_per_task=5), [PRICED, entry(TokenUsage())], None),
        (Budget(money_per_task=5), [entry(None, outcome="living")], None),
        (Budget(money_per_task=5), [PRICED, UNPRICED], "money_per_task does not count 1 of 2 sessions: codex"),
        (Budget(money_per_sprint=5), [SILENT, UNPRICED], "money_per_sprint does not count 2 of 2 sessions: codex, pi"),
    ],
)  # fmt: skip
def test_a_money_limit_names_sessions_that_it_does_not_count(
    budget: Budget, spent: list[LedgerEntry], why: str | None
) -> None:
    reason = spending.unpriced_reason(budget, spent)
    assert (reason is None) == (why is None)
    assert why is None or (reason or "").startswith(f"config.budget.{why} reported no cost")


OTHER_TASK, OTHER_SPRINT = entry(PRICED.used, task="other"), entry(PRICED.used, sprint="other")


@pytest.mark.parametrize(
    ("budget", "spent", "why"),
    [
        (Budget(), [PRICED] * 9, None),
        (Budget(money_per_task=0.25), [PRICED], None),
        (Budget(money_per_task=0.25), [PRICED, PRICED], "t has used $0.25 of $0.25"),
        (Budget(money_per_task=0.25), [PRICED, OTHER_TASK], None),
        (Budget(money_per_sprint=0.25), [PRICED, OTHER_TASK], "the sprint has used $0.25 of $0.25"),
        (Budget(money_per_sprint=0.25), [PRICED, OTHER_SPRINT], None),
        (Budget(tokens_per_task=1201), [PRICED], None),
        (Budget(tokens_per_task=1200), [PRICED], "t has used 1,200 of 1,200 tokens"),
        (Budget(tokens_per_sprint=15), [ESTIMATED], "the sprint has used 15 of 15 tokens (15 of them estimated)"),
        (Budget(seconds_per_task=11), [PRICED], None),
        (Budget(seconds_per_task=10), [SILENT], "t has used 10 of 10 seconds"),
        (Budget(seconds_per_sprint=20), [SILENT, OTHER_TASK], "the sprint has used 20 of 20 seconds"),
        (Budget(money_per_task=0.01), [UNPRICED, SILENT], None),
    ],
)
def test_a_budget_ends_work_only_of_its_task_or_sprint(
    budget: Budget, spent: list[LedgerEntry], why: str | None
) -> None:
    assert spending.over_budget_reason(budget, spent, "t", "s") == why


def test_only_sprint_limits_apply_to_a_planner() -> None:
    planning = entry(PRICED.used, task=None)
    assert spending.over_budget_reason(Budget(money_per_task=0.01), [planning], None, "s") is None
    assert spending.over_budget_reason(Budget(money_per_sprint=0.01), [planning], None, "s") is not None


@pytest.mark.parametrize(
    ("budget", "task", "left"),
    [
        (Budget(), "t", None),
        (Budget(seconds_per_task=25), "t", 5.0),
        (Budget(seconds_per_task=25), None, None),
        (Budget(seconds_per_task=15), "t", 0.0),
        (Budget(seconds_per_sprint=50), None, 30.0),
        (Budget(seconds_per_task=25, seconds_per_sprint=50), "t", 5.0),
        (Budget(seconds_per_task=100, seconds_per_sprint=50), "t", 30.0),
    ],
)
def test_a_session_may_run_until_the_nearer_time_limit(budget: Budget, task: str | None, left: float | None) -> None:
    assert spending.seconds_left(budget, [PRICED, OTHER_TASK, OTHER_SPRINT], task, "s") == left


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"), (999.9, "999 bytes"), (1000, "1 kB"), (40_400, "40 kB"), (999_400, "999 kB"),
        (1e6, "1 MB"), (12_300_000, "12 MB"), (1e9, "1.0 GB"), (1.52e9, "1.5 GB"),
    ],
)  # fmt: skip
def test_a_size_has_the_fitting_unit(size: float, text: str) -> None:
    assert format_bytes(size) == text
