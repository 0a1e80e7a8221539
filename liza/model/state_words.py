"""The words in which people read the state of a task and of an agent. Pure.

`--json`, the board and the fields of `task show` have the words of the board instead: ``model.Status``,
``AgentStatus`` and ``AgentState``. specs/glossary.md has this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from liza.model.agent_states import AgentState
from liza.model.model import Status
from liza.model.statuses import AgentStatus


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
