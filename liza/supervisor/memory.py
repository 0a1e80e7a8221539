"""State that a supervisor keeps between two observations. It may be lost: a new supervisor reads the same files."""

from __future__ import annotations

from liza.model.backoff import ClockWatch, FailureStreak, MergeTries
from liza.model.spending import LedgerEntry
from liza.model.value_classes import Mutable, Value, field
from liza.programs.session.failure_patterns import FailureWatch
from liza.supervisor.jobs import Job
from liza.supervisor.rules.session_facts import ActivityWatch, IdleTime, ModelAnswers, QuestionTime, SessionTimes
from liza.usage.meter import MeterThread
from liza.usage.rules.account_rules import NoneUsable


class SessionMemory(Mutable):
    """What was observed of one session."""

    run: str
    times: SessionTimes
    activity: ActivityWatch
    answers: ModelAnswers = field(default_factory=ModelAnswers)
    idle: IdleTime = field(default_factory=IdleTime)
    question: QuestionTime = field(default_factory=QuestionTime)
    listener: FailureWatch | None = None
    """Reads the program's output as it grows."""
    meter_thread: MeterThread | None = None
    """Measures its tool calls and tokens."""
    ready_evidence: str | None = None
    """The first sign that it was ready."""
    warned: bool = False
    """Whether it was warned that it makes no progress, and still makes none."""
    asked_handoff: bool = False
    """Whether it was asked to hand off, and its context window is still as full."""
    quoted: tuple[str, ...] | None = None
    """The ids of the messages in its brief; None: read them again."""
    is_unlogged: bool = False
    """Whether its terminal is not being logged."""


class UnusableProgram(Value):
    """Why no session of the program can work until a person acts.

    ``needs_person``: a person has to start the program once, to answer it or to log in. ``login_refused``: its model
    refused its login. ``model_refused``: it has no such model.
    """

    reason: str
    needs_person: bool = False
    login_refused: bool = False
    model_refused: bool = False


class FailedSetUp(Value):
    """Why the last set-up failed, in one line, and the command that shows or resolves it."""

    reason: str
    next: str


class Memory(Mutable):
    """State of one supervisor. Nothing here is a fact about the crew."""

    clock: ClockWatch
    only: str | None = None
    """It takes this task, and those that it depends on; None: any."""
    leaving: bool = False
    retiring: bool = False
    force: bool = False
    streak: FailureStreak = field(default_factory=FailureStreak)
    merges: MergeTries = field(default_factory=MergeTries)
    session: SessionMemory | None = None
    own_run: str | None = None
    """The run whose session this supervisor started or adopted."""
    job: Job | None = None
    has_ended_turn: bool = False
    """Whether its merger has ended, and the other supervisors may not know that the turn is free."""
    proof_tried_after: tuple[str, ...] = ()
    """``config.proof.changed`` when its last proof of the tests ended without renewing it."""
    unusable: UnusableProgram | None = None
    failed_set_up: FailedSetUp | None = None
    """None once a set-up succeeded."""
    account_wait: NoneUsable | None = None
    """Why no account of the program can be used, as it was last written for `status`."""
    ledger: tuple[object, tuple[LedgerEntry, ...]] = (None, ())
    """The file's stamp and the entries of the last read of the ledger."""

    def forget_session(self) -> None:
        """Stop to follow the session: it has ended."""
        if self.session is not None and self.session.meter_thread is not None:
            self.session.meter_thread.stop()
        self.session = None

    def session_of(self, run: str) -> SessionMemory | None:
        """Return the memory of this run's session; None if it is not followed."""
        return self.session if self.session is not None and self.session.run == run else None


class LoopMemory(Mutable):
    """What the loop of a supervisor remembers between two passes.

    ``failed_passes``: passes in a row that failed. ``repository_changed_at``: when a change of the repository was last
    noticed. ``alarms_due_at``: when to check for alarms without an event. ``notices_due_at``: no process that sends
    notices is started before. ``ready_run``, ``waiting_run``,
    ``end_watched_run`` and ``output_run``: the run that was reported as ready, as ready by its screen alone, whose end
    is awaited, and whose output is watched.
    """

    repository_changed_at: float
    alarms_due_at: float = float("inf")
    notices_due_at: float = 0.0
    last_notice: str = ""
    failed_passes: int = 0
    last_action: tuple[object, int] | None = None
    ready_run: str | None = None
    waiting_run: str | None = None
    end_watched_run: str | None = None
    output_run: str | None = None
