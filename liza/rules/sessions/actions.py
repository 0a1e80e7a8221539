"""Actions of a supervisor. The supervisor loop carries out one at a time."""

from __future__ import annotations

from dataclasses import dataclass

from liza.rules.sessions import message_rules
from liza.rules.sessions.model_silence import ModelSilence
from liza.rules.sessions.session_ends import STOP_RULES, StopReason


@dataclass(frozen=True)
class Wait:
    """Do nothing; decide again after at most ``seconds`` (None: the poll interval)."""

    why: str
    seconds: float | None = None


@dataclass(frozen=True)
class Claim:
    """Claim this task in two phases."""

    task: str


@dataclass(frozen=True)
class ClaimReview:
    task: str


@dataclass(frozen=True)
class ClaimPlanning:
    trigger: str


@dataclass(frozen=True)
class StartSession:
    """Prepare the worktree, write the brief, and start the program of this run."""

    run: str


@dataclass(frozen=True)
class Resume:
    """Record the next run on the agent's claim. ``StartSession`` starts it on a later pass."""

    task: str
    run: str


@dataclass(frozen=True)
class StopSession:
    """End the session: SIGTERM first, SIGKILL later. The reason is recorded, so that an adopting supervisor has it.

    ``detail``: the reason as a sentence, for people; empty: the sentence of the reason.
    """

    run: str
    reason: StopReason
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The reason for people."""
        return self.detail or STOP_RULES[self.reason].sentence


@dataclass(frozen=True)
class ConcludeSession:
    """Record the outcome of a session that is over on the board."""

    run: str


@dataclass(frozen=True)
class RenewLease:
    """Renew the lease of the run (heartbeat)."""

    run: str


@dataclass(frozen=True)
class BlockTask:
    """Block the supervisor's own task, because a limit is reached."""

    task: str
    reason: str


@dataclass(frozen=True)
class Merge:
    """Start a merger for this task."""

    task: str


@dataclass(frozen=True)
class GiveBack:
    """Give back the work that the agent holds."""

    run: str


@dataclass(frozen=True)
class DeliverMessage:
    """Carry out the next delivery step for a message to the session."""

    run: str
    step: message_rules.DeliveryStep


@dataclass(frozen=True)
class Remind:
    """Remind a session that waits at its terminal of the commands that close it."""

    run: str


@dataclass(frozen=True)
class Warn:
    """Tell the session and the person that it makes no progress, before it is ended for that reason."""

    run: str
    why: str


@dataclass(frozen=True)
class ReportQuestion:
    """Tell the person which question the program shows at its terminal; None: it shows none any more."""

    run: str
    question: str | None


@dataclass(frozen=True)
class NoteModelSilence:
    """Record for ``liza status`` why the session gets no answer from its model; None: it gets answers again."""

    run: str
    silence: ModelSilence | None


@dataclass(frozen=True)
class PauseCrew:
    """Set the PAUSE signal, because the budget is used up; a person removes it."""

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
