"""What a supervisor can do next: the loop carries out one of these at a time."""

from __future__ import annotations

from dataclasses import dataclass

from liza.rules.sessions import message_rules
from liza.rules.sessions.model_silence import ModelSilence


@dataclass(frozen=True)
class Wait:
    """Nothing to do; look again after ``seconds`` at the latest (None: the poll interval)."""

    why: str
    seconds: float | None = None


@dataclass(frozen=True)
class Claim:
    """Take this task in two phases."""

    task: str


@dataclass(frozen=True)
class ClaimReview:
    task: str


@dataclass(frozen=True)
class ClaimPlanning:
    trigger: str


@dataclass(frozen=True)
class StartSession:
    """Prepare the worktree, write the brief, start the program: the first session of this run."""

    run: str


@dataclass(frozen=True)
class Resume:
    """Take the next run on the claim that is held."""

    task: str
    run: str


@dataclass(frozen=True)
class StopSession:
    """End the session: politely first, then firmly. ``why`` is kept beside it, so that an adopter knows.

    ``unusable``: its program waits for a person, and the next session would. ``model`` is the kind of failure where its
    model gives no answer.
    """

    run: str
    why: str
    needs_person: bool = False
    failure_kind: str = ""


@dataclass(frozen=True)
class ConcludeSession:
    """The session is over: tell the board what came of it."""

    run: str


@dataclass(frozen=True)
class RenewLease:
    """Heartbeat: extend what the run holds."""

    run: str


@dataclass(frozen=True)
class BlockTask:
    """A limit of this supervisor's own task is reached."""

    task: str
    reason: str


@dataclass(frozen=True)
class Merge:
    """Start a merger for the best approved task."""

    task: str


@dataclass(frozen=True)
class GiveBack:
    """Leaving: give back what is held."""

    run: str


@dataclass(frozen=True)
class DeliverMessage:
    """Do this for a message to the session."""

    run: str
    step: message_rules.DeliveryStep


@dataclass(frozen=True)
class Remind:
    """Tell the session that waits at its terminal in which ways it can end."""

    run: str


@dataclass(frozen=True)
class Warn:
    """Tell the session, and the person, that it makes no progress, before it is ended for that."""

    run: str
    why: str


@dataclass(frozen=True)
class ReportQuestion:
    """Tell the person what the session's program asks at its terminal; None: that it asks no more."""

    run: str
    question: str | None


@dataclass(frozen=True)
class NoteModelSilence:
    """Keep, for ``status``, why the session gets no answer from its model; None: that it gets answers."""

    run: str
    silence: ModelSilence | None


@dataclass(frozen=True)
class PauseCrew:
    """Put PAUSE up for a person: no more may be spent."""

    why: str


@dataclass(frozen=True)
class Exit:
    code: int
    why: str


Action = (
    Wait
    | Claim
    | ClaimReview
    | ClaimPlanning
    | StartSession
    | Resume
    | StopSession
    | ConcludeSession
    | RenewLease
    | BlockTask
    | Merge
    | GiveBack
    | DeliverMessage
    | Remind
    | Warn
    | ReportQuestion
    | NoteModelSilence
    | PauseCrew
    | Exit
)
