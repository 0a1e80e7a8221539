"""Alarms for people and planners, each with one command to run next. Pure: the caller gathers the facts."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from liza.breaker.rules import breaker_trips
from liza.config.rules import settings, test_proof
from liza.config.rules.settings import UnconfirmedSetting
from liza.merging.rules import merge_alarms, merge_rules
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model import history_events, invariants, setting_limits
from liza.model.agent_states import StoppedProcesses
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.configuration import Config
from liza.model.derived import CurrentWork, current_planner, find_current_work, is_incomplete
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, PlanningClaim, State, Status, SupervisorExit, Task
from liza.model.narration import verdict_command
from liza.model.statuses import SprintStatus, WakeTrigger, WorkKind
from liza.model.tested import is_untested
from liza.model.value_classes import replace
from liza.tasks.rules import bound_claims, picking, planning, reviews, strangers, submissions
from liza.tasks.rules.backlog import EDITABLE_STATUSES
from liza.tasks.rules.picking import (
    Evidence,
    failed_by_every_coder,
    find_unclaimable,
    waits_for_coder_text,
)
from liza.tasks.rules.up_command import another_model_command, next_coder, up_command_for
from liza.text.formats import count_noun

S = Status
E = HistoryEvent
STALE_DRAFT = timedelta(minutes=30)
STALE_SIGNAL = timedelta(minutes=30)
WARN_BEFORE_LIMIT = 2
"""Number of tries or review rounds before a limit at which the warning starts."""
CYCLES_AFTER_FAILURE = 3  # rejections in total of a task that a coder failed, before a warning
BY_HAND_HINT = "; start it by hand once, and answer it or log in"
DENIALS_ALARM = 3
"""Number of denials of a run by the same guard rule that raises an alarm."""
MAX_HELD_UP = 3
"""Number of held-up sessions of a task in a row that raises an alarm. They count for no limit that would stop them."""


_OWN_ALARMS = (
    WakeTrigger.BREAKER_TRIPPED,
    WakeTrigger.BLOCKED_TASKS,
    WakeTrigger.HYPOTHESIS_EXHAUSTION,
    WakeTrigger.IMMEDIATE_DISCOVERY,
    WakeTrigger.OPEN_DRAFTS,
)
"""Planning triggers that have their own alarm with its own command."""


class AlarmFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that are not on the board.

    ``exits``: why supervisors of agents exited unexpectedly. ``unsupervised``: agents that hold work for which a
    supervisor had started a session, and whose supervisor is gone. ``stopped``: processes that do nothing until they
    are continued. ``signals``: signals and since when they are set.
    ``missing_parts``: what each DRAFT
    lacks. ``no_progress``: why sessions of agents make no progress. ``unpriced``: why a money limit does not count all
    sessions. ``denials``: for each agent that works, how often a guard rule denied it a tool, and what was said last.
    ``cost``: the usage of the sprint, once its checkpoint is due.
    ``tips``: present commits of what open tasks were submitted from, as ``submission_alarms`` has them.
    ``guard_notices``: why rules of the project's guard file do not count, each with the command that changes that.
    """

    evidence: Evidence = Evidence()
    exits: Mapping[str, SupervisorExit] = {}
    unsupervised: frozenset[str] = frozenset()
    stopped: StoppedProcesses = StoppedProcesses()
    signals: Mapping[str, datetime | None] = {}
    budget_pause: str = ""
    """The reason of a PAUSE that a supervisor set because a budget is used up."""
    budget_step: str = "liza resume"
    """The command by which the crew continues after it."""
    planners_checkpoint: tuple[str, str] | None = None
    """The planner that set CHECKPOINT, and its reason."""
    unknown_config: tuple[str, ...] = ()
    written: Config = Config()
    """The settings as they are on the board, also those that are not in effect."""
    unconfirmed: tuple[UnconfirmedSetting, ...] | None = ()
    """Settings on the board that are not in effect; None if no setting was ever confirmed."""
    repository: RepositoryDrift = RepositoryDrift()
    missing_parts: Mapping[str, picking.MissingParts] = {}
    no_progress: Mapping[str, str] = {}
    unpriced: str | None = None
    denials: Mapping[str, Mapping[str, tuple[int, str]]] = {}
    guard_notices: tuple[tuple[str, str], ...] = ()
    tips: Mapping[str, str | None] = {}
    cost: str = ""


def evaluate_alarms(state: State, now: datetime, seen: AlarmFacts) -> tuple[Alarm, ...]:
    """Return all current alarms, in the order in which `status` shows them."""
    alarms = [*_invalid(state), *_repository(state, seen)]
    alarms += _breaker(state) if state.circuit_breaker.history else ()
    alarms += [*_signals(state, seen, now), *_config(seen), *_agents(state, now, seen)]
    unclaimable = find_unclaimable(state) if any(task.depends_on for task in state.tasks) else {}
    for task in state.tasks:
        alarms += _of_task(state, task, now, seen)
        if task.id in unclaimable:
            cause = unclaimable[task.id]
            step = _unlink_command(state, task, cause.partition(",")[0])
            alarms.append(AlarmKind.NEVER_CLAIMABLE.alarm(task.id, cause=cause, step=step))
        elif task.failed_by and failed_by_every_coder(state, task):
            text, starts = waits_for_coder_text(task), (next_coder(state),)
            alarms.append(AlarmKind.NEEDS_ANOTHER_CODER.alarm(task.id, text=text, starts=starts))
    retries = [task.set_aside for task in state.tasks] + [epic.set_aside for epic in state.epics.values()]
    if any(retries):
        alarms += [*merge_alarms.epic_alarms(state.epics, now), *merge_alarms.red_branch_alarms(state, now)]
    alarms += submissions.submission_alarms(state, seen.tips)
    alarms += sprint_alarms(state, now, seen.cost)
    if any(task.status is S.READY_FOR_REVIEW for task in state.tasks):
        alarms += _unreviewed(state, seen)
    if any(task.status is S.DRAFT for task in state.tasks):
        alarms += _incomplete(state, seen)
    if state.planning != PlanningClaim() or state.discovered:
        alarms += _planning(state, now, seen)
    alarms += _untested(state)
    return tuple(_with_start_command(state, alarms, seen.evidence.offline))


def _repository(state: State, seen: AlarmFacts) -> Iterator[Alarm]:
    """Yield alarms about the settings and the repository, which were changed outside of Liza."""
    for key, reason, step in settings.describe_unconfirmed(seen.unconfirmed):
        yield AlarmKind.UNCONFIRMED_SETTING.alarm(key, reason=reason, step=step)
    if seen.repository.moved is not None:
        branch = state.config.integration_branch
        step = seen.repository.ways or f"git log --first-parent refs/heads/{shlex.quote(branch)}"
        yield AlarmKind.INTEGRATION_MOVED.alarm(branch, reason=seen.repository.moved, step=step)


def _breaker(state: State) -> Iterator[Alarm]:
    """Yield an alarm for each open trip of the circuit breaker. One with severity warn stops nothing."""
    for trip in breaker_trips.open_trips(state):
        is_stop = trip.severity in breaker_trips.SIGNAL_OF_SEVERITY
        kind = AlarmKind.BREAKER_TRIPPED if is_stop else AlarmKind.BREAKER_WARNING
        about = " ".join(filter(None, (trip.trigger, trip.subject)))
        step = breaker_trips.RESUME_COMMAND if is_stop else breaker_trips.RESOLVE_COMMAND
        yield kind.alarm(about, text=breaker_trips.describe_trip(trip), step=step, waiting_since=trip.time)


def _with_start_command(state: State, alarms: Sequence[Alarm], offline: Container[str]) -> Iterator[Alarm]:
    """Give all alarms that ask for a start of agents the same command, which starts these agents together.

    Of a crew without any supervisor it starts all. What ``next`` says is done first.
    """
    agents = {agent for alarm in alarms for agent in alarm.starts}
    supervised = [name for name, agent in state.agents.items() if agent.program]
    if supervised and all(name in offline for name in supervised):
        agents |= set(supervised) if agents else set()
    command = up_command_for(state, *sorted(agents)) if agents else ""
    for alarm in alarms:
        steps = (step for step in (alarm.next, command) if step)
        yield replace(alarm, next="; ".join(steps)) if alarm.starts else alarm


def _unlink_command(state: State, task: Task, dependency: str) -> str:
    """Return the command that removes one dependency of a task and keeps the others. Once work on the task has begun,
    it is the one that puts another task in the place of an undone dependency."""
    needed = state.task(dependency)
    if task.status not in EDITABLE_STATUSES and needed is not None and needed.undo is not None:
        return f'liza task supersede {dependency} --by "…" --because "…"'
    others = ",".join(name for name in task.depends_on if name != dependency)
    return shlex.join(["liza", "task", "edit", task.id, "--depends", others])


def _agents(state: State, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    """Yield alarms about supervisors, sessions and their guards."""
    yield from _refused_models(state, seen.exits)
    for agent, left in seen.exits.items():
        if left.model:
            continue
        reason = _short(left.reason, 300) + (BY_HAND_HINT if left.by_hand else "")
        time, step = f"{left.time:%Y-%m-%d %H:%MZ}", left.by_hand or left.next
        yield AlarmKind.SUPERVISOR_LEFT.alarm(agent, time=time, reason=reason, step=step, starts=(agent,))
    for agent in sorted(seen.unsupervised - seen.exits.keys()):
        work = find_current_work(state, agent)
        if work is not None and not _has_lapsed(state, work, now):
            yield AlarmKind.SUPERVISOR_GONE.alarm(agent, work=_describe_work(work), starts=(agent,))
    if seen.stopped.supervisors or seen.stopped.keepers:
        yield from _stopped(seen.stopped)
    for agent, why in seen.no_progress.items():
        yield AlarmKind.NO_PROGRESS.alarm(agent, reason=_short(why))
    if seen.unpriced is not None:
        yield AlarmKind.BUDGET_BLIND.alarm("budget", reason=seen.unpriced)
    for notice, command in seen.guard_notices:
        yield AlarmKind.GUARDS_UNTRUSTED.alarm("guards", reason=notice, step=command)
    for agent, by_rule in seen.denials.items():
        for rule, (count, last) in by_rule.items():
            if count >= DENIALS_ALARM:
                yield AlarmKind.GUARD_DENIALS.alarm(agent, rule=rule, count=count, last=_short(last))


def _refused_models(state: State, exits: Mapping[str, SupervisorExit]) -> Iterator[Alarm]:
    """Yield an alarm for each program that does not have the model that a person named, for all agents that ran it."""
    agents_of: dict[str, list[str]] = {}
    for agent, left in exits.items():
        if left.model:
            agents_of.setdefault(state.agents[agent].program or "", []).append(agent)
    for spec, agents in agents_of.items():
        reason, step = _short(exits[agents[0]].model, 300), another_model_command(state, agents)
        yield AlarmKind.MODEL_REFUSED.alarm(spec, reason=reason, agents=", ".join(agents), step=step)


def restart_hint(state: State, agent: str, first: str) -> str:
    """Return the commands to run after a supervisor exited.

    ``first`` is run before the new supervisor, because the same cause would stop that one too.
    """
    return "; ".join(filter(None, (first, up_command_for(state, agent))))


def _stopped(stopped: StoppedProcesses) -> Iterator[Alarm]:
    """Yield an alarm for each stopped supervisor, and one for a stopped `up`. One command continues all of them."""
    pids = " ".join(map(str, sorted({*stopped.supervisors.values(), *stopped.keepers})))
    for agent, pid in sorted(stopped.supervisors.items()):
        yield AlarmKind.SUPERVISOR_STOPPED.alarm(agent, pid=pid, pids=pids)
    if stopped.keepers:
        rest = "" if stopped.supervisors else "; the crew goes on, and spends: liza down stops it"
        yield AlarmKind.UP_STOPPED.alarm("up", keepers=", ".join(map(str, stopped.keepers)), rest=rest, pids=pids)


def _has_lapsed(state: State, work: CurrentWork, now: datetime) -> bool:
    """Return whether the lease has expired. Another alarm covers that."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    return task is not None and task.lease_expires is not None and task.lease_expires <= now


def _describe_work(work: CurrentWork) -> str:
    if work.task is None:
        return "the planning"
    return f"the review of {work.task}" if work.kind == WorkKind.REVIEW else work.task


def _of_task(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    rule = _RULES.get(task.status)
    if rule is not None:
        yield from rule(state, task, now, seen)
    if task.status not in FINAL_STATUSES:
        yield from _near_limits(state, task)
        yield from _held_up(task)
        yield from _crashed(task)
    why = merge_rules.status_obstacle(state, task)
    if why is not None:
        yield AlarmKind.UNEXPLAINED_STATUS.alarm(task.id, status=task.status, why=why)


def _held_up(task: Task) -> Iterator[Alarm]:
    ends = [event for event in task.history if event.event != E.RESUME]
    row = next((number for number, event in enumerate(reversed(ends)) if event.event != E.HELD_UP), len(ends))
    if row >= MAX_HELD_UP:
        yield AlarmKind.HELD_UP.alarm(task.id, row=row, last=_short(ends[-1].detail or ""))


def _crashed(task: Task) -> Iterator[Alarm]:
    """Yield an alarm while the last sessions of a task crashed, or its last reviews ended without a verdict.

    A BLOCKED task has an alarm that says so.
    """
    if task.status is S.BLOCKED or not task.history:
        return
    crashes, reviews_ended = picking.crashes_in_a_row(task), task.reviews_without_verdict
    if task.status is S.READY_FOR_REVIEW and reviews_ended:
        last = next(
            (event for event in reversed(task.history) if event.event == E.RELEASE_REVIEW and event.detail), None
        )
        text = f"reviewed {task.id} {_times(reviews_ended)} without a verdict"
    elif crashes:
        last = next(event for event in reversed(task.history) if event.event == E.CRASH)
        text = f"crashed {_times(crashes)} at {task.id}"
    else:
        return
    if last is not None:
        reason = _short(last.detail or "it said nothing", _MAX_CAUSE)
        yield AlarmKind.PROGRAM_CRASHED.alarm(
            task.id, agent=str(last.agent), text=f"{last.agent}'s program {text}", reason=reason
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _draft(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    """Yield an alarm for a requested draft. Incomplete drafts are reported together by ``_incomplete``.

    No alarm for STALE_DRAFT while a planner is at work: it may still edit the draft.
    """
    since = task.history[-1].time if task.history else task.created
    fresh = since is not None and now - since < STALE_DRAFT
    if is_incomplete(task) or (fresh and state.planning.run is not None):
        return
    parts = seen.missing_parts.get(task.id, picking.MissingParts((), ""))
    lacks = f" and lacks: {'; '.join(parts.missing)}" if parts.missing else ""
    step = parts.next if parts.missing else f"liza task edit {task.id}"
    when = "" if since is None else f" since {since:%Y-%m-%d %H:%MZ}"
    yield AlarmKind.STALE_DRAFT.alarm(task.id, since=when, lacks=lacks, step=step)


def _incomplete(state: State, seen: AlarmFacts) -> Iterator[Alarm]:
    for parts, ids in picking.group_incomplete(state, seen.missing_parts).items():
        names, is_single, missing = join_names(ids), len(ids) == 1, "; ".join(parts.missing)
        if not missing:
            text = f"{names} {'is a draft and lacks' if is_single else 'are drafts and lack'} nothing any more"
        elif is_single:
            text = f"{names} is a draft and waits for you: {missing}"
        else:
            text = f"{len(ids)} tasks are drafts and wait for you ({names}): {missing}"
        yield AlarmKind.INCOMPLETE_DRAFT.alarm(ids[0], text=text, step=parts.next)


def _claimed(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.lease_expires is None or task.lease_expires > now or task.reservation is not None:
        return
    coder = task.assigned_to
    starts: tuple[str, ...] = ()
    if task.handoff_pending and coder not in seen.evidence.offline:
        return
    if task.history and task.history[-1].event == E.STOP and coder in seen.evidence.offline:
        return
    if bound_claims.is_bound(task) and task.submission is not None:
        why = f"the program in {task.submission.worktree} does not renew it"
        step = f"liza task release {task.id}"
    elif coder not in seen.evidence.offline:
        why = f"its supervisor runs; {task.run} is at work or hangs"
        step = f"liza logs {coder}"
    elif task.run in seen.evidence.dead:
        by_hand = f'if you work on it by hand: cd "$(liza path {task.id})" && liza heartbeat'
        why = f"{coder} is off and has no session: another coder may take it; {by_hand}"
        step, starts = "", (coder,) if coder else ()
    else:
        why = f"{coder} is off, and its session {task.run} is not proved dead"
        step = f"liza task release {task.id}"
    run, time = str(task.run), _at(task.lease_expires)
    yield AlarmKind.EXPIRED_LEASE.alarm(task.id, run=run, time=time, why=why, step=step, starts=starts)


def _in_review(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if planning.waits_for_verdict(task):
        yield _verdict_alarm(task, strangers.describe_review(task))
    if picking.waits_only_for_verdict(task):
        return
    agent, expires = task.reviewing_by, task.review_lease_expires
    if agent and agent not in seen.unsupervised and expires is not None and expires <= now:
        yield AlarmKind.EXPIRED_REVIEW_LEASE.alarm(task.id, run=str(task.review_run), time=_at(expires), agent=agent)


def _verdict_alarm(task: Task, why: str = "") -> Alarm:
    """Return the alarm for a task whose submitted work waits for the verdict of a person."""
    since = task.history[-1].time if task.history else None
    step = strangers.permit_command(task) if strangers.lacks_permission(task) else verdict_command(task.id)
    return AlarmKind.NEEDS_VERDICT.alarm(task.id, why=why, step=step, waiting_since=since)


def _unreviewed(state: State, seen: AlarmFacts) -> Iterator[Alarm]:
    """Yield alarms for tasks that wait for a review, if the crew has no reviewer.

    If a reviewer was killed while others run, one alarm names the command that starts one. If the crew never had one,
    or its reviewers were stopped on request, as with `liza up --reviewers 0`, a person reviews: each task has an alarm.
    """
    waiting = reviews.find_unreviewed(state, seen.evidence.offline, seen.exits)
    if waiting and reviews.persons_review(state):
        why = f", because the crew has no reviewer ({up_command_for(state, f'{REVIEWER}-1')})"
        yield from (_verdict_alarm(task, why) for task in waiting)
    elif waiting:
        names = f"{join_names([task.id for task in waiting])} {'waits' if len(waiting) == 1 else 'wait'}"
        yield AlarmKind.NEEDS_REVIEWER.alarm(waiting[0].id, names=names, starts=(f"{REVIEWER}-1",))


def _blocked(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if len(task.failed_by) >= planning.MAX_FAILED_CODERS and not reviews.asks_for_review(task):
        yield AlarmKind.HYPOTHESIS_EXHAUSTION.alarm(task.id, coders=" and ".join(task.failed_by))
        return
    reason = task.blocked_reason or ""
    yield AlarmKind.BLOCKED.alarm(
        task.id,
        reason=_short(reason, _MAX_CAUSE),
        question=_short(" / ".join(task.blocked_questions) or reason),
        waiting_since=task.history[-1].time if task.history else None,
    )


def _approved(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.merging is not None and task.merging.waiting:
        yield AlarmKind.WAITING_FOR_FILES.alarm(task.id, files=", ".join(task.merging.waiting))
    if task.merge_hold is not None:
        yield AlarmKind.MERGE_HELD.alarm(task.id, reason=_short(task.merge_hold))
    unpermitted = strangers.permission_obstacle(task)
    if unpermitted is not None:
        step = strangers.permit_command(task)
        yield AlarmKind.NEEDS_PERMISSION.alarm(task.id, reason=unpermitted, step=step)
    yield from merge_alarms.retry_alarms(task, now)


def _merge_failed(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    coder, failure = task.assigned_to, history_events.last_failure(task)
    reason = _short(history_events.first_line(failure) or "see its history")
    if coder is not None and coder in seen.evidence.offline:
        yield AlarmKind.ORPHANED_INTEGRATION_FAILED.alarm(task.id, reason=reason, coder=coder, starts=(coder,))
    if not picking.waits_for_author(task):  # that has an alarm of its own
        yield AlarmKind.INTEGRATION_FAILED.alarm(task.id, reason=reason, step=history_events.inspect_command(task))


def _rejected(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    coder = task.assigned_to
    if coder is not None and coder in seen.evidence.offline:
        yield AlarmKind.ORPHANED_REJECTED.alarm(task.id, coder=coder, starts=(coder,))


_RULES = {
    S.DRAFT: _draft,
    S.CLAIMED: _claimed,
    S.READY_FOR_REVIEW: _in_review,
    S.BLOCKED: _blocked,
    S.APPROVED: _approved,
    S.REJECTED: _rejected,
    S.INTEGRATION_FAILED: _merge_failed,
}


def _near_limits(state: State, task: Task) -> Iterator[Alarm]:
    tries, rounds = task.max_iterations or state.config.max_coder_iterations, state.config.max_review_cycles
    cycles, total = task.review_cycles_current, task.review_cycles_total
    if _is_near(task.iteration, tries):
        yield AlarmKind.APPROACHING_LIMITS.alarm(task.id, limit=_of_limit("try", task.iteration, tries))
    if _is_near(cycles, rounds):
        yield AlarmKind.APPROACHING_LIMITS.alarm(task.id, limit=_of_limit("rejection", cycles, rounds))
    elif task.failed_by and total >= CYCLES_AFTER_FAILURE:
        limit = f"nears its limit: {task.failed_by[0]} failed it, and it was rejected {total} times"
        yield AlarmKind.APPROACHING_LIMITS.alarm(task.id, limit=limit)


def _is_near(count: int, most: int) -> bool:
    """Return whether ``count`` is near ``most``. The first try is never near the limit."""
    return most > WARN_BEFORE_LIMIT and count >= max(most - WARN_BEFORE_LIMIT, 2)


def _of_limit(what: str, count: int, most: int) -> str:
    if count > most:
        return f"is beyond its limit: {what} {count}, and {most} were allowed"
    return f"{'is at' if count == most else 'nears'} its limit: {what} {count} of at most {most}"


def _invalid(state: State) -> Iterator[Alarm]:
    for violation in invariants.check_board(state):
        yield AlarmKind.INVALID_STATE.alarm(violation.entry, reason=str(violation))


def _signals(state: State, seen: AlarmFacts, now: datetime) -> Iterator[Alarm]:
    if seen.budget_pause:
        # At once: unlike with a pause of their own, the person does not know of it.
        yield AlarmKind.BUDGET_USED.alarm("PAUSE", reason=_short(seen.budget_pause, 300), step=seen.budget_step)
    explained = {"PAUSE"} if seen.budget_pause else set()
    if seen.planners_checkpoint is not None and planning.checkpoint_reason(state) is None:
        agent, reason = seen.planners_checkpoint
        explained.add("CHECKPOINT")
        yield AlarmKind.PLANNERS_CHECKPOINT.alarm("CHECKPOINT", agent=agent, reason=_short(reason, 300))
    for name, since in seen.signals.items():
        if since is not None and now - since >= STALE_SIGNAL and name not in explained:
            minutes = int((now - since).total_seconds() // 60)
            yield AlarmKind[f"STALE_{name}"].alarm(name, minutes=minutes, step=breaker_trips.signal_hint(state))


def _config(seen: AlarmFacts) -> Iterator[Alarm]:
    for key in seen.unknown_config:
        yield AlarmKind.UNKNOWN_CONFIG.alarm("config", reason=settings.describe_unknown_key(key))
    # Of a list one number is enough: the command replaces all of it.
    for name, number, expected in {excess[0]: excess for excess in setting_limits.find_excesses(seen.written)}.values():
        yield AlarmKind.UNUSABLE_SETTING.alarm(name, number=number, expected=expected)


def _planning(state: State, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    plan = state.planning
    planner = current_planner(state)
    checkpoint = planning.checkpoint_reason(state)
    if plan.run and plan.lease_expires and plan.lease_expires <= now and planner not in seen.unsupervised:
        run, time = plan.run, _at(plan.lease_expires)
        yield AlarmKind.EXPIRED_PLANNING_LEASE.alarm("planning", run=run, time=time, agent=str(planner))
    elif checkpoint is not None:
        yield AlarmKind.PLANNING_ROUNDS.alarm("planning", reason=checkpoint)
    elif plan.run is None and plan.count >= planning.MAX_WAKES:
        trigger = planning.next_trigger(state, seen.evidence)
        triggers = planning.find_triggers(state, seen.evidence)
        if isinstance(trigger, str) and triggers and triggers[0].name not in _OWN_ALARMS:
            is_failed = triggers[0].name is WakeTrigger.INTEGRATION_FAILED
            step = "liza task list --status to-fix" if is_failed else "liza task list"
            yield AlarmKind.PLANNING_STALLED.alarm("planning", reason=trigger, step=step)
    for discovery in state.discovered:
        if discovery.is_urgent:
            by, text = discovery.by or "unknown", _short(discovery.description)
            yield AlarmKind.IMMEDIATE_DISCOVERY.alarm(discovery.id, by=by, text=text)


REVIEWER = reviews.REVIEWER
_SET_TESTS = 'liza config set integration_command "make test"'


def _untested(state: State) -> Iterator[Alarm]:
    where = test_proof.tested_instead(state.config)
    if where is not None:
        yield AlarmKind.TESTS_ELSEWHERE.alarm("config", tests=str(state.config.integration_command), where=where)
    elif (reason := test_proof.untested_reason(state.config)) is not None:
        fix = test_proof.FIX_TESTS
        yield AlarmKind.TESTS_GREEN.alarm("config", reason=reason.text, fix=fix, step=reason.hint)
    untested = [task.id for task in state.tasks if task.status is S.MERGED and is_untested(task)]
    has_gates = bool(state.config.all_gates)
    if untested:
        text = f"merged without a test: {join_names(untested)}"
        text, step = (text, "liza edit") if has_gates else (f"{text}; set config.integration_command", _SET_TESTS)
        yield AlarmKind.UNTESTED_MERGES.alarm("config", text=text, step=step)
    elif not has_gates:
        text = "no test command (config.integration_command): merges will be recorded as untested"
        yield AlarmKind.UNTESTED_MERGES.alarm("config", text=text, step=_SET_TESTS)


def _at(when: datetime) -> str:
    return f"{when:%H:%M:%SZ}"


_MAX_CAUSE = 260  # characters: the cause of a block, with the command that resolves it


def _short(text: str, most: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


MAX_NAMES = 8  # names of tasks of one kind in a message


def sprint_alarms(state: State, now: datetime, cost: str) -> Iterator[Alarm]:
    """Yield what a person is to know about the times of the sprint. ``cost`` is the usage of the sprint as text."""
    deadline = state.sprint.timeline.deadline
    if is_checkpoint_due(state, now):
        due = state.sprint.timeline.checkpoint_at
        sprint, time, about = state.sprint.id, f"{due:%Y-%m-%d %H:%MZ}", f"{state.sprint.id} {due:%Y-%m-%dT%H:%MZ}"
        yield AlarmKind.CHECKPOINT_DUE.alarm(about, sprint=sprint, time=time, summary=_summary(state), cost=cost)
    unfinished = [task.id for task in state.tasks if task.status not in FINAL_STATUSES]
    if deadline is not None and deadline <= now and unfinished and state.sprint.status in _RUNNING:
        number = count_noun(len(unfinished), "task")
        time, names = f"{deadline:%Y-%m-%d %H:%MZ}", join_names(unfinished, MAX_NAMES)
        yield AlarmKind.DEADLINE_PASSED.alarm(state.sprint.id, time=time, number=number, names=names)


_RUNNING = (SprintStatus.IN_PROGRESS, SprintStatus.CHECKPOINT)


def is_checkpoint_due(state: State, now: datetime) -> bool:
    """Return whether the checkpoint of a sprint in progress has passed. It is due until a person changes its time."""
    due = state.sprint.timeline.checkpoint_at
    return state.sprint.status in _RUNNING and due is not None and due <= now


def _summary(state: State) -> str:
    """Return what is merged, open and blocked, with the first names of each."""
    merged = [task.id for task in state.tasks if task.status is Status.MERGED]
    blocked = [task.id for task in state.tasks if task.status is Status.BLOCKED]
    unfinished = [task.id for task in state.tasks if task.status not in (*FINAL_STATUSES, Status.BLOCKED)]
    archived = state.archived.counts.get(Status.MERGED, 0)
    return ", ".join(
        f"{len(names) + more} {label}{f' ({join_names(names, MAX_NAMES)})' if names else ''}"
        for label, names, more in (("merged", merged, archived), ("open", unfinished, 0), ("blocked", blocked, 0))
    )


def join_names(ids: Sequence[str], most: int = 5) -> str:
    """Return the first ``most`` names, and how many there are more."""
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")
