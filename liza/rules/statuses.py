"""Statuses of the goal, the sprint and the agents, and the triggers that wake a planner, as the board spells them.

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
    """Status of an agent. STARTING, WAITING and OFFLINE are written by its supervisor, the others follow from tasks."""

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
    IMMEDIATE_DISCOVERY = "IMMEDIATE_DISCOVERY"
    HYPOTHESIS_EXHAUSTION = "HYPOTHESIS_EXHAUSTION"
    BLOCKED_TASKS = "BLOCKED_TASKS"
    INTEGRATION_FAILED = "INTEGRATION_FAILED"
    SPRINT_COMPLETE = "SPRINT_COMPLETE"
