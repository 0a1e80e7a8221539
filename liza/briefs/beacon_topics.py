"""The topic of a beacon: why a session exists, in one word for the agent and for a reader of logs. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from liza.briefs.brief_context import BriefContext
from liza.model.history_events import HistoryEvent
from liza.model.session_ends import SessionOutcome
from liza.model.statuses import WakeTrigger
from liza.model.transitions import has_done
from liza.tasks.rules.conversations import earlier_runs
from liza.text.times import format_time

_HANDED_OVER = (HistoryEvent.HANDOFF, HistoryEvent.CONTEXT_FULL, HistoryEvent.TOO_OLD)


class BeaconTopic(StrEnum):
    """Why a session exists, as its beacon names it before the task or the wake-up."""

    COLD_START = "cold-start"
    """There is nothing before it: the first planning, or a program that a person starts without a task."""
    WAKE = "wake"
    """A planner was woken."""
    ASSIGNED = "assigned"
    """A coder has claimed the task, also after a rejection or a failed merge."""
    REVIEW = "review"
    """A reviewer has claimed the review."""
    HAND_OFF = "hand-off"
    """The session before it handed over: its context or its time was used up, or it ended with 42."""
    RESUMED = "resumed"
    """It continues a conversation, or a task whose last session ended without a closing command."""


CONTINUED_TOPICS = (BeaconTopic.COLD_START, BeaconTopic.HAND_OFF, BeaconTopic.RESUMED)
"""Topics that a supervisor prints: no news of the task says them."""


def format_beacon(recipient: str, sender: str, time: datetime, topic: str, run: str) -> str:
    """Return the first line of a brief. ``topic`` is a BeaconTopic, a colon, and what it is about."""
    return f"[liza] {recipient} <- {sender} • {format_time(time)} • {topic} • run:{run}"


def choose_topic(context: BriefContext) -> BeaconTopic:
    """Return why the session of ``context`` exists."""
    if context.previous_outcome is SessionOutcome.HANDED_OFF and not _is_new_claim(context):
        return BeaconTopic.HAND_OFF
    if context.task is None:
        is_first = context.wake_trigger in ("", WakeTrigger.INITIAL_PLANNING)
        return BeaconTopic.COLD_START if is_first else BeaconTopic.WAKE
    if context.role == "code-reviewer":
        return BeaconTopic.REVIEW
    if context.continues is not None:
        return BeaconTopic.RESUMED
    if _is_new_claim(context):
        return BeaconTopic.ASSIGNED
    last = next(iter(earlier_runs(context.task, context.run)), None)
    if last is None:
        return BeaconTopic.ASSIGNED
    handed_over = any(has_done(context.task, event, last) for event in _HANDED_OVER)
    return BeaconTopic.HAND_OFF if handed_over else BeaconTopic.RESUMED


def _is_new_claim(context: BriefContext) -> bool:
    """Return whether a coder claimed the task with this run, instead of going on with an earlier claim."""
    return context.task is not None and has_done(context.task, HistoryEvent.CLAIM, context.run)
