"""Why Liza ends a session, how a session can end, and what follows from each: two enums and one table for each. Pure.

The values of the enums are also what run directories, the ledger and the task's history hold.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from liza.model.history_events import CLOSING_EVENTS, HistoryEvent
from liza.model.model import State


class SessionOutcome(StrEnum):
    """How a session ended."""

    FINISHED = "finished"
    HANDED_OFF = "handed off"
    CRASHED = "crashed"
    LOOPED = "looped"
    STOPPED = "stopped"
    HELD_UP = "held up"
    QUOTA = "quota"
    UNANSWERED = "unanswered"
    UNUSABLE = "unusable"
    CONTEXT_FULL = "context full"
    TOO_OLD = "too old"


class Fault(StrEnum):
    """How an end counts against the task."""

    CRASH = "crash"
    """It counts as a crash, and the next session as another try."""
    TRY = "try"
    """The next session counts as another try. Without progress, it also counts as an idle session."""
    NONE = "none"
    """It is not the session's fault: the next session continues the same try."""


class RestKind(StrEnum):
    """What determines how long the agent rests before its next session."""

    NONE = "none"
    AFTER_HANDOFF = "after handoff"
    BACKOFF = "backoff"
    USAGE_LIMIT = "usage limit"
    NO_ANSWER = "no answer"
    UNTIL_PERSON_ACTS = "until a person acts"


class OutcomeRule(NamedTuple):
    """What follows from an outcome.

    ``event``: event in the task's history. ``reported``: the supervisor prints it even if the agent holds no task.
    ``ends_failures``: failures before it no longer count as failures in a row.
    """

    event: HistoryEvent
    fault: Fault
    rest: RestKind = RestKind.NONE
    reported: bool = False
    ends_failures: bool = False


OUTCOME_RULES = {
    SessionOutcome.FINISHED: OutcomeRule(HistoryEvent.ENDED, Fault.TRY, ends_failures=True),
    SessionOutcome.HANDED_OFF: OutcomeRule(HistoryEvent.ENDED, Fault.TRY, RestKind.AFTER_HANDOFF, ends_failures=True),
    SessionOutcome.CRASHED: OutcomeRule(HistoryEvent.CRASH, Fault.CRASH, RestKind.BACKOFF, reported=True),
    SessionOutcome.LOOPED: OutcomeRule(HistoryEvent.ENDED, Fault.TRY, RestKind.BACKOFF),
    SessionOutcome.STOPPED: OutcomeRule(HistoryEvent.STOP, Fault.NONE),
    SessionOutcome.HELD_UP: OutcomeRule(HistoryEvent.HELD_UP, Fault.NONE, RestKind.BACKOFF, reported=True),
    SessionOutcome.QUOTA: OutcomeRule(HistoryEvent.QUOTA, Fault.NONE, RestKind.USAGE_LIMIT, reported=True),
    SessionOutcome.UNANSWERED: OutcomeRule(HistoryEvent.UNANSWERED, Fault.NONE, RestKind.NO_ANSWER, reported=True),
    SessionOutcome.UNUSABLE: OutcomeRule(HistoryEvent.UNUSABLE, Fault.NONE, RestKind.UNTIL_PERSON_ACTS, reported=True),
    SessionOutcome.CONTEXT_FULL: OutcomeRule(
        HistoryEvent.CONTEXT_FULL, Fault.NONE, RestKind.AFTER_HANDOFF, reported=True
    ),
    SessionOutcome.TOO_OLD: OutcomeRule(HistoryEvent.TOO_OLD, Fault.NONE, RestKind.AFTER_HANDOFF, reported=True),
}


class StopReason(StrEnum):
    """Why Liza ends a session."""

    STOP = "stop"
    """A person or a signal stops the agent, or the budget is used up."""
    OVER = "over"
    """It has run its closing command, its turn is over, and its program does not exit."""
    LINGERING = "lingering"
    """It has run its closing command long ago, and its turn does not end."""
    FENCED = "fenced"
    """Its task belongs to another run."""
    ORPHANED = "orphaned"
    """It has no supervisor, and its lease has expired."""
    IDLE = "idle"
    """It waits at the prompt without a closing command. A program without a terminal exits by itself in this case."""
    END_REPORTED = "end reported"
    """Its runtime reported its end, and its process does not exit."""
    NO_PROGRESS = "no progress"
    NOT_READY = "not ready"
    """It has not read its brief in time."""
    HUNG = "hung"
    """No activity."""
    PERSON_NEEDED = "person needed"
    """Its program waits for a person, and so would the next session."""
    LOGIN_REFUSED = "login refused"
    MODEL_REFUSED = "model refused"
    """The program has no such model."""
    USAGE_LIMIT = "usage limit"
    NO_ANSWER = "no answer"
    """Its model gives no usable answer."""
    CONTEXT_FULL = "context full"
    """The context window of its program is nearly full."""
    TOO_OLD = "too old"
    """It is idle and older than ``config.session_max``."""


class StopRule(NamedTuple):
    """What follows from a stop reason, unless the session has run a closing command.

    ``outcome``: how the end counts. ``sentence``: the reason for people, if the caller gives no details.
    ``deliberate``: it says nothing about the session or its program. ``final``: it outranks what the program's output
    says about its model. ``short_grace``: nothing of the session is needed any more, so the program gets less time to
    exit.
    """

    outcome: SessionOutcome
    sentence: str
    deliberate: bool = False
    final: bool = False
    short_grace: bool = False


STOP_RULES = {
    StopReason.STOP: StopRule(SessionOutcome.STOPPED, "stop", deliberate=True, final=True),
    StopReason.OVER: StopRule(SessionOutcome.FINISHED, "over", deliberate=True, final=True, short_grace=True),
    StopReason.LINGERING: StopRule(
        SessionOutcome.FINISHED, "its work is closed, and its turn does not end", deliberate=True, final=True
    ),
    StopReason.FENCED: StopRule(SessionOutcome.FINISHED, "fenced", deliberate=True, final=True, short_grace=True),
    StopReason.ORPHANED: StopRule(SessionOutcome.CRASHED, "orphaned"),
    StopReason.IDLE: StopRule(
        SessionOutcome.FINISHED, "it is idle at its terminal and has run no closing command", final=True
    ),
    StopReason.END_REPORTED: StopRule(
        SessionOutcome.FINISHED, "its runtime reported its end, but its process did not exit", final=True
    ),
    StopReason.NO_PROGRESS: StopRule(SessionOutcome.LOOPED, "no progress", final=True),
    StopReason.NOT_READY: StopRule(SessionOutcome.CRASHED, "not ready"),
    StopReason.HUNG: StopRule(SessionOutcome.CRASHED, "hung"),
    StopReason.PERSON_NEEDED: StopRule(SessionOutcome.UNUSABLE, "its program waits for a person"),
    StopReason.LOGIN_REFUSED: StopRule(SessionOutcome.UNUSABLE, "the model refuses the program's login", final=True),
    StopReason.MODEL_REFUSED: StopRule(SessionOutcome.UNUSABLE, "it has no such model", final=True),
    StopReason.USAGE_LIMIT: StopRule(SessionOutcome.QUOTA, "a usage limit is reached", final=True),
    StopReason.NO_ANSWER: StopRule(SessionOutcome.UNANSWERED, "no answer from its model", final=True),
    StopReason.CONTEXT_FULL: StopRule(SessionOutcome.CONTEXT_FULL, "its context window is nearly full", final=True),
    StopReason.TOO_OLD: StopRule(SessionOutcome.TOO_OLD, "it is older than config.session_max", final=True),
}


class SilenceKind(StrEnum):
    """Why a model gives no answer. Presets name all but the last in their failure patterns."""

    LOGIN = "login"
    MODEL = "model"
    QUOTA = "quota"
    SERVER = "server"
    BROKEN = "broken"
    SILENT = "silent"


_REASON_OF_SILENCE = {
    SilenceKind.LOGIN: StopReason.LOGIN_REFUSED,
    SilenceKind.MODEL: StopReason.MODEL_REFUSED,
    SilenceKind.QUOTA: StopReason.USAGE_LIMIT,
}


def stop_reason_of(silence: SilenceKind) -> StopReason:
    """Return the reason for which a session is ended whose model gives no answer."""
    return _REASON_OF_SILENCE.get(silence, StopReason.NO_ANSWER)


def count_events(state: State, run: str) -> int:
    """Return the number of the run's events in the histories of tasks."""
    return sum(event.run == run for task in state.tasks for event in task.history)


def has_closing_event(state: State, run: str) -> bool:
    """Whether the board has a closing event of the run. The board has it before the run's exit code file has."""
    return any(note.event == run for note in state.goal.alignment_history) or any(
        event.run == run and event.event in CLOSING_EVENTS for task in state.tasks for event in task.history
    )
