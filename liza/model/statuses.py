"""Statuses of the goal, the sprint and the agents, kinds of work, and triggers that wake a planner.

The status of a task is ``model.Status``.
"""

from __future__ import annotations

from enum import StrEnum


class GoalStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


class SprintStatus(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    CHECKPOINT = "CHECKPOINT"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


class AgentStatus(StrEnum):
    """Status of an agent. STARTING, IDLE and OFFLINE are written by its supervisor, the others follow from tasks.

    STARTING: its supervisor has registered it and is not ready to take tasks yet. WAITING is shown, not stored.
    """

    STARTING = "STARTING"
    IDLE = "IDLE"
    WORKING = "WORKING"
    REVIEWING = "REVIEWING"
    WAITING = "WAITING"
    HANDOFF = "HANDOFF"
    OFFLINE = "OFFLINE"


class WakeTrigger(StrEnum):
    """Reason to wake a planner."""

    INITIAL_PLANNING = "INITIAL_PLANNING"
    BREAKER_TRIPPED = "BREAKER_TRIPPED"
    IMMEDIATE_DISCOVERY = "IMMEDIATE_DISCOVERY"
    HYPOTHESIS_EXHAUSTION = "HYPOTHESIS_EXHAUSTION"
    BLOCKED_TASKS = "BLOCKED_TASKS"
    INTEGRATION_FAILED = "INTEGRATION_FAILED"
    SPRINT_COMPLETE = "SPRINT_COMPLETE"


class StartupCheck(StrEnum):
    """Check at the start of a session, as a hand-off names the one that failed."""

    ENVIRONMENT = "environment"
    TASK = "task"
    LEASE = "lease"
    WORKTREE = "worktree"
    COMMIT = "commit"
    SESSION = "session"
    """Its supervisor could not start it, or it ended before it had read its brief."""


class Pattern(StrEnum):
    """Pattern of failure that trips the circuit breaker, as ``config.breaker.severity`` and its history spell it."""

    REPEATED_ERROR = "repeated_error"
    REVIEW_LOOP = "review_loop"
    TRADE_OFFS = "trade_offs"
    SPEC_AMBIGUITY = "spec_ambiguity"
    INTEGRATION_FAILURES = "integration_failures"
    NO_MERGES = "no_merges"
    TESTS_WEAKENED = "tests_weakened"


SEVERITIES = ("warn", "checkpoint", "halt")
"""What a trip of the circuit breaker does: nothing, or it sets CHECKPOINT, or PAUSE."""


class WorkKind(StrEnum):
    """Kind of an agent's work, as ``CurrentWork``, the record of a run and the ledger name it."""

    WORK = "work"
    """The claim of a task by a coder."""
    REVIEW = "review"
    PLANNING = "planning"
