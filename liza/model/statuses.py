"""Statuses and kinds that the board spells as words, and the words in which people read them.

`--json`, the board and the fields of `task show` have the words of the board: ``model.Status``, ``AgentStatus`` and
``AgentState``. specs/glossary.md has the table of the words for people.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from liza.model.agent_states import AgentState
from liza.model.errors import UsageError
from liza.model.model import Anomaly, Status
from liza.text.formats import did_you_mean


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
    OPEN_DRAFTS = "OPEN_DRAFTS"
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


class TaskWord(StrEnum):
    """State of a task, in the order in which the words are counted."""

    MERGED = "merged"
    WORKING = "working"
    IN_REVIEW = "in review"
    TO_FIX = "to fix"
    ASKS = "asks"
    TO_DO = "to do"
    GIVEN_UP = "given up"


class AgentWord(StrEnum):
    """State of an agent. A time of day follows WAITS_UNTIL."""

    WORKING = "working"
    IDLE = "idle"
    WAITS_FOR_YOU = "waits for you"
    WAITS_UNTIL = "waits until"
    STUCK = "stuck"
    OFF = "off"


TASK_WORDS: Final[Mapping[Status, TaskWord]] = {
    Status.DRAFT: TaskWord.TO_DO,
    Status.UNCLAIMED: TaskWord.TO_DO,
    Status.CLAIMED: TaskWord.WORKING,
    Status.READY_FOR_REVIEW: TaskWord.IN_REVIEW,
    Status.APPROVED: TaskWord.IN_REVIEW,
    Status.REJECTED: TaskWord.TO_FIX,
    Status.INTEGRATION_FAILED: TaskWord.TO_FIX,
    Status.BLOCKED: TaskWord.ASKS,
    Status.MERGED: TaskWord.MERGED,
    Status.SUPERSEDED: TaskWord.GIVEN_UP,
    Status.ABANDONED: TaskWord.GIVEN_UP,
}
"""Word of each status of a task. What a word leaves out is the reason beside it."""

STATE_WORDS: Final[Mapping[AgentState, AgentWord]] = {
    AgentState.WORKING: AgentWord.WORKING,
    AgentState.STARTING: AgentWord.WORKING,
    AgentState.IDLE: AgentWord.IDLE,
    AgentState.STALLED: AgentWord.STUCK,
    AgentState.ZOMBIE: AgentWord.STUCK,
    AgentState.STUCK: AgentWord.STUCK,
}
"""Word of each operating state of an agent that holds work or has a session."""

AGENT_WORDS: Final[Mapping[AgentStatus, AgentWord]] = {
    AgentStatus.STARTING: AgentWord.IDLE,
    AgentStatus.IDLE: AgentWord.IDLE,
    AgentStatus.WORKING: AgentWord.WORKING,
    AgentStatus.REVIEWING: AgentWord.WORKING,
    AgentStatus.HANDOFF: AgentWord.WORKING,
    AgentStatus.WAITING: AgentWord.WAITS_UNTIL,
    AgentStatus.OFFLINE: AgentWord.OFF,
}
"""Word of each status of an agent, if nothing more is known."""


STATUS_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("done", "complete", "completed", "closed", "finished", "landed", "passed"), Status.MERGED.value),
    **dict.fromkeys(
        ("open", "new", "todo", "pending", "planned", "queued", "backlog", "available"), Status.UNCLAIMED.value
    ),
    **dict.fromkeys(
        ("active", "doing", "in-progress", "wip", "running", "started", "assigned", "working"), Status.CLAIMED.value
    ),
    **dict.fromkeys(("review", "in-review", "submitted", "reviewing", "ready"), Status.READY_FOR_REVIEW.value),
    **dict.fromkeys(("accepted", "ok"), Status.APPROVED.value),
    **dict.fromkeys(("failed", "to-fix", "changes-requested", "returned"), Status.REJECTED.value),
    **dict.fromkeys(("conflict", "merge-failed", "red"), Status.INTEGRATION_FAILED.value),
    **dict.fromkeys(("asks", "waiting", "stuck", "question", "on-hold"), Status.BLOCKED.value),
    **dict.fromkeys(("cancelled", "canceled", "dropped", "deleted", "wontfix", "given-up"), Status.ABANDONED.value),
    **dict.fromkeys(("replaced", "split"), Status.SUPERSEDED.value),
}
"""Statuses by what they are called elsewhere."""


def goal_word(status: str) -> str:
    """Return the word for the status of the goal, or of a sprint: `in progress`, `completed`, `aborted`."""
    return status.lower().replace("_", " ")


def task_word(status: str) -> str:
    """Return the word for a status of a task; a text that is no status is returned unchanged."""
    return TASK_WORDS[Status(status)].value if status in Status.__members__ else status


def describe_task(task_id: str, status: str) -> str:
    """Return what state a task is in, as a sentence can begin: `t1 is in review`, `t1 asks`."""
    word = task_word(status)
    return f"{task_id} asks" if word == TaskWord.ASKS else f"{task_id} is {word}"


def find_statuses(word: str) -> frozenset[Status]:
    """Return the statuses that a word means, also with ``-`` or ``_`` between its parts; empty for another word."""
    wanted = word.lower().replace("-", " ").replace("_", " ")
    return frozenset(status for status, name in TASK_WORDS.items() if name.value == wanted)


def agent_word(status: str, state: str | None, *, is_asking: bool, is_halted: bool) -> AgentWord:
    """Return the word for an agent.

    ``is_asking``: its program asks a person. ``is_halted``: a signal of the crew is set, so nothing is started. An
    agent without work is idle, also while its question about another task waits.
    """
    by_status = AGENT_WORDS.get(AgentStatus(status), AgentWord.IDLE) if status in AgentStatus.__members__ else None
    if state == AgentState.ZOMBIE:
        # Its session runs without work. A supervisor ends it soon; without one it goes on.
        return STATE_WORDS[AgentState.ZOMBIE] if by_status is AgentWord.OFF else AgentWord.WORKING
    if by_status in (AgentWord.OFF, AgentWord.WAITS_UNTIL):
        return by_status
    if is_asking:
        return AgentWord.WAITS_FOR_YOU
    if state is None:
        return by_status or AgentWord.IDLE
    if state == AgentState.STALLED and is_halted:
        return AgentWord.IDLE
    if state in (AgentState.STUCK, AgentState.STARTING) and by_status is not AgentWord.WORKING:
        return AgentWord.IDLE
    return STATE_WORDS[AgentState(state)]


SESSION_FAILED: Final = "session_failed"
"""Kind of anomaly that Liza adds when a session ends with a failure of its own."""
ANOMALY_TYPES = (
    "retry_loop",
    "trade_off",
    "spec_ambiguity",
    "external_blocker",
    "assumption_violated",
    "scope_deviation",
    "workaround",
    "debt_created",
    "spec_changed",
    "hypothesis_exhaustion",
    "spec_gap",
    "review_deadlock",
    "system_ambiguity",
    "tests_weakened",
    SESSION_FAILED,
)
_NEEDED_DETAILS = {
    "retry_loop": ("count", "error_pattern"),
    "trade_off": ("what", "why", "debt_created"),
    "external_blocker": ("blocker_service",),
    "assumption_violated": ("assumption", "reality"),
    "system_ambiguity": ("protocol_section", "question"),
}


def missing_details(anomaly: Anomaly) -> tuple[str, ...]:
    """Return the names of the details that this kind of anomaly needs and that are missing or blank."""
    needed = _NEEDED_DETAILS.get(anomaly.type, ())
    return tuple(name for name in needed if not str(anomaly.details.get(name, "")).strip())


def check_anomaly(anomaly: Anomaly) -> None:
    """Raise UsageError if the kind is unknown or a detail that it needs is missing."""
    if anomaly.type not in ANOMALY_TYPES:
        raise UsageError(
            f"{anomaly.type!r} is not a kind of report; the kinds are: discovery, {', '.join(ANOMALY_TYPES)}"
            + did_you_mean(anomaly.type, ("discovery", *ANOMALY_TYPES)),
            "liza report --help",
        )
    missing = missing_details(anomaly)
    if missing:
        raise UsageError(
            f"a report of {anomaly.type} needs the details {', '.join(missing)}",
            f'liza report {anomaly.type} "…" ' + " ".join(f'--detail {name}="…"' for name in missing),
        )
