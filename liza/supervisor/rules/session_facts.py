"""The facts that a supervisor's decision depends on, and what it remembers of a session.

Pure: the time is an argument.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from liza.briefs.rules.message_rules import DeliveryStep
from liza.model.model import State
from liza.model.value_classes import Value, replace
from liza.programs.rules.model_silence import ModelSilence
from liza.tasks.rules.picking import Evidence
from liza.usage.rules.loop_detection import Stuck

_NO_EVIDENCE = Evidence()


class SessionState(StrEnum):
    """State of the session of a run."""

    NEVER = "never started"
    LIVING = "living"
    OVER = "over"


class JobKind(StrEnum):
    """What a supervisor runs as a child process: a set-up, a merge, or the proof of the tests."""

    SET_UP = "set-up"
    MERGE = "merge"
    PROOF = "proof"


class StartFacts(Value):
    """How far the start of a session has come.

    ``timeout``: seconds within which it has to be ready. ``never_ready``: why it will never be. ``needs_person``: nor
    will the next session be, until a person acts.
    """

    is_ready: bool = False
    timeout: float = 60.0
    never_ready: str | None = None
    needs_person: bool = False


class ModelFacts(Value):
    """Why the session's model gives no answer, and the kind and text that the person was told."""

    silence: ModelSilence | None = None
    reported: tuple[str, str] | None = None


class IdleFacts(Value):
    """``seconds``: how long the program has waited for a prompt since it became idle or was last reminded."""

    seconds: float = 0.0
    reminders: int = 0
    is_waiting: bool = False


class QuestionFacts(Value):
    """The question that the session's screen shows to a person, and the one that the person was told of."""

    shown: str | None = None
    reported: str | None = None


class LoopFacts(Value):
    """Why the session makes no progress, and whether the session was warned."""

    stuck: Stuck | None = None
    warned: bool = False


class ContextFacts(Value):
    """``usage``: the used part of the context window, 0 to 1, None if it is not reported.

    ``asked``: whether the session was asked to hand off.
    """

    usage: float | None = None
    asked: bool = False


class SessionAges(Value):
    """Seconds of the monotonic clock since events of the session. ``closing_command``: None before it."""

    start: float = 0.0
    activity: float = 0.0
    heartbeat: float = 0.0
    closing_command: float | None = None


class SessionFacts(Value):
    """Observations of the agent's newest session that is not concluded.

    ``is_turn_over``: its turn ended after its closing command: it does no more work, but does not exit.
    ``end_reported``: seconds since its runtime reported its end; None without such a report. ``next_check``: seconds
    until it is to be checked for activity again; None if that is due to no time of its own.
    """

    run: str
    state: SessionState
    start: StartFacts = StartFacts()
    model: ModelFacts = ModelFacts()
    idle: IdleFacts = IdleFacts()
    question: QuestionFacts = QuestionFacts()
    loop: LoopFacts = LoopFacts()
    context: ContextFacts = ContextFacts()
    ages: SessionAges = SessionAges()
    has_terminal: bool = False
    is_turn_over: bool = False
    end_reported: float | None = None
    next_check: float | None = None


class SupervisorFacts(Value):
    """Facts of the supervisor itself.

    ``retiring``: it exits as soon as its agent holds no work. ``crash_loop``: why its crashed sessions make it exit.
    ``rest_seconds``: until the next session, of whatever task, may start.
    ``unusable_reason``: why no session of its program can work until a person acts. ``failed_set_up``: why the last
    set-up failed. ``since_clock_gap``: seconds since the machine slept. ``only``: it takes this task, and those that it
    depends on.
    """

    leaving: bool = False
    retiring: bool = False
    crash_loop: str | None = None
    rest_seconds: float = 0.0
    unusable_reason: str | None = None
    failed_set_up: str | None = None
    since_clock_gap: float | None = None
    only: str | None = None


class MergeFacts(Value):
    """Whether a merger may be started, a task whose tested candidate no longer waits for a person's files, and whether
    the proof of the tests is old and may be renewed."""

    may_start: bool = True
    resumable: str | None = None
    may_prove: bool = False


class BudgetState(Value):
    """Why no more may be spent, or None; and in how many seconds the living session reaches a limit."""

    over_budget: str | None = None
    seconds_left: float | None = None


class Situation(Value):
    """All facts that a decision depends on. ``message_step``: the next delivery step of a message.

    ``signals_of_breaker``: those of ``signals`` that the circuit breaker set, not a person.
    """

    agent: str
    state: State
    now: datetime
    evidence: Evidence = _NO_EVIDENCE
    signals: tuple[str, ...] = ()
    signals_of_breaker: tuple[str, ...] = ()
    session: SessionFacts | None = None
    job: str | None = None
    supervisor: SupervisorFacts = SupervisorFacts()
    merging: MergeFacts = MergeFacts()
    budget: BudgetState = BudgetState()
    message_step: DeliveryStep | None = None


Fingerprint = tuple[object, ...]
CHECKS_PER_LIMIT = 20
"""Checks for activity within ``config.hung_after``: a hung session is noticed at most 5 % later than that."""
MIN_INTERVAL = 0.25  # seconds
BURST_SECONDS = 0.05
BUSY_SHARE = 0.005
"""A session that used BURST_SECONDS of CPU time, and this share of one core since its last activity, is active. A
program that sleeps and looks every second uses 0.1 to 0.3 %."""


def check_interval(hung_after: float, heartbeat_interval: float, answer_timeout: float) -> float:
    """Return the seconds between two checks for activity and for answers of the model."""
    return max(MIN_INTERVAL, min(heartbeat_interval, hung_after / CHECKS_PER_LIMIT, answer_timeout / 4))


class SessionTimes(Value):
    """Times of one session. ``first_seen``: when this supervisor observed it first."""

    started: float
    first_seen: float
    last_heartbeat: float
    closing_command_at: float | None = None

    def saw(self, *, is_closed: bool, now: float) -> SessionTimes:
        """Return the times after an observation. The first one after the closing command counts as its time."""
        is_new = is_closed and self.closing_command_at is None
        return replace(self, closing_command_at=now) if is_new else self

    def renewed(self, now: float) -> SessionTimes:
        """Return the times after a heartbeat."""
        return replace(self, last_heartbeat=now)

    def since_closing_command(self, now: float) -> float | None:
        """Return the seconds since the closing command; None before it."""
        return None if self.closing_command_at is None else now - self.closing_command_at


class ActivityWatch(Value):
    """When a session was last active: something in its ``fingerprint`` changed, or its processes used CPU time.

    ``cpu_seconds``: their CPU time then.
    """

    changed_at: float
    checked_at: float = 0.0
    fingerprint: Fingerprint = ()
    cpu_seconds: float = 0.0

    def is_due(self, now: float, interval: float) -> bool:
        """Return whether to check again: the first time, and then once per interval."""
        return not self.fingerprint or now - self.checked_at >= interval

    def seconds_to_check(self, now: float, interval: float) -> float:
        """Return the seconds until the next check."""
        return 0.0 if self.is_due(now, interval) else interval - (now - self.checked_at)

    def saw(self, fingerprint: Fingerprint, now: float, cpu_seconds: float = 0.0) -> ActivityWatch:
        """Return the state after a check."""
        used = cpu_seconds - self.cpu_seconds
        if fingerprint != self.fingerprint or used >= BURST_SECONDS + BUSY_SHARE * (now - self.changed_at):
            return ActivityWatch(now, now, fingerprint, cpu_seconds)
        # The time of a process is lost if it ends and its parent does not wait for it.
        return replace(self, checked_at=now, cpu_seconds=min(self.cpu_seconds, cpu_seconds))

    def restarted(self, now: float) -> ActivityWatch:
        """Return the state after a sleep of the machine, which does not count as inactivity."""
        return replace(self, changed_at=now)


class ModelAnswers(Value):
    """When the model of a session last answered; None before the first answer."""

    answered_at: float | None = None
    signs: Fingerprint = ()

    def saw(self, signs: Fingerprint, now: float, *, is_first_answer: bool) -> ModelAnswers:
        """Return the state after a check of signs that need a model: any change shows an answer.

        ``is_first_answer``: whether the first signs show one, because the session has run a tool already.
        """
        has_answered = signs != self.signs and (bool(self.signs) or is_first_answer)
        return ModelAnswers(now if has_answered else self.answered_at, signs)

    def answered(self, now: float) -> ModelAnswers:
        """Return the state after an answer in the program's output."""
        return replace(self, answered_at=now)


class IdleTime(Value):
    """Since when the program waits at its terminal, or None; and how often it was reminded."""

    since: float | None = None
    reminders: int = 0

    def saw(self, *, is_waiting: bool, now: float) -> IdleTime:
        """Return the state after an observation."""
        if not is_waiting:
            return replace(self, since=None)
        return replace(self, since=now) if self.since is None else self

    def reminded(self) -> IdleTime:
        """Return the state after a reminder: the time begins again."""
        return IdleTime(None, self.reminders + 1)

    def seconds(self, now: float) -> float:
        """Return the seconds that it has waited."""
        return 0.0 if self.since is None else now - self.since


class QuestionTime(Value):
    """Since when the screen shows a question for a person, or None.

    ``earlier_seconds``: duration of earlier questions. Time with a question does not count as running time: the program
    could not continue.
    """

    since: float | None = None
    earlier_seconds: float = 0.0

    def saw(self, *, is_shown: bool, now: float) -> QuestionTime:
        """Return the state after an observation."""
        if is_shown:
            return replace(self, since=now) if self.since is None else self
        return QuestionTime(None, self.seconds(now))

    def seconds(self, now: float) -> float:
        """Return the seconds with a question, including the present one."""
        return self.earlier_seconds + (0.0 if self.since is None else now - self.since)
