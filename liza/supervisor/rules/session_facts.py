"""The facts that a supervisor's decision depends on: `Situation`, and of the session `SessionFacts`."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from liza.breaker.rules.loop_detection import Stuck
from liza.briefs.rules.message_rules import DeliveryStep
from liza.model.model import State
from liza.model.value_classes import Value
from liza.programs.rules.model_silence import ModelSilence
from liza.tasks.rules.picking import Evidence

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
    set-up failed. ``since_clock_gap``: seconds since the machine slept.
    """

    leaving: bool = False
    retiring: bool = False
    crash_loop: str | None = None
    rest_seconds: float = 0.0
    unusable_reason: str | None = None
    failed_set_up: str | None = None
    since_clock_gap: float | None = None


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
