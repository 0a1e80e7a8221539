"""Alarms for people and planners, each with one command to run next. Pure: the caller gathers the facts."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from liza.breaker.rules import breaker_trips
from liza.config.rules import settings, test_proof
from liza.config.rules.settings import UnconfirmedSetting
from liza.merging.rules import merge_alarms, merge_rules
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model import history_events, invariants, setting_limits
from liza.model.agent_states import StoppedProcesses
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.configuration import Config
from liza.model.derived import CurrentWork, current_planner, find_current_work, is_incomplete
from liza.model.gates import is_untested
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, SupervisorExit, Task
from liza.model.paths import ROLES
from liza.model.statuses import SprintStatus, WakeTrigger, WorkKind
from liza.model.value_classes import replace
from liza.recovery.rules import drift_alarms
from liza.tasks.rules import picking, planning, reviews
from liza.tasks.rules.picking import (
    Evidence,
    MissingParts,
    failed_by_every_coder,
    find_unclaimable,
    waits_for_coder_text,
)
from liza.tasks.rules.planning import can_continue, find_missing_roles, is_crew_done
from liza.tasks.rules.up_command import next_coder, up_command_for
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
    cost: str = ""


def evaluate_alarms(state: State, now: datetime, seen: AlarmFacts) -> tuple[Alarm, ...]:
    """Return all current alarms, in the order in which `status` shows them."""
    alarms = [*_invalid(state), *drift_alarms.repository_alarms(state, seen.repository, seen.unconfirmed)]
    alarms += [*breaker_trips.breaker_alarms(state), *_signals(state, seen, now), *_config(seen)]
    alarms += [
        *_supervisor_exits(state, seen),
        *_unsupervised(state, now, seen),
        *_stopped(seen.stopped),
        *_stuck(seen),
        *_guards(seen),
    ]
    unclaimable = find_unclaimable(state)
    for task in state.tasks:
        alarms += _of_task(state, task, now, seen)
        if task.id in unclaimable:
            alarms.append(
                Alarm(
                    AlarmKind.NEVER_CLAIMABLE,
                    task.id,
                    f"{task.id} can never be claimed: it depends on {unclaimable[task.id]}",
                    _unlink_command(task, unclaimable[task.id].partition(",")[0]),
                )
            )
        elif failed_by_every_coder(state, task):
            message = waits_for_coder_text(task)
            alarms.append(Alarm(AlarmKind.NEEDS_ANOTHER_CODER, task.id, message, "", starts=(next_coder(state),)))
    alarms += [*merge_alarms.epic_alarms(state.epics, now), *merge_alarms.red_branch_alarms(state, now)]
    alarms += [*sprint_alarms(state, now, seen.cost)]
    alarms += reviews.unreviewed_alarms(state, seen.evidence.offline, seen.exits)
    alarms += [*_incomplete(state, seen), *_planning(state, now, seen), *_untested(state)]
    return tuple(_with_start_command(state, alarms, seen.evidence.offline))


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


def _unlink_command(task: Task, dependency: str) -> str:
    """Return the command that removes one dependency of a task and keeps the others."""
    others = ",".join(name for name in task.depends_on if name != dependency)
    return shlex.join(["liza", "task", "edit", task.id, "--depends", others])


def _supervisor_exits(state: State, seen: AlarmFacts) -> Iterator[Alarm]:
    for agent, left in seen.exits.items():
        message = f"the supervisor of {agent} left at {left.time:%Y-%m-%d %H:%MZ}: {_short(left.reason, 300)}"
        message += BY_HAND_HINT if left.by_hand else ""
        yield Alarm(AlarmKind.SUPERVISOR_LEFT, agent, message, left.by_hand or left.next, starts=(agent,))


def _stuck(seen: AlarmFacts) -> Iterator[Alarm]:
    for agent, why in seen.no_progress.items():
        yield Alarm(AlarmKind.NO_PROGRESS, agent, f"{agent} makes {_short(why)}", f"liza logs {agent}")
    if seen.unpriced is not None:
        yield Alarm(AlarmKind.BUDGET_BLIND, "budget", seen.unpriced, "liza edit")


def _guards(seen: AlarmFacts) -> Iterator[Alarm]:
    for notice, command in seen.guard_notices:
        yield Alarm(AlarmKind.GUARDS_UNTRUSTED, "guards", notice, command)
    for agent, by_rule in seen.denials.items():
        for rule, (count, last) in by_rule.items():
            if count >= DENIALS_ALARM:
                message = f"the guard rule {rule} denied {agent} a tool {count} times; the last: {_short(last)}"
                yield Alarm(AlarmKind.GUARD_DENIALS, agent, message, f"liza logs {agent}")


def restart_hint(state: State, agent: str, first: str) -> str:
    """Return the commands to run after a supervisor exited.

    ``first`` is run before the new supervisor, because the same cause would stop that one too.
    """
    return "; ".join(filter(None, (first, up_command_for(state, agent))))


def _unsupervised(state: State, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    for agent in sorted(seen.unsupervised - seen.exits.keys()):
        work = find_current_work(state, agent)
        if work is not None and not _has_lapsed(state, work, now):
            message = f"{agent} holds {_named(work)}, and its supervisor is gone: no process continues that work"
            yield Alarm(AlarmKind.SUPERVISOR_GONE, agent, message, "", starts=(agent,))


def _stopped(stopped: StoppedProcesses) -> Iterator[Alarm]:
    """Yield an alarm for each stopped supervisor, and one for a stopped `up`. One command continues all of them."""
    pids = sorted({*stopped.supervisors.values(), *stopped.keepers})
    command = shlex.join(["kill", "-CONT", *map(str, pids)])
    for agent, pid in sorted(stopped.supervisors.items()):
        message = (
            f"the supervisor of {agent} (process {pid}) is stopped: its session is not watched, nothing new starts"
        )
        yield Alarm(AlarmKind.SUPERVISOR_STOPPED, agent, message, command)
    if stopped.keepers:
        which = ", ".join(map(str, stopped.keepers))
        rest = "" if stopped.supervisors else "; the crew goes on, and spends: liza down stops it"
        message = (
            f"`liza up` (process {which}) is stopped: it prints nothing and starts no killed supervisor again{rest}"
        )
        yield Alarm(AlarmKind.UP_STOPPED, "up", message, command)


def _has_lapsed(state: State, work: CurrentWork, now: datetime) -> bool:
    """Return whether the lease has expired. Another alarm covers that."""
    task = state.task(work.task) if work.task and work.kind == WorkKind.WORK else None
    return task is not None and task.lease_expires is not None and task.lease_expires <= now


def _named(work: CurrentWork) -> str:
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
    why = merge_rules.status_obstacle(state, task)
    if why is not None:
        yield Alarm(
            AlarmKind.UNEXPLAINED_STATUS,
            task.id,
            f"{task.id} is {task.status}, and {why}",
            "liza edit",
        )


def _held_up(task: Task) -> Iterator[Alarm]:
    ends = [event for event in task.history if event.event != E.RESUME]
    row = next((number for number, event in enumerate(reversed(ends)) if event.event != E.HELD_UP), len(ends))
    if row >= MAX_HELD_UP:
        message = f"{task.id}: {row} sessions in a row were held up; the last: {_short(ends[-1].detail or '')}"
        yield Alarm(AlarmKind.HELD_UP, task.id, message, "liza doctor")


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
    message = f"{task.id} is kept a draft{f' since {since:%Y-%m-%d %H:%MZ}' if since else ''}{lacks}"
    yield Alarm(AlarmKind.STALE_DRAFT, task.id, message, parts.next if parts.missing else f"liza task edit {task.id}")


def _incomplete(state: State, seen: AlarmFacts) -> Iterator[Alarm]:
    for parts, ids in picking.group_incomplete(state, seen.missing_parts).items():
        names = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        is_single = len(ids) == 1
        if not parts.missing:
            message = f"{names} {'is a draft and lacks' if is_single else 'are drafts and lack'} nothing any more"
        elif is_single:
            message = f"{names} is a draft and waits for you: {'; '.join(parts.missing)}"
        else:
            message = f"{len(ids)} tasks are drafts and wait for you ({names}): {'; '.join(parts.missing)}"
        yield Alarm(AlarmKind.INCOMPLETE_DRAFT, ids[0], message, parts.next)


def _claimed(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.lease_expires is None or task.lease_expires > now or task.reservation is not None:
        return
    coder = task.assigned_to
    starts: tuple[str, ...] = ()
    if task.handoff_pending and coder not in seen.evidence.offline:
        return
    if task.history and task.history[-1].event == E.STOP and coder in seen.evidence.offline:
        return
    if coder not in seen.evidence.offline:
        why = f"its supervisor runs; {task.run} is at work or hangs"
        step = f"liza logs {coder}"
    elif task.run in seen.evidence.dead:
        by_hand = f'if you work on it by hand: cd "$(liza path {task.id})" && liza heartbeat'
        why = f"{coder} is off and has no session: another coder may take it; {by_hand}"
        step, starts = "", (coder,) if coder else ()
    else:
        why = f"{coder} is off, and its session {task.run} is not proved dead"
        step = f"liza task release {task.id}"
    message = f"{task.id}: the lease of {task.run} ran out at {_at(task.lease_expires)}; {why}"
    yield Alarm(AlarmKind.EXPIRED_LEASE, task.id, message, step, starts=starts)


def _in_review(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.review == "human":
        yield reviews.verdict_alarm(task)
        return
    if task.reviewing_by in seen.unsupervised:
        return
    if task.reviewing_by and task.review_lease_expires is not None and task.review_lease_expires <= now:
        ran_out = _at(task.review_lease_expires)
        yield Alarm(
            AlarmKind.EXPIRED_REVIEW_LEASE,
            task.id,
            f"{task.id}: the review lease of {task.review_run} ran out at {ran_out}",
            f"liza logs {task.reviewing_by}",
        )


def _blocked(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if len(task.failed_by) >= planning.MAX_FAILED_CODERS and not reviews.asks_for_review(task):
        yield Alarm(
            AlarmKind.HYPOTHESIS_EXHAUSTION,
            task.id,
            f"{task.id}: {' and '.join(task.failed_by)} failed at it; it needs another plan, yours or a planner's",
            f'liza answer {task.id} "…"',
        )
        return
    asked = " / ".join(task.blocked_questions) or task.blocked_reason or ""
    yield Alarm(
        AlarmKind.BLOCKED,
        task.id,
        f"{task.id} is blocked ({_short(task.blocked_reason or '', _MAX_CAUSE)}) and asks: {_short(asked)}",
        f'liza answer {task.id} "…"',
        task.history[-1].time if task.history else None,
    )


def _approved(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.merging is not None and task.merging.waiting:
        yield Alarm(
            AlarmKind.WAITING_FOR_FILES,
            task.id,
            f"{task.id} is tested and waits for files of your checkout: {', '.join(task.merging.waiting)}",
            f"liza merge {task.id}",
        )
    if task.merge_hold is not None:
        message = f"{task.id} is approved and held: {_short(task.merge_hold)}"
        yield Alarm(AlarmKind.MERGE_HELD, task.id, message, f"liza queue release {task.id}")
    yield from merge_alarms.retry_alarms(task, now)


def _merge_failed(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    why = _short(history_events.first_line(history_events.last_failure(task)) or "see its history")
    message = f"{task.id} does not merge: {why}"
    for alarm in _coder_offline(state, task, now, seen):
        yield replace(alarm, message=f"{message}; {task.assigned_to}, which has to fix it, is off")
    yield Alarm(AlarmKind.INTEGRATION_FAILED, task.id, message, history_events.inspect_command(task))


def _coder_offline(state: State, task: Task, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    if task.assigned_to is not None and task.assigned_to in seen.evidence.offline:
        yield Alarm(
            AlarmKind[f"ORPHANED_{task.status}"],
            task.id,
            f"{task.id} waits for {task.assigned_to}, which has to fix it and is off",
            "",
            starts=(task.assigned_to,),
        )


_RULES = {
    S.DRAFT: _draft,
    S.CLAIMED: _claimed,
    S.READY_FOR_REVIEW: _in_review,
    S.BLOCKED: _blocked,
    S.APPROVED: _approved,
    S.REJECTED: _coder_offline,
    S.INTEGRATION_FAILED: _merge_failed,
}


def _near_limits(state: State, task: Task) -> Iterator[Alarm]:
    tries, rounds = task.max_iterations or state.config.max_coder_iterations, state.config.max_review_cycles
    cycles = task.review_cycles_current
    if _is_near(task.iteration, tries):
        yield _near(task, _of_limit("try", task.iteration, tries))
    if _is_near(cycles, rounds):
        yield _near(task, _of_limit("rejection", cycles, rounds))
    elif task.failed_by and task.review_cycles_total >= CYCLES_AFTER_FAILURE:
        times = f"was rejected {task.review_cycles_total} times"
        yield _near(task, f"nears its limit: {task.failed_by[0]} failed it, and it {times}")


def _is_near(count: int, most: int) -> bool:
    """Return whether ``count`` is near ``most``. The first try is never near the limit."""
    return most > WARN_BEFORE_LIMIT and count >= max(most - WARN_BEFORE_LIMIT, 2)


def _of_limit(what: str, count: int, most: int) -> str:
    if count > most:
        return f"is beyond its limit: {what} {count}, and {most} were allowed"
    return f"{'is at' if count == most else 'nears'} its limit: {what} {count} of at most {most}"


def _near(task: Task, what: str) -> Alarm:
    return Alarm(AlarmKind.APPROACHING_LIMITS, task.id, f"{task.id} {what}", f"liza task show {task.id}")


def _invalid(state: State) -> Iterable[Alarm]:
    for violation in invariants.check_board(state):
        yield Alarm(AlarmKind.INVALID_STATE, violation.entry, str(violation), "liza validate")


def _signals(state: State, seen: AlarmFacts, now: datetime) -> Iterator[Alarm]:
    if seen.budget_pause:
        # At once: unlike with a pause of their own, the person does not know of it.
        message = f"the crew is paused: {_short(seen.budget_pause, 300)}"
        yield Alarm(AlarmKind.BUDGET_USED, "PAUSE", message, seen.budget_step)
    for name, since in seen.signals.items():
        if name == "PAUSE" and seen.budget_pause:
            continue
        if since is not None and now - since >= STALE_SIGNAL:
            minutes = int((now - since).total_seconds() // 60)
            message = f"{name} has been set for {minutes} minutes"
            yield Alarm(AlarmKind[f"STALE_{name}"], name, message, breaker_trips.signal_hint(state))


def _config(seen: AlarmFacts) -> Iterator[Alarm]:
    for key in seen.unknown_config:
        yield Alarm(AlarmKind.UNKNOWN_CONFIG, "config", settings.describe_unknown_key(key), "liza edit")
    # Of a list one number is enough: the command replaces all of it.
    for name, number, expected in {excess[0]: excess for excess in setting_limits.find_excesses(seen.written)}.values():
        message = f"config.{name} is {number}, expected {expected}; the default is in effect"
        yield Alarm(AlarmKind.UNUSABLE_SETTING, name, message, f"liza config set {name} --default")


def _planning(state: State, now: datetime, seen: AlarmFacts) -> Iterator[Alarm]:
    plan = state.planning
    planner = current_planner(state)
    lapsed = plan.lease_expires is not None and plan.lease_expires <= now
    checkpoint = planning.checkpoint_reason(state)
    if plan.run is not None and plan.lease_expires is not None and lapsed and planner not in seen.unsupervised:
        message = f"the planning lease of {plan.run} ran out at {_at(plan.lease_expires)}"
        yield Alarm(AlarmKind.EXPIRED_PLANNING_LEASE, "planning", message, f"liza logs {planner}")
    elif checkpoint is not None:
        yield Alarm(AlarmKind.PLANNING_ROUNDS, "planning", checkpoint, "liza resume")
    elif plan.run is None and plan.count >= planning.MAX_WAKES:
        trigger = planning.next_trigger(state, seen.evidence)
        triggers = planning.find_triggers(state, seen.evidence)
        if isinstance(trigger, str) and triggers and triggers[0].name not in _OWN_ALARMS:
            is_failed = triggers[0].name is WakeTrigger.INTEGRATION_FAILED
            step = "liza task list --status to-fix" if is_failed else "liza task list"
            yield Alarm(AlarmKind.PLANNING_STALLED, "planning", trigger, step)
    for discovery in state.discovered:
        if discovery.is_urgent:
            yield Alarm(
                AlarmKind.IMMEDIATE_DISCOVERY,
                discovery.id,
                f"{discovery.id} (by {discovery.by or 'unknown'}) cannot wait: {_short(discovery.description)} "
                f'(if it can: liza report resolve {discovery.id} "why")',
                f"liza task add --from-discovery {discovery.id} --id fix-{discovery.id}",
            )


_SET_TESTS = 'liza config set integration_command "make test"'


def _untested(state: State) -> Iterator[Alarm]:
    where = test_proof.tested_instead(state.config)
    if where is not None:
        command = state.config.integration_command
        message = (
            f"nothing is merged: {command} does not test the worktree it runs in, it uses {where}; "
            "change config.integration_command or config.sandbox_setup"
        )
        yield Alarm(AlarmKind.TESTS_ELSEWHERE, "config", message, "liza edit && liza doctor --tests")
    elif (reason := test_proof.untested_reason(state.config)) is not None:
        message = f"nothing is merged: untested: {reason.text}; {test_proof.FIX_TESTS}, or accept this part for good"
        yield Alarm(AlarmKind.TESTS_GREEN, "config", message, reason.hint)
    untested = [task.id for task in state.tasks if task.status is S.MERGED and is_untested(task)]
    if untested:
        names = ", ".join(untested[:5]) + (f" and {len(untested) - 5} more" if len(untested) > 5 else "")
        message = f"merged without a test: {names}"
        if state.config.all_gates:
            yield Alarm(AlarmKind.UNTESTED_MERGES, "config", message, "liza edit")
        else:
            wanted = f"{message}; set config.integration_command"
            yield Alarm(AlarmKind.UNTESTED_MERGES, "config", wanted, _SET_TESTS)
    elif not state.config.all_gates:
        message = "no test command (config.integration_command): merges will be recorded as untested"
        yield Alarm(AlarmKind.UNTESTED_MERGES, "config", message, _SET_TESTS)


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
        message = f"checkpoint of {state.sprint.id}, due {due:%Y-%m-%d %H:%MZ}: {_summary(state)}; {cost}"
        yield Alarm(AlarmKind.CHECKPOINT_DUE, f"{state.sprint.id} {due:%Y-%m-%dT%H:%MZ}", message, "liza edit")
    unfinished = [task.id for task in state.tasks if task.status not in FINAL_STATUSES]
    if _is_running(state) and deadline is not None and deadline <= now and unfinished:
        number = count_noun(len(unfinished), "task")
        message = f"the deadline of {state.sprint.id} was {deadline:%Y-%m-%d %H:%MZ}, and {number} of it not closed"
        yield Alarm(AlarmKind.DEADLINE_PASSED, state.sprint.id, f"{message}: {_names(unfinished)}", "liza edit")


def is_checkpoint_due(state: State, now: datetime) -> bool:
    """Return whether the checkpoint of a sprint in progress has passed. It is due until a person changes its time."""
    due = state.sprint.timeline.checkpoint_at
    return _is_running(state) and due is not None and due <= now


def _is_running(state: State) -> bool:
    return state.sprint.status in (SprintStatus.IN_PROGRESS, SprintStatus.CHECKPOINT)


def _summary(state: State) -> str:
    """Return what is merged, open and blocked, with the first names of each."""
    merged = [task.id for task in state.tasks if task.status is Status.MERGED]
    blocked = [task.id for task in state.tasks if task.status is Status.BLOCKED]
    unfinished = [task.id for task in state.tasks if task.status not in (*FINAL_STATUSES, Status.BLOCKED)]
    archived = state.archived.counts.get(Status.MERGED, 0)
    return ", ".join(
        f"{len(names) + more} {label}{f' ({_names(names)})' if names else ''}"
        for label, names, more in (("merged", merged, archived), ("open", unfinished, 0), ("blocked", blocked, 0))
    )


def _names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


_WAITING_KINDS = frozenset(
    {
        AlarmKind.BLOCKED,
        AlarmKind.HYPOTHESIS_EXHAUSTION,
        AlarmKind.INCOMPLETE_DRAFT,
        AlarmKind.STALE_DRAFT,
        AlarmKind.NEEDS_ANOTHER_CODER,
        AlarmKind.NEEDS_VERDICT,
        AlarmKind.NEVER_CLAIMABLE,
        AlarmKind.PLANNING_ROUNDS,
        AlarmKind.PLANNING_STALLED,
        AlarmKind.WAITING_FOR_FILES,
    }
)
"""Alarms about tasks that wait for a person. The others are about agents and the repository."""
_WAITS = {"coder": "(no coder runs)", "code-reviewer": "(no reviewer runs)"}


def waiting_alarms(
    state: State, now: datetime, lacks: Mapping[str, MissingParts], roles: frozenset[str] = frozenset(ROLES)
) -> tuple[Alarm, ...]:
    """Return what supervisors of ``roles`` wait for; empty if they can continue without a person, or are done.

    ``lacks``: the missing parts of drafts.
    """
    if is_crew_done(state, "planner" in roles) or can_continue(state, roles):
        return ()
    alarms = evaluate_alarms(state, now, AlarmFacts(missing_parts=lacks))
    waiting = tuple(alarm for alarm in alarms if alarm.kind in _WAITING_KINDS)
    if waiting:
        return waiting
    if not state.tasks and not state.archived.total:
        message = "there is no task, and no planner that adds one"
        return (Alarm(AlarmKind.NO_TASKS, "goal", message, "liza task add --help"),)
    return (_no_agent(state, roles),)


def _no_agent(state: State, roles: frozenset[str]) -> Alarm:
    """Return the alarm for open tasks that need an agent of another role, with the command that starts one."""
    needs = find_missing_roles(state, roles)
    if not needs:
        return Alarm(AlarmKind.NO_AGENT, "goal", "no agent of this crew can continue the open tasks", "liza status")
    waits = "; ".join(
        f"{', '.join(ids[:5])}{f' and {len(ids) - 5} more' if len(ids) > 5 else ''} {_WAITS[role]}"
        for role, ids in needs.items()
    )
    message = f"no agent of this crew can continue the open tasks: {waits}"
    return Alarm(AlarmKind.NO_AGENT, "goal", message, up_command_for(state, *(f"{role}-1" for role in needs)))
