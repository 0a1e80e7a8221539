"""Choice of a supervisor's next action. Pure: the loop gathers a Situation and carries out the action it gets back.

The decision depends only on the current situation, never on the event that woke the loop. A lost, duplicate or late
event therefore changes nothing, and a restarted supervisor decides like one that was never killed.
"""

from __future__ import annotations

from datetime import timedelta

from liza.breaker.rules.breaker_trips import signal_hint
from liza.briefs.rules import message_rules
from liza.briefs.rules.context_rules import ContextStep, next_context_step
from liza.merging.rules import epic_rules
from liza.model.derived import CurrentWork, find_current_work, tasks_with
from liza.model.history_events import HistoryEvent
from liza.model.model import Status
from liza.model.paths import role_of
from liza.model.session_ends import SilenceKind, StopReason, stop_reason_of
from liza.model.statuses import WakeTrigger, WorkKind
from liza.model.transitions import has_done
from liza.programs.rules import model_silence
from liza.supervisor.rules.actions import (
    Action,
    AskHandoff,
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
    RenewProof,
    ReportQuestion,
    Resume,
    SetCheckpoint,
    StartSession,
    StopSession,
    Wait,
    Warn,
)
from liza.supervisor.rules.session_facts import SessionFacts, SessionState, Situation
from liza.tasks.rules import picking, planning
from liza.tasks.rules.claims import is_last_end_blameless
from liza.tasks.rules.picking import RESTING, LimitReached, NoTask

S = Status
# A question on a terminal causes no event, so the terminal is polled.
START_POLL_SECONDS = 1.0  # until the program is ready
RUNNING_POLL_SECONDS = 10.0  # afterwards
MAX_REMINDERS = 2  # reminders to an idle session, before it is ended
EXIT_UNUSABLE = 5
"""Exit status of a supervisor whose program cannot work until a person acts, such as a login."""


def decide(at: Situation) -> Action:
    """Return the next action of the supervisor of ``at.agent``.

    Order: ABORT, leaving, the session, new work. A wait ends at the latest when the retry of a failed merge is due,
    because that causes no event.
    """
    action = _decide(at)
    next_try = epic_rules.seconds_to_next_try(at.state, at.now) if isinstance(action, Wait) else None
    if next_try is None or not isinstance(action, Wait):
        return action
    return Wait(action.why, next_try if action.seconds is None else min(action.seconds, next_try))


def _decide(at: Situation) -> Action:
    leaving = at.supervisor.leaving or "ABORT" in at.signals
    if at.session is not None and at.session.state is SessionState.OVER:
        return ConcludeSession(at.session.run)
    if at.session is not None and at.session.state is SessionState.LIVING:
        return _decide_living(at, at.session, leaving)
    work = find_current_work(at.state, at.agent)
    if leaving:
        return GiveBack(work.run) if work and not _is_given_back(at, work) else Exit(0, "stopped")
    hopeless = Exit(EXIT_UNUSABLE, at.supervisor.unusable_reason) if at.supervisor.unusable_reason else _crash_loop(at)
    if hopeless:
        return GiveBack(work.run) if work and not _is_given_back(at, work) else hopeless
    if at.budget.over_budget and not _wait_for_signal(at):
        return PauseCrew(at.budget.over_budget)
    if at.job is not None:
        return Wait(at.job)
    if work is not None:
        return _continue_work(at, work)
    if at.supervisor.retiring:
        return Exit(0, "retired: no task waited for it")
    return _look_for_work(at)


def _is_given_back(at: Situation, work: CurrentWork) -> bool:
    """Return whether the work was already given back. A stopped task still belongs to its coder."""
    task = at.state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    return task is not None and has_done(task, HistoryEvent.STOP, work.run)


def _decide_living(at: Situation, session: SessionFacts, leaving: bool) -> Action:
    if leaving:
        return StopSession(session.run, StopReason.STOP)
    work = find_current_work(at.state, at.agent)
    if work is None or work.run != session.run:
        return _decide_without_work(at, session)
    hopeless = _stop_hopeless(at, session)
    if hopeless is not None:
        return hopeless
    if session.ages.activity > at.state.config.hung_after and session.question.shown is not None:
        unanswered = f"no person answered: the program shows {session.question.shown}"
        return StopSession(session.run, StopReason.PERSON_NEEDED, unanswered)
    if session.ages.activity > at.state.config.hung_after:
        return StopSession(session.run, StopReason.HUNG, f"hung: no activity for {session.ages.activity:.0f} s")
    beat = at.state.config.heartbeat_interval
    if session.ages.heartbeat >= beat:
        return RenewLease(session.run)
    if session.question.shown != session.question.reported:
        return ReportQuestion(session.run, session.question.shown)
    report = _silence_to_report(at, session)
    if report is not None:
        return report
    if (
        session.question.shown is None
        and at.message_step is not None
        and not isinstance(at.message_step, message_rules.TryLater)
    ):
        # While the screen shows a question nothing can be typed, and a try would be wasted.
        return DeliverMessage(session.run, at.message_step)
    merge = None if at.job is not None or _wait_for_signal(at) else _merge(at)
    if merge is not None:
        return merge
    return _wait_at_work(at, session, beat)


def _decide_without_work(at: Situation, session: SessionFacts) -> Action:
    """Return the action for a session that has no claim any more: it has closed its work, or lost it to another run."""
    if session.ages.closing_command is None:
        return StopSession(session.run, StopReason.FENCED)
    if session.is_turn_over:
        return StopSession(session.run, StopReason.OVER)
    left = at.state.config.grace - session.ages.closing_command
    if left <= 0:
        return StopSession(session.run, StopReason.LINGERING)
    # The return of the prompt causes no event, so poll.
    left = min(left, START_POLL_SECONDS) if session.has_terminal else left
    return Wait(f"{session.run} has run its closing command", left)


def _wait_at_work(at: Situation, session: SessionFacts, beat: float) -> Wait:
    """Wait until the first time at which something is due: heartbeat, report, budget, message, start or poll."""
    waits = [beat - session.ages.heartbeat, *_model_waits(at, session)]
    waits.append(max(0.0, at.state.config.hung_after - session.ages.activity) + 0.01)
    if session.next_check is not None:
        waits.append(session.next_check + 0.01)
    if at.budget.seconds_left is not None:
        waits.append(at.budget.seconds_left + 0.01)
    if isinstance(at.message_step, message_rules.TryLater) and at.message_step.seconds is not None:
        waits.append(at.message_step.seconds)
    if not session.start.is_ready:
        waits.append(session.start.timeout - session.ages.start + 0.01)
    if session.has_terminal:
        waits.append(RUNNING_POLL_SECONDS if session.start.is_ready else START_POLL_SECONDS)
    elif session.idle.is_waiting:
        waits.append(max(0.0, at.state.config.idle_after - session.idle.seconds) + 0.01)
    to_end = _seconds_to_end_by_age(at, session)
    if to_end is not None:
        waits.append(to_end + 0.01)
    if session.end_reported is not None:
        waits.append(at.state.config.grace - session.end_reported + 0.01)
    return Wait(f"{session.run} is at work", min(waits))


def _silence_to_report(at: Situation, session: SessionFacts) -> NoteModelSilence | None:
    """Return the action that reports a change of the model's silence; None if the person was told already."""
    model = session.model.silence
    shown = model if model is not None and model_silence.is_reported(model, at.state.config.answer_timeout) else None
    now = None if shown is None else (shown.kind, shown.message)
    return None if now == session.model.reported else NoteModelSilence(session.run, shown)


def _model_waits(at: Situation, session: SessionFacts) -> list[float]:
    """Return the seconds until a silent model has to be reported or its session ended."""
    if session.model.silence is None:
        return []
    timeout = at.state.config.answer_timeout
    waits = [model_silence.seconds_to_end(session.model.silence, timeout)]
    if session.model.silence.kind is SilenceKind.SILENT:
        waits.append(model_silence.report_delay(timeout) - session.model.silence.seconds)
    return [left + 0.01 for left in waits if left > 0]


def _stop_hopeless(at: Situation, session: SessionFacts) -> Action | None:
    """Return the action for a session that should not go on: stop, remind, warn or pause; None if it may go on."""
    if session.start.never_ready is not None:
        reason = StopReason.PERSON_NEEDED if session.start.needs_person else StopReason.NOT_READY
        return StopSession(session.run, reason, session.start.never_ready)
    if not session.start.is_ready and session.ages.start > session.start.timeout:
        return StopSession(session.run, StopReason.NOT_READY, f"not ready after {session.start.timeout:.0f} s")
    timeout = at.state.config.answer_timeout
    if session.model.silence is not None and (
        model_silence.seconds_to_end(session.model.silence, timeout) <= 0
        or model_silence.is_quota_wait_too_long(session.model.silence, at.now, timeout)
    ):
        reason = stop_reason_of(session.model.silence.kind)
        return StopSession(session.run, reason, model_silence.describe_reason(session.model.silence))
    if session.end_reported is not None and session.end_reported >= at.state.config.grace:
        return StopSession(session.run, StopReason.END_REPORTED)
    if _seconds_to_end_by_age(at, session) == 0:
        return StopSession(session.run, StopReason.TOO_OLD, f"it is idle and {session.ages.start:.0f} s old")
    if session.idle.seconds > at.state.config.idle_after:
        reminded = session.idle.reminders >= MAX_REMINDERS
        return StopSession(session.run, StopReason.IDLE) if reminded else Remind(session.run)
    if session.loop.stuck is not None and session.ages.closing_command is None:
        if not session.loop.warned:
            return Warn(session.run, session.loop.stuck.reason)
        if session.loop.stuck.final:
            return StopSession(session.run, StopReason.NO_PROGRESS, session.loop.stuck.reason)
    if session.ages.closing_command is None:
        step = next_context_step(session.context.usage, at.state.config.context_handoff, asked=session.context.asked)
        used = session.context.usage or 0.0
        if step is ContextStep.END:
            return StopSession(session.run, StopReason.CONTEXT_FULL, f"{used:.0%} of its context window is used")
        if step is ContextStep.ASK_HANDOFF:
            return AskHandoff(session.run, used)
    if at.budget.over_budget is not None:
        return (
            PauseCrew(at.budget.over_budget) if not _wait_for_signal(at) else StopSession(session.run, StopReason.STOP)
        )
    return None


def _seconds_to_end_by_age(at: Situation, session: SessionFacts) -> float | None:
    """Return the seconds until an idle session is older than allowed, 0 if it is; None if its age does not end it.

    A session that works is never interrupted.
    """
    limit = at.state.config.session_max
    is_idle = session.start.is_ready and session.idle.is_waiting and session.ages.closing_command is None
    return max(0.0, limit - session.ages.start) if limit is not None and is_idle else None


def _crash_loop(at: Situation) -> Action | None:
    if at.supervisor.crash_loop is None:
        return None
    # A set-up has no session whose log would tell the reason.
    last = f"; the last: {at.supervisor.failed_set_up}" if at.supervisor.failed_set_up else ""
    return Exit(1, f"{at.supervisor.crash_loop}{last}")


def _rest_seconds(at: Situation, task: str | None) -> float:
    """Return the seconds until a session of ``task`` may start. A rest after a crash of one task is for that task."""
    return max(at.supervisor.rest_seconds, at.evidence.resting.get(task or "", 0.0))


def _continue_work(at: Situation, work: CurrentWork) -> Action:
    halted = _wait_for_signal(at)
    if halted and not (work.kind == WorkKind.PLANNING and _may_plan_at_checkpoint(at, at.state.planning.trigger)):
        return halted
    rest = _rest_seconds(at, work.task)
    if rest > 0:
        left = _lease_left(at, work)
        half = at.state.config.lease_duration / 2
        if left is not None and left < half:
            return RenewLease(work.run)
        return Wait(
            RESTING,
            rest if left is None else min(rest, left - half + 0.01),
        )
    if at.session is not None and at.session.run == work.run and not _is_given_back(at, work):
        return StartSession(work.run)
    if work.kind != WorkKind.WORK:
        return GiveBack(work.run)
    assert work.task is not None
    task = at.state.task(work.task)
    assert task is not None
    limit = picking.limit_reached(at.state, task)
    if limit and not is_last_end_blameless(at.state, task):
        return BlockTask(work.task, limit)
    return Resume(work.task, work.run)


def _lease_left(at: Situation, work: CurrentWork) -> float | None:
    """Return the seconds until the lease of a claim expires; None for given-back work, reviews and planning."""
    task = at.state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    if task is None or task.lease_expires is None or _is_given_back(at, work):
        return None
    return (task.lease_expires - at.now).total_seconds()


def _wait_for_signal(at: Situation) -> Wait | None:
    for name in ("CHECKPOINT", "PAUSE"):
        if name in at.signals:
            return Wait(f"{name} is set; {signal_hint(at.state)} removes it")
    return None


def _may_plan_at_checkpoint(at: Situation, trigger: str | None) -> bool:
    """Return whether a planner may plan for this trigger although a signal is set.

    A CHECKPOINT of the circuit breaker waits for a root cause, which a planner may find. A signal of a person, a halt,
    and a budget that is used up stop planners, too.
    """
    is_checkpoint = at.signals == ("CHECKPOINT",) == at.signals_of_breaker
    return is_checkpoint and trigger == WakeTrigger.BREAKER_TRIPPED and at.budget.over_budget is None


def _plan_at_checkpoint(at: Situation) -> ClaimPlanning | None:
    """Return the claim of a planner that looks for the cause of a trip while the trip stops the crew; else None."""
    if role_of(at.agent) != "planner" or at.supervisor.rest_seconds > 0:
        return None
    trigger = planning.next_trigger(at.state, at.evidence)
    if isinstance(trigger, str) or not _may_plan_at_checkpoint(at, trigger.name):
        return None
    return ClaimPlanning(trigger.name)


def _look_for_work(at: Situation) -> Action:
    action = _find_work(at)
    if isinstance(action, Wait) and at.merging.may_prove and planning.is_idle(at.state) and not _wait_for_signal(at):
        return RenewProof()
    return action


def _find_work(at: Situation) -> Action:
    halted = _wait_for_signal(at)
    if halted:
        return _plan_at_checkpoint(at) or halted
    merge = _merge(at)
    if merge is not None:
        return merge
    if at.supervisor.rest_seconds > 0:
        return Wait(RESTING, at.supervisor.rest_seconds)
    role = role_of(at.agent)
    if role == "planner":
        trigger, checkpoint = planning.next_trigger(at.state, at.evidence), planning.checkpoint_reason(at.state)
        if isinstance(trigger, str):
            return Wait(trigger) if checkpoint is None else SetCheckpoint(checkpoint)
        return ClaimPlanning(trigger.name)
    if role == "code-reviewer":
        state = planning.without_others(at.state, at.supervisor.only)
        review = picking.pick_review(state, at.agent, at.evidence)
        return Wait(review.why, review.seconds) if isinstance(review, NoTask) else ClaimReview(review.task.id)
    return _find_coding_work(at)


def _merge(at: Situation) -> Merge | None:
    """Return a merge to start, or None. A merger is a child process, so a supervisor with a session can start one."""
    only = at.supervisor.only
    others = () if only is None else planning.find_others(at.state, only)
    subject = epic_rules.next_subject(at.state, at.now, others) if at.merging.may_start else None
    if subject is not None:
        return Merge(subject)
    return None if at.merging.resumable is None else Merge(at.merging.resumable)


def _find_coding_work(at: Situation) -> Action:
    pick = picking.pick_task(at.state, at.agent, at.now, at.evidence)
    if isinstance(pick, LimitReached):
        return BlockTask(pick.task.id, pick.reason)
    if isinstance(pick, NoTask):
        return Wait(pick.why, min(filter(None, (pick.seconds, _seconds_to_lapse(at))), default=None))
    if pick.task.status is S.CLAIMED and at.supervisor.since_clock_gap is not None:
        held_back = at.state.config.lease_duration - at.supervisor.since_clock_gap
        if held_back > 0:
            return Wait("the machine slept: no expired claim is taken over for one lease duration", held_back)
    return Claim(pick.task.id)


def _seconds_to_lapse(at: Situation) -> float | None:
    """Return the seconds until the next lease of a coder expires, at least 0.5; None without a lease."""
    ends = [
        (task.lease_expires - at.now).total_seconds() + 1.0
        for task in tasks_with(at.state, S.CLAIMED)
        if task.lease_expires and task.lease_expires > at.now - timedelta(seconds=1)
    ]
    return max(min(ends), 0.5) if ends else None
