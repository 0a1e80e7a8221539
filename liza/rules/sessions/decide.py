"""What a supervisor does next. Pure: the loop gathers a Situation, and carries out the one action that comes back.

The decision looks at how things stand and never at which event woke the loop: an event that is lost, doubled or
late changes nothing, and a supervisor that was killed and started again decides as if it had never been away.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from liza.rules.merging import merge_rules
from liza.rules.model import State, Status
from liza.rules.paths import role_of
from liza.rules.sessions import message_rules, model_silence
from liza.rules.sessions.actions import (
    Action,
    BlockTask,
    Claim,
    ClaimPlanning,
    ClaimReview,
    ConcludeSession,
    DeliverMessage,
    Exit,
    GiveBack,
    Merge,
    NoteModelSilence,
    PauseCrew,
    Remind,
    RenewLease,
    ReportQuestion,
    Resume,
    StartSession,
    StopSession,
    Wait,
    Warn,
)
from liza.rules.sessions.loop_detection import Stuck
from liza.rules.sessions.model_silence import ModelSilence
from liza.rules.tasks import picking, planning
from liza.rules.tasks.claims import STOP, is_last_end_blameless
from liza.rules.tasks.picking import Evidence, LimitReached, NoTask
from liza.rules.transitions import has_done

S = Status
CRASH_WINDOW = 300.0
MAX_CRASHES_IN_WINDOW = 3
MAX_BACKOFF = 300.0
START_POLL_SECONDS = (
    1.0  # seconds between two looks at the terminal of a program that comes up: nothing tells of a question
)
RUNNING_POLL_SECONDS = 10.0  # and of one that is at work
MAX_REMINDERS = 2
IDLE_REASON = "it waits at its terminal and has said no last word"
"""Why a session is ended that has nothing left to do, as one without a terminal ends by itself."""
EXIT_UNUSABLE = 5
"""The exit code of a supervisor whose program nobody can use before a person did something."""
_NO_EVIDENCE = Evidence()


class SessionState(StrEnum):
    """How the session of a run stands."""

    NEVER = "never started"
    LIVING = "living"
    OVER = "over"


@dataclass(frozen=True)
class SessionFacts:
    """What can be seen of the agent's newest session that is not settled. Times are seconds of the steady clock.

    ``never`` says why it is not going to be ready; ``needs_person``: nor would the next one be. ``terminal``: it has
    one. ``model`` is why its model gives no answer, ``told`` what of that the person was told: a kind and words.
    """

    run: str
    state: SessionState
    ready: bool = False
    never_ready: str | None = None
    needs_person: bool = False
    has_terminal: bool = False
    silence: ModelSilence | None = None
    reported_silence: tuple[str, str] | None = None
    idle: float = 0.0
    """How long its program has waited at its terminal, since it began to or was reminded."""
    reminders: int = 0
    question: str | None = None
    """What its screen asks a person, ``asked`` what the person was told of that."""
    reported_question: str | None = None
    stuck: Stuck | None = None
    """Why it makes no progress; ``warned`` whether it was told so."""
    warned: bool = False
    since_start: float = 0.0
    since_activity: float = 0.0
    since_closing_command: float | None = None
    is_turn_over: bool = False
    """Whether its turn at a terminal is over since its last word: nothing more comes, and it does not end by itself."""
    since_heartbeat: float = 0.0


@dataclass(frozen=True)
class Situation:
    """Everything a supervisor knows when it decides.

    ``offered`` is a task whose tested candidate waited for a person's files, and those are out of the way now.
    ``unusable`` says why no session of this agent's program can work before a person did something, ``overspent`` why
    no more may be spent, ``seconds_left`` how long the living session may go on until then, ``mail`` what is to be done
    for a message.
    """

    agent: str
    state: State
    now: datetime
    evidence: Evidence = _NO_EVIDENCE
    signals: tuple[str, ...] = ()
    session: SessionFacts | None = None
    job: str | None = None
    leaving: bool = False
    crashes: tuple[float, ...] = ()
    rest_seconds: float = 0.0
    ready_timeout: float = 60.0
    merge_lock_free: bool = True
    resumable_merge: str | None = None
    since_clock_gap: float | None = None
    unusable_reason: str | None = None
    over_budget: str | None = None
    seconds_left: float | None = None
    message_step: message_rules.DeliveryStep | None = None


def decide(at: Situation) -> Action:
    """The next action of the supervisor of ``at.agent``: ABORT before leaving before the session before new work.

    A wait ends when the pause of a merge that was set aside is over: no event tells of that.
    """
    action = _decide(at)
    due = merge_rules.seconds_to_next_try(at.state, at.now) if isinstance(action, Wait) else None
    if due is None or not isinstance(action, Wait):
        return action
    return Wait(action.why, due if action.seconds is None else min(action.seconds, due))


def _decide(at: Situation) -> Action:
    leaving = at.leaving or "ABORT" in at.signals
    if at.session is not None and at.session.state is SessionState.OVER:
        return ConcludeSession(at.session.run)
    if at.session is not None and at.session.state is SessionState.LIVING:
        return _decide_living(at, at.session, leaving)
    held = find_current_work(at.state, at.agent)
    if leaving:
        return GiveBack(held.run) if held and not _is_given_back(at, held) else Exit(0, "stopped")
    hopeless = Exit(EXIT_UNUSABLE, at.unusable_reason) if at.unusable_reason else _crash_loop(at)
    if hopeless:
        return GiveBack(held.run) if held and not _is_given_back(at, held) else hopeless
    if at.over_budget and not _wait_for_signal(at):
        return PauseCrew(at.over_budget)
    if at.job is not None:
        return Wait(at.job)
    if held is not None:
        return _continue_work(at, held)
    return _look_for_work(at)


@dataclass(frozen=True)
class CurrentWork:
    """What an agent holds: a claim or a review of ``task``, or planning (``task`` is None)."""

    run: str
    task: str | None
    kind: str


def find_current_work(state: State, agent: str) -> CurrentWork | None:
    """What ``agent`` holds on the board; None when nothing."""
    for task in state.tasks:
        if task.status is S.CLAIMED and task.assigned_to == agent and task.run and task.reservation is None:
            return CurrentWork(task.run, task.id, "work")
        if task.reviewing_by == agent and task.review_run:
            return CurrentWork(task.review_run, task.id, "review")
    if state.planning.run and planning.current_planner(state) == agent:
        return CurrentWork(state.planning.run, None, "planning")
    return None


def _is_given_back(at: Situation, held: CurrentWork) -> bool:
    """Whether all was said about what is held: a coder's task stays its own after it was stopped."""
    task = at.state.task(held.task) if held.task and held.kind == "work" else None
    return task is not None and has_done(task, "stop", held.run)


def _decide_living(at: Situation, session: SessionFacts, leaving: bool) -> Action:
    if leaving:
        return StopSession(session.run, "stop")
    held = find_current_work(at.state, at.agent)
    if held is None or held.run != session.run:
        if session.since_closing_command is None:
            return StopSession(session.run, "fenced")
        left = at.state.config.grace - session.since_closing_command
        if left <= 0 or session.is_turn_over:
            return StopSession(session.run, "over")
        # Nothing tells of a prompt that is back.
        left = min(left, START_POLL_SECONDS) if session.has_terminal else left
        return Wait(f"{session.run} has said its last word", left)
    hopeless = _stop_hopeless(at, session)
    if hopeless is not None:
        return hopeless
    if session.since_activity > at.state.config.hung_after and session.question is not None:
        return StopSession(session.run, f"nobody answered: the program shows {session.question}", True)
    if session.since_activity > at.state.config.hung_after:
        return StopSession(session.run, f"hung: nothing moved for {session.since_activity:.0f} s")
    beat = at.state.config.heartbeat_interval
    if session.since_heartbeat >= beat:
        return RenewLease(session.run)
    if session.question != session.reported_question:
        return ReportQuestion(session.run, session.question)
    tell = _silence_to_report(at, session)
    if tell is not None:
        return tell
    if (
        session.question is None
        and at.message_step is not None
        and not isinstance(at.message_step, message_rules.TryLater)
    ):
        # While a question stands nothing can be typed, and a try would be used up.
        return DeliverMessage(session.run, at.message_step)
    merge = None if at.job is not None or _wait_for_signal(at) else _merge(at)
    if merge is not None:
        return merge
    waits = [beat - session.since_heartbeat, *_model_waits(at, session)]
    if at.seconds_left is not None:
        waits.append(at.seconds_left + 0.01)
    if isinstance(at.message_step, message_rules.TryLater) and at.message_step.seconds is not None:
        waits.append(at.message_step.seconds)
    if not session.ready:
        waits.append(at.ready_timeout - session.since_start + 0.01)
    if session.has_terminal:
        waits.append(RUNNING_POLL_SECONDS if session.ready else START_POLL_SECONDS)
    return Wait(f"{session.run} is at work", min(waits))


def _silence_to_report(at: Situation, session: SessionFacts) -> NoteModelSilence | None:
    """What is to be told about the model, where that is not what was told already."""
    model = session.silence
    shown = model if model is not None and model_silence.is_reported(model, at.state.config.answer_timeout) else None
    now = None if shown is None else (shown.kind, shown.message)
    return None if now == session.reported_silence else NoteModelSilence(session.run, shown)


def _model_waits(at: Situation, session: SessionFacts) -> list[float]:
    """Seconds until something has to be done about a model that does not answer."""
    if session.silence is None:
        return []
    timeout = at.state.config.answer_timeout
    waits = [model_silence.seconds_to_end(session.silence, timeout)]
    if session.silence.kind == model_silence.SILENT:
        waits.append(model_silence.report_delay(timeout) - session.silence.seconds)
    return [left + 0.01 for left in waits if left > 0]


def _stop_hopeless(at: Situation, session: SessionFacts) -> Action | None:
    """What ends a session from which nothing can come any more."""
    if session.never_ready is not None:
        return StopSession(session.run, session.never_ready, session.needs_person)
    if not session.ready and session.since_start > at.ready_timeout:
        return StopSession(session.run, f"not ready after {at.ready_timeout:.0f} s")
    timeout = at.state.config.answer_timeout
    if session.silence is not None and (
        model_silence.seconds_to_end(session.silence, timeout) <= 0
        or model_silence.is_quota_wait_too_long(session.silence, at.now, timeout)
    ):
        kind = session.silence.kind
        return StopSession(
            session.run, model_silence.describe_reason(session.silence), kind == model_silence.LOGIN, kind
        )
    if session.idle > at.state.config.idle_after:
        return StopSession(session.run, IDLE_REASON) if session.reminders >= MAX_REMINDERS else Remind(session.run)
    if session.stuck is not None and session.since_closing_command is None:
        if not session.warned:
            return Warn(session.run, session.stuck.reason)
        if session.stuck.final:
            return StopSession(session.run, session.stuck.reason)
    if at.over_budget is not None:
        return PauseCrew(at.over_budget) if not _wait_for_signal(at) else StopSession(session.run, STOP)
    return None


def _crash_loop(at: Situation) -> Action | None:
    recent = [age for age in at.crashes if age <= CRASH_WINDOW]
    if len(recent) >= MAX_CRASHES_IN_WINDOW:
        return Exit(1, f"{len(recent)} sessions crashed within {CRASH_WINDOW / 60:.0f} minutes")
    return None


def _continue_work(at: Situation, held: CurrentWork) -> Action:
    halted = _wait_for_signal(at)
    if halted:
        return halted
    if at.rest_seconds > 0:
        left = _lease_left(at, held)
        half = at.state.config.lease_duration / 2
        if left is not None and left < half:
            return RenewLease(held.run)
        return Wait(
            "resting before the next session",
            at.rest_seconds if left is None else min(at.rest_seconds, left - half + 0.01),
        )
    if at.session is not None and at.session.run == held.run and not _is_given_back(at, held):
        return StartSession(held.run)
    if held.kind != "work":
        return GiveBack(held.run)
    assert held.task is not None
    task = at.state.task(held.task)
    assert task is not None
    limit = picking.limit_reached(at.state, task)
    if limit and not is_last_end_blameless(task):
        return BlockTask(held.task, limit)
    return Resume(held.task, held.run)


def _lease_left(at: Situation, held: CurrentWork) -> float | None:
    """Seconds for which a claim is still leased; None for what was given back, and for reviews and planning."""
    task = at.state.task(held.task) if held.task and held.kind == "work" else None
    if task is None or task.lease_expires is None or _is_given_back(at, held):
        return None
    return (task.lease_expires - at.now).total_seconds()


def _wait_for_signal(at: Situation) -> Wait | None:
    for name in ("CHECKPOINT", "PAUSE"):
        if name in at.signals:
            return Wait(f"{name} stands; liza resume takes it away")
    return None


def _look_for_work(at: Situation) -> Action:
    halted = _wait_for_signal(at)
    if halted:
        return halted
    merge = _merge(at)
    if merge is not None:
        return merge
    if at.rest_seconds > 0:
        return Wait("resting before the next session", at.rest_seconds)
    role = role_of(at.agent)
    if role == "planner":
        trigger = planning.next_trigger(at.state, at.evidence)
        return Wait(trigger) if isinstance(trigger, str) else ClaimPlanning(trigger.name)
    if role == "code-reviewer":
        review = picking.pick_review(at.state, at.agent, at.evidence)
        return Wait(review.why) if isinstance(review, NoTask) else ClaimReview(review.task.id)
    return _find_coding_work(at)


def _merge(at: Situation) -> Merge | None:
    """A merger is a child, so the supervisor of an agent at work can start one as well as an idle one."""
    ripe = merge_rules.next_to_merge(at.state, at.now)
    if ripe is not None and at.merge_lock_free:
        return Merge(ripe.id)
    return None if at.resumable_merge is None else Merge(at.resumable_merge)


def _find_coding_work(at: Situation) -> Action:
    pick = picking.pick_task(at.state, at.agent, at.now, at.evidence)
    if isinstance(pick, LimitReached):
        return BlockTask(pick.task.id, pick.reason)
    if isinstance(pick, NoTask):
        return Wait(pick.why, _seconds_to_lapse(at))
    if pick.task.status is S.CLAIMED and at.since_clock_gap is not None:
        held_back = at.state.config.lease_duration - at.since_clock_gap
        if held_back > 0:
            return Wait("the machine slept: nothing is taken over for one lease", held_back)
    return Claim(pick.task.id)


def _seconds_to_lapse(at: Situation) -> float | None:
    """When the next lease of another coder runs out, in seconds; None when none is standing."""
    ends = [
        (task.lease_expires - at.now).total_seconds() + 1.0
        for task in at.state.tasks
        if task.status is S.CLAIMED and task.lease_expires and task.lease_expires + timedelta(seconds=1) > at.now
    ]
    return max(min(ends), 0.5) if ends else None


def backoff(in_vain: int, first: float, longest: float = MAX_BACKOFF) -> float:
    """Seconds to rest after so many sessions in a row that came to nothing: doubling from ``first`` to ``longest``."""
    return float(min(first * 2.0 ** min(max(in_vain - 1, 0), 60), longest))
