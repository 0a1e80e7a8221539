"""Actions of a supervisor. The supervisor loop carries out one at a time."""

from __future__ import annotations

from liza.briefs.rules import message_rules
from liza.model.session_ends import STOP_RULES, StopReason
from liza.model.value_classes import Value
from liza.programs.rules.model_silence import ModelSilence


class Wait(Value):
    """Do nothing; decide again after at most ``seconds`` (None: the poll interval)."""

    why: str
    seconds: float | None = None


class Claim(Value):
    """Claim this task in two phases."""

    task: str


class ClaimReview(Value):
    task: str


class ClaimPlanning(Value):
    trigger: str


class StartSession(Value):
    """Prepare the worktree, write the brief, and start the program of this run."""

    run: str


class Resume(Value):
    """Record the next run on the agent's claim. ``StartSession`` starts it on a later pass."""

    task: str
    run: str


class StopSession(Value):
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


class ConcludeSession(Value):
    """Record the outcome of a session that is over on the board."""

    run: str


class RenewLease(Value):
    """Renew the lease of the run (heartbeat)."""

    run: str


class BlockTask(Value):
    """Block the supervisor's own task, because a limit is reached."""

    task: str
    reason: str


class Merge(Value):
    """Start a merger for a task, or for the branch of an epic."""

    subject: str


class RenewProof(Value):
    """Prove the tests again: files that define them have changed, and the crew is idle."""


class GiveBack(Value):
    """Give back the work that the agent holds."""

    run: str


class DeliverMessage(Value):
    """Carry out the next delivery step for a message to the session."""

    run: str
    step: message_rules.DeliveryStep


class Remind(Value):
    """Remind a session that waits at its terminal of the commands that close it."""

    run: str


class Warn(Value):
    """Tell the session and the person that it makes no progress, before it is ended for that reason."""

    run: str
    why: str


class AskHandoff(Value):
    """Ask the session to hand off at the next edge of its turn: ``usage`` of its context window is used, 0 to 1."""

    run: str
    usage: float


class ReportQuestion(Value):
    """Tell the person which question the program shows at its terminal; None: it shows none any more."""

    run: str
    question: str | None


class NoteModelSilence(Value):
    """Record for ``liza status`` why the session gets no answer from its model; None: it gets answers again."""

    run: str
    silence: ModelSilence | None


class PauseCrew(Value):
    """Set the PAUSE signal, because the budget is used up; a person removes it."""

    why: str


class SetCheckpoint(Value):
    """Set the CHECKPOINT signal, because planners have added tasks often enough; a person removes it."""

    why: str


class Exit(Value):
    code: int
    why: str


Action = (
    Wait
    | AskHandoff
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
    | RenewProof
    | GiveBack
    | DeliverMessage
    | Remind
    | Warn
    | ReportQuestion
    | NoteModelSilence
    | PauseCrew
    | SetCheckpoint
    | Exit
)
