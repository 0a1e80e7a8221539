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
    Ask,
    BlockTask,
    Claim,
    ClaimPlanning,
    ClaimReview,
    Deliver,
    Exit,
    LetGo,
    Merge,
    NoteModelSilence,
    Pause,
    Remind,
    Renew,
    Resume,
    Settle,
    StartSession,
    StopSession,
    Wait,
    Warn,
)
from liza.rules.sessions.loop_detection import Stuck
from liza.rules.sessions.model_silence import ModelSilence
from liza.rules.tasks import picking, planning
from liza.rules.tasks.claims import STOP, ended_by_nobodys_fault
from liza.rules.tasks.picking import Evidence, Limit, Nothing
from liza.rules.transitions import has_said

S = Status
CRASH_WINDOW = 300.0
MOST_CRASHES_IN_WINDOW = 3
LONGEST_BACKOFF = 300.0
LOOK_AT_START = 1.0  # seconds between two looks at the terminal of a program that comes up: nothing tells of a question
LOOK_LATER = 10.0  # and of one that is at work
MOST_REMINDERS = 2
IDLE = "it waits at its terminal and has said no last word"
"""Why a session is ended that has nothing left to do, as one without a terminal ends by itself."""
UNUSABLE = 5
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
    standing: SessionState
    ready: bool = False
    never: str | None = None
    needs_person: bool = False
    terminal: bool = False
    model: ModelSilence | None = None
    told: tuple[str, str] | None = None
    idle: float = 0.0
    """How long its program has waited at its terminal, since it began to or was reminded."""
    reminders: int = 0
    asks: str | None = None
    """What its screen asks a person, ``asked`` what the person was told of that."""
    asked: str | None = None
    stuck: Stuck | None = None
    """Why it makes no progress; ``warned`` whether it was told so."""
    warned: bool = False
    since_start: float = 0.0
    since_movement: float = 0.0
    since_word: float | None = None
    at_rest: bool = False
    """Whether its turn at a terminal is over since its last word: nothing more comes, and it does not end by itself."""
    since_beat: float = 0.0


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
    rest: float = 0.0
    ready_timeout: float = 60.0
    merge_lock_free: bool = True
    offered: str | None = None
    since_gap: float | None = None
    unusable: str | None = None
    overspent: str | None = None
    seconds_left: float | None = None
    mail: message_rules.Step | None = None


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
    if at.session is not None and at.session.standing is SessionState.OVER:
        return Settle(at.session.run)
    if at.session is not None and at.session.standing is SessionState.LIVING:
        return _watch(at, at.session, leaving)
    held = holding(at.state, at.agent)
    if leaving:
        return LetGo(held.run) if held and not _given_back(at, held) else Exit(0, "stopped")
    hopeless = Exit(UNUSABLE, at.unusable) if at.unusable else _crash_loop(at)
    if hopeless:
        return LetGo(held.run) if held and not _given_back(at, held) else hopeless
    if at.overspent and not _halted(at):
        return Pause(at.overspent)
    if at.job is not None:
        return Wait(at.job)
    if held is not None:
        return _go_on(at, held)
    return _look_for_work(at)


@dataclass(frozen=True)
class Holding:
    """What an agent holds: a claim or a review of ``task``, or planning (``task`` is None)."""

    run: str
    task: str | None
    kind: str


def holding(state: State, agent: str) -> Holding | None:
    """What ``agent`` holds on the board; None when nothing."""
    for task in state.tasks:
        if task.status is S.CLAIMED and task.assigned_to == agent and task.run and task.reservation is None:
            return Holding(task.run, task.id, "work")
        if task.reviewing_by == agent and task.review_run:
            return Holding(task.review_run, task.id, "review")
    if state.planning.run and planning.planner_of(state) == agent:
        return Holding(state.planning.run, None, "planning")
    return None


def _given_back(at: Situation, held: Holding) -> bool:
    """Whether all was said about what is held: a coder's task stays its own after it was stopped."""
    task = at.state.task(held.task) if held.task and held.kind == "work" else None
    return task is not None and has_said(task, "stop", held.run)


def _watch(at: Situation, session: SessionFacts, leaving: bool) -> Action:
    if leaving:
        return StopSession(session.run, "stop")
    held = holding(at.state, at.agent)
    if held is None or held.run != session.run:
        if session.since_word is None:
            return StopSession(session.run, "fenced")
        left = at.state.config.grace - session.since_word
        if left <= 0 or session.at_rest:
            return StopSession(session.run, "over")
        # Nothing tells of a prompt that is back.
        left = min(left, LOOK_AT_START) if session.terminal else left
        return Wait(f"{session.run} has said its last word", left)
    hopeless = _hopeless(at, session)
    if hopeless is not None:
        return hopeless
    if session.since_movement > at.state.config.hung_after and session.asks is not None:
        return StopSession(session.run, f"nobody answered: the program shows {session.asks}", True)
    if session.since_movement > at.state.config.hung_after:
        return StopSession(session.run, f"hung: nothing moved for {session.since_movement:.0f} s")
    beat = at.state.config.heartbeat_interval
    if session.since_beat >= beat:
        return Renew(session.run)
    if session.asks != session.asked:
        return Ask(session.run, session.asks)
    tell = _to_tell(at, session)
    if tell is not None:
        return tell
    if session.asks is None and at.mail is not None and not isinstance(at.mail, message_rules.Later):
        # While a question stands nothing can be typed, and a try would be used up.
        return Deliver(session.run, at.mail)
    merge = None if at.job is not None or _halted(at) else _merge(at)
    if merge is not None:
        return merge
    waits = [beat - session.since_beat, *_model_waits(at, session)]
    if at.seconds_left is not None:
        waits.append(at.seconds_left + 0.01)
    if isinstance(at.mail, message_rules.Later) and at.mail.seconds is not None:
        waits.append(at.mail.seconds)
    if not session.ready:
        waits.append(at.ready_timeout - session.since_start + 0.01)
    if session.terminal:
        waits.append(LOOK_LATER if session.ready else LOOK_AT_START)
    return Wait(f"{session.run} is at work", min(waits))


def _to_tell(at: Situation, session: SessionFacts) -> NoteModelSilence | None:
    """What is to be told about the model, where that is not what was told already."""
    model = session.model
    shown = model if model is not None and model_silence.is_shown(model, at.state.config.answer_timeout) else None
    now = None if shown is None else (shown.kind, shown.words)
    return None if now == session.told else NoteModelSilence(session.run, shown)


def _model_waits(at: Situation, session: SessionFacts) -> list[float]:
    """Seconds until something has to be done about a model that does not answer."""
    if session.model is None:
        return []
    timeout = at.state.config.answer_timeout
    waits = [model_silence.ends_in(session.model, timeout)]
    if session.model.kind == model_silence.SILENT:
        waits.append(model_silence.shown_after(timeout) - session.model.seconds)
    return [left + 0.01 for left in waits if left > 0]


def _hopeless(at: Situation, session: SessionFacts) -> Action | None:
    """What ends a session from which nothing can come any more."""
    if session.never is not None:
        return StopSession(session.run, session.never, session.needs_person)
    if not session.ready and session.since_start > at.ready_timeout:
        return StopSession(session.run, f"not ready after {at.ready_timeout:.0f} s")
    timeout = at.state.config.answer_timeout
    if session.model is not None and (
        model_silence.ends_in(session.model, timeout) <= 0
        or model_silence.waits_longer_than(session.model, at.now, timeout)
    ):
        kind = session.model.kind
        return StopSession(session.run, model_silence.reason(session.model), kind == model_silence.LOGIN, kind)
    if session.idle > at.state.config.idle_after:
        return StopSession(session.run, IDLE) if session.reminders >= MOST_REMINDERS else Remind(session.run)
    if session.stuck is not None and session.since_word is None:
        if not session.warned:
            return Warn(session.run, session.stuck.words)
        if session.stuck.final:
            return StopSession(session.run, session.stuck.words)
    if at.overspent is not None:
        return Pause(at.overspent) if not _halted(at) else StopSession(session.run, STOP)
    return None


def _crash_loop(at: Situation) -> Action | None:
    recent = [age for age in at.crashes if age <= CRASH_WINDOW]
    if len(recent) >= MOST_CRASHES_IN_WINDOW:
        return Exit(1, f"{len(recent)} sessions crashed within {CRASH_WINDOW / 60:.0f} minutes")
    return None


def _go_on(at: Situation, held: Holding) -> Action:
    halted = _halted(at)
    if halted:
        return halted
    if at.rest > 0:
        left = _lease_left(at, held)
        half = at.state.config.lease_duration / 2
        if left is not None and left < half:
            return Renew(held.run)
        return Wait("resting before the next session", at.rest if left is None else min(at.rest, left - half + 0.01))
    if at.session is not None and at.session.run == held.run and not _given_back(at, held):
        return StartSession(held.run)
    if held.kind != "work":
        return LetGo(held.run)
    assert held.task is not None
    task = at.state.task(held.task)
    assert task is not None
    limit = picking.limit_reached(at.state, task)
    if limit and not ended_by_nobodys_fault(task):
        return BlockTask(held.task, limit)
    return Resume(held.task, held.run)


def _lease_left(at: Situation, held: Holding) -> float | None:
    """Seconds for which a claim is still leased; None for what was given back, and for reviews and planning."""
    task = at.state.task(held.task) if held.task and held.kind == "work" else None
    if task is None or task.lease_expires is None or _given_back(at, held):
        return None
    return (task.lease_expires - at.now).total_seconds()


def _halted(at: Situation) -> Wait | None:
    for name in ("CHECKPOINT", "PAUSE"):
        if name in at.signals:
            return Wait(f"{name} stands; liza resume takes it away")
    return None


def _look_for_work(at: Situation) -> Action:
    halted = _halted(at)
    if halted:
        return halted
    merge = _merge(at)
    if merge is not None:
        return merge
    if at.rest > 0:
        return Wait("resting before the next session", at.rest)
    role = role_of(at.agent)
    if role == "planner":
        trigger = planning.wake(at.state, at.evidence)
        return Wait(trigger) if isinstance(trigger, str) else ClaimPlanning(trigger.name)
    if role == "code-reviewer":
        review = picking.choose_review(at.state, at.agent, at.evidence)
        return Wait(review.why) if isinstance(review, Nothing) else ClaimReview(review.task.id)
    return _coder(at)


def _merge(at: Situation) -> Merge | None:
    """A merger is a child, so the supervisor of an agent at work can start one as well as an idle one."""
    ripe = merge_rules.next_to_merge(at.state, at.now)
    if ripe is not None and at.merge_lock_free:
        return Merge(ripe.id)
    return None if at.offered is None else Merge(at.offered)


def _coder(at: Situation) -> Action:
    pick = picking.choose(at.state, at.agent, at.now, at.evidence)
    if isinstance(pick, Limit):
        return BlockTask(pick.task.id, pick.reason)
    if isinstance(pick, Nothing):
        return Wait(pick.why, _until_lapse(at))
    if pick.task.status is S.CLAIMED and at.since_gap is not None:
        held_back = at.state.config.lease_duration - at.since_gap
        if held_back > 0:
            return Wait("the machine slept: nothing is taken over for one lease", held_back)
    return Claim(pick.task.id)


def _until_lapse(at: Situation) -> float | None:
    """When the next lease of another coder runs out, in seconds; None when none is standing."""
    ends = [
        (task.lease_expires - at.now).total_seconds() + 1.0
        for task in at.state.tasks
        if task.status is S.CLAIMED and task.lease_expires and task.lease_expires + timedelta(seconds=1) > at.now
    ]
    return max(min(ends), 0.5) if ends else None


def backoff(in_vain: int, first: float, longest: float = LONGEST_BACKOFF) -> float:
    """Seconds to rest after so many sessions in a row that came to nothing: doubling from ``first`` to ``longest``."""
    return float(min(first * 2.0 ** min(max(in_vain - 1, 0), 60), longest))
