"""The health of a run: the worst of what is known, with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from liza.model.session_ends import SilenceKind
from liza.programs.rules.lifecycle_rules import (
    Health,
    HealthStatus,
    LifecycleEvent,
    RunFacts,
    WorkerState,
    judge_run,
    worker_state,
)

HEALTHY, DEGRADED, UNHEALTHY = HealthStatus


@pytest.mark.parametrize(
    ("facts", "status", "error"),
    [
        ({}, HEALTHY, None),
        ({"context_usage": 0.8, "handoff_at": 0.8}, HEALTHY, None),
        ({"context_usage": 0.81, "handoff_at": 0.8}, DEGRADED, "81% of its context window is used"),
        ({"unmeasured": "a pipe"}, DEGRADED, "it cannot be measured: a pipe"),
        ({"stuck": "20 equal calls", "context_usage": 0.9, "handoff_at": 0.8}, DEGRADED, "20 equal calls"),
        ({"question": "a menu"}, DEGRADED, "its program asks a person: a menu"),
        ({"silence": SilenceKind.SERVER, "silence_text": "errors"}, DEGRADED, "errors"),
        ({"silence": SilenceKind.LOGIN, "silence_text": "no login"}, UNHEALTHY, "no login"),
        ({"reported": DEGRADED, "reported_error": "slow"}, DEGRADED, "slow"),
        ({"reported": UNHEALTHY, "stuck": "x"}, UNHEALTHY, "its runtime reports that it does not work"),
        ({"unanswered": 60.0}, HEALTHY, None),
        ({"unanswered": 61.0, "reported": UNHEALTHY}, UNHEALTHY, "its runtime has not answered for 61 s"),
        ({"over": "its session is over", "unanswered": 99.0}, UNHEALTHY, "its session is over"),
    ],
)
def test_the_worst_fact_decides_and_is_named(facts: dict[str, Any], status: HealthStatus, error: str | None) -> None:
    assert judge_run(RunFacts(**facts)) == Health(status, error)


@pytest.mark.parametrize(
    ("state", "is_over", "expected"),
    [
        (None, False, WorkerState.BUSY),
        (LifecycleEvent.STARTED, False, WorkerState.IDLE),
        (LifecycleEvent.IDLE, False, WorkerState.IDLE),
        (LifecycleEvent.BUSY, False, WorkerState.BUSY),
        (LifecycleEvent.BUSY, True, WorkerState.STOPPING),
        (LifecycleEvent.STOPPED, False, WorkerState.STOPPING),
    ],
)
def test_a_run_without_a_report_works(state: LifecycleEvent | None, is_over: bool, expected: WorkerState) -> None:
    assert worker_state(state, is_over=is_over) is expected


@pytest.mark.parametrize(
    ("facts", "status", "error"),
    [
        ({"silence": SilenceKind.BROKEN, "silence_text": "b", "question": "q"}, UNHEALTHY, "b"),
        ({"silence": SilenceKind.QUOTA, "silence_text": "limit", "question": "q"}, DEGRADED, "limit"),
        ({"question": "q", "stuck": "s"}, DEGRADED, "its program asks a person: q"),
        ({"stuck": "s", "reported": DEGRADED}, DEGRADED, "s"),
        ({"reported": DEGRADED, "unmeasured": "x"}, DEGRADED, "its runtime reports a limit"),
        ({"reported": UNHEALTHY, "reported_error": "no disk"}, UNHEALTHY, "no disk"),
        ({"context_usage": 1.0}, HEALTHY, None),
        ({"context_usage": 0.9, "handoff_at": 0.8, "unmeasured": "x"}, DEGRADED, "90% of its context window is used"),
        ({"over": "o", "reported": UNHEALTHY, "reported_error": "r"}, UNHEALTHY, "o"),
    ],
)
def test_the_worst_of_several_facts_comes_first(facts: dict[str, Any], status: HealthStatus, error: str) -> None:
    assert judge_run(RunFacts(**facts)) == Health(status, error)


def test_a_stopping_run_and_a_ready_one_are_distinguished() -> None:
    assert worker_state(LifecycleEvent.STOPPING, is_over=False) is WorkerState.STOPPING
    assert worker_state(LifecycleEvent.READY, is_over=False) is WorkerState.IDLE
    assert worker_state(None, is_over=True) is WorkerState.STOPPING
