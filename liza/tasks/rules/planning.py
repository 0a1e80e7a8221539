"""Triggers that wake a planner, its claim of a wake-up, its end, and the retrospective of a sprint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from liza.breaker.rules.breaker_trips import HALT, describe_trip, open_trips
from liza.config.rules import test_proof
from liza.model import targets
from liza.model.derived import describe_lack, find_current_work, find_lack, goal_seconds, is_incomplete, tasks_with
from liza.model.errors import Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import agent_of, role_of
from liza.model.setting_limits import lease_expiry
from liza.model.statuses import GoalStatus, SprintStatus, WakeTrigger, WorkKind
from liza.model.transitions import TRANSITIONS
from liza.model.value_classes import Value, replace
from liza.tasks.rules import claims
from liza.tasks.rules.claims import allocate_run
from liza.tasks.rules.picking import (
    CLAIMABLE_STATUSES,
    Evidence,
    failed_by_every_coder,
    occupation,
    unmet_dependencies,
    waits_for_author,
    waits_only_for_verdict,
)
from liza.tasks.rules.reviews import release_review
from liza.tasks.rules.strangers import is_foreign, lacks_permission
from liza.text.formats import count_noun, format_duration

S = Status
MAX_MERGE_TRIES = 2  # failures of one merge in a row, before a crew that is to end leaves it to a person
MAX_WAKES = 2  # planning sessions for the same trigger, before it waits for a person
WAKE_REASONS: dict[str, str] = {
    WakeTrigger.INITIAL_PLANNING: "there are no tasks yet",
    WakeTrigger.BREAKER_TRIPPED: "the circuit breaker tripped",
    WakeTrigger.IMMEDIATE_DISCOVERY: "something was found that cannot wait",
    WakeTrigger.HYPOTHESIS_EXHAUSTION: "two coders failed at a task",
    WakeTrigger.BLOCKED_TASKS: "a task asks something",
    WakeTrigger.INTEGRATION_FAILED: "a merge failed that no coder may fix any more",
    WakeTrigger.OPEN_DRAFTS: "a draft lacks something",
    WakeTrigger.SPRINT_COMPLETE: "every task is settled",
}
"""Trigger name → text for people."""
_BLOCKING_EVENTS = frozenset(row.verb for row in TRANSITIONS if row.target is S.BLOCKED)
MAX_FAILED_CODERS = 2  # coders that failed at a task, before it needs another plan
_NO_EVIDENCE = Evidence()


class Trigger(Value):
    """A reason to plan.

    ``facts`` is text for the brief. ``version``: data that changes when the same reason occurs again. Triggers with
    equal name, ids and version have the same fingerprint.
    """

    name: WakeTrigger
    ids: tuple[str, ...]
    facts: str
    version: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return "|".join((self.name, *self.ids, *self.version))


def find_triggers(state: State, evidence: Evidence = _NO_EVIDENCE) -> tuple[Trigger, ...]:
    """Return all current reasons to plan, the most urgent first.

    ``evidence`` says which coders are offline; without it, each coder on the board may continue its tasks.
    """
    if state.goal.status != GoalStatus.IN_PROGRESS:
        return ()
    if not state.tasks and not state.archived.total:
        return (Trigger(WakeTrigger.INITIAL_PLANNING, (), state.goal.description, (state.goal.description,)),)
    triggers = _breaker_tripped(state)
    urgent = [discovery for discovery in state.discovered if discovery.is_urgent]
    exhausted = [task for task in state.tasks if task.status is S.BLOCKED and len(task.failed_by) >= MAX_FAILED_CODERS]
    blocked = [task for task in state.tasks if task.status is S.BLOCKED and len(task.failed_by) < MAX_FAILED_CODERS]
    if urgent:
        triggers.append(
            Trigger(WakeTrigger.IMMEDIATE_DISCOVERY, tuple(discovery.id for discovery in urgent), urgent[0].description)
        )
    if exhausted:
        triggers.append(_blocked_trigger(WakeTrigger.HYPOTHESIS_EXHAUSTION, exhausted))
    if blocked:
        triggers.append(_blocked_trigger(WakeTrigger.BLOCKED_TASKS, blocked))
    triggers += _unmergeable(state, evidence) + _open_drafts(state) + _sprint_complete(state)
    return tuple(triggers)


def _breaker_tripped(state: State) -> list[Trigger]:
    """Return a trigger for the open trips of the circuit breaker; none if one is a halt, which only a person resolves.

    A trip that is added while others are open is a new reason to plan.
    """
    trips = open_trips(state)
    if not trips or any(trip.severity == HALT for trip in trips):
        return []
    ids = tuple(sorted({task for trip in trips for task in trip.tasks}))
    version = tuple(f"{trip.trigger}@{trip.time:%Y-%m-%dT%H:%M:%SZ}" for trip in trips)
    return [Trigger(WakeTrigger.BREAKER_TRIPPED, ids, "; ".join(map(describe_trip, trips)), version)]


def _blocked_trigger(name: WakeTrigger, tasks: list[Task]) -> Trigger:
    facts = "; ".join(f"{task.id}: {task.blocked_reason}" for task in tasks)
    return Trigger(name, tuple(task.id for task in tasks), facts, tuple(str(_count_blocks(task)) for task in tasks))


def _count_blocks(task: Task) -> int:
    """Return how often the task became BLOCKED."""
    return sum(event.event in _BLOCKING_EVENTS for event in task.history)


def _unmergeable(state: State, evidence: Evidence) -> list[Trigger]:
    """Return a trigger for failed merges that no coder may fix any more, or whose author is gone without another."""
    reasons = {task.id: _unfixable_reason(state, task, evidence) for task in tasks_with(state, S.INTEGRATION_FAILED)}
    stuck = {name: reason for name, reason in reasons.items() if reason}
    if not stuck:
        return []
    facts = "; ".join(f"{name}: {reason}" for name, reason in stuck.items())
    return [Trigger(WakeTrigger.INTEGRATION_FAILED, tuple(stuck), facts)]


def _unfixable_reason(state: State, task: Task, evidence: Evidence) -> str:
    """Return why no coder fixes the failed merge of this task; empty if one may."""
    if len(task.failed_by) >= MAX_FAILED_CODERS:
        return f"{' and '.join(task.failed_by)} failed it"
    coders = {name for name in state.agents if role_of(name) == "coder"} - set(task.failed_by)
    author = task.assigned_to
    if task.reservation is not None or author is None or any(name not in evidence.offline for name in coders):
        return ""
    why = "is off" if author in state.agents else "is not on the board any more"
    return f"its author {author} {why}, and no other coder may take it"


def _open_drafts(state: State) -> list[Trigger]:
    """Return a trigger for the drafts that lack something, without those that a planner has left as they are."""
    left = set(state.planning.exhausted)
    lacks = {task.id: lack for task in state.tasks if (lack := describe_lack(task)) and _left_mark(task.id) not in left}
    if not lacks:
        return []
    facts = "; ".join(f"{name}: {lack}" for name, lack in lacks.items())
    return [Trigger(WakeTrigger.OPEN_DRAFTS, tuple(lacks), facts)]


def _left_mark(task_id: str) -> str:
    """Return how ``exhausted`` names a draft that a planner has left: as the fingerprint of a trigger for it alone."""
    return Trigger(WakeTrigger.OPEN_DRAFTS, (task_id,), "").fingerprint


def leave_drafts(state: State, run: str) -> State:
    """Return the board after the decision of a planner: the incomplete drafts that it knows wake no planner again.

    It knows those that woke it, and those that it has added or edited itself.
    """
    plan, planner = state.planning, agent_of(run)
    lacks = ((task.id, find_lack(task)) for task in state.tasks)
    names = [name for name, lack in lacks if lack is not None and (name in plan.ids or lack.agent == planner)]
    if plan.run != run or not names:
        return state
    exhausted = tuple(sorted({*plan.exhausted, *map(_left_mark, names)}))
    return replace(state, planning=replace(plan, exhausted=exhausted))


def _sprint_complete(state: State) -> list[Trigger]:
    if state.sprint.status != SprintStatus.IN_PROGRESS or not _is_all_done(state):
        return []
    return [_end_of_sprint(state)]


def _end_of_sprint(state: State) -> Trigger:
    """Return the trigger for the case that all tasks are closed."""
    # The same numbers before and after a move to the archive: it is no new reason to plan.
    merged = sum(task.status is S.MERGED for task in state.tasks) + state.archived.counts.get(S.MERGED, 0)
    total = len(state.tasks) + state.archived.total
    return Trigger(WakeTrigger.SPRINT_COMPLETE, (), f"{merged} of {total} merged", (str(merged), str(total)))


def checkpoint_reason(state: State) -> str | None:
    """Return why the crew must stop at a checkpoint before a planner adds more tasks; None if it need not.

    That is at the end of the sprint, if planners have added tasks there ``config.planning_rounds`` times since a person
    last changed the board.
    """
    rounds, limit = state.planning.rounds, state.config.planning_rounds
    if not 0 < limit <= rounds or state.goal.status != GoalStatus.IN_PROGRESS or not _sprint_complete(state):
        return None
    times = "1 time" if rounds == 1 else f"{rounds} times in a row"
    return (
        f"{WAKE_REASONS[WakeTrigger.SPRINT_COMPLETE]}, and planners have added tasks {times} since a person said "
        "anything (config.planning_rounds)"
    )


def _count_round(state: State) -> State:
    """Count the session of the planning claim that ends, if it was woken by the end of the sprint and added tasks."""
    plan = state.planning
    if plan.trigger != WakeTrigger.SPRINT_COMPLETE or plan.fingerprint == _end_of_sprint(state).fingerprint:
        return state
    return replace(state, planning=replace(plan, rounds=plan.rounds + 1))


def next_trigger(state: State, evidence: Evidence = _NO_EVIDENCE) -> Trigger | str:
    """Return the trigger to wake a planner for now, or the reason (text) why there is none.

    After MAX_WAKES wake-ups for the same trigger that changed nothing, the trigger waits for a person, and at a
    checkpoint so does the end of the sprint. The next trigger wakes the planner meanwhile.
    """
    triggers = find_triggers(state, evidence)
    if not triggers:
        return "nothing to plan"
    if state.planning.run is not None and state.planning.run not in evidence.abandoned:
        return f"{state.planning.run} is planning {state.planning.trigger}"
    exhausted, checkpoint = _exhausted_fingerprints(state), checkpoint_reason(state)
    if checkpoint is not None:
        exhausted |= {_end_of_sprint(state).fingerprint}
    trigger = next((trigger for trigger in triggers if trigger.fingerprint not in exhausted), None)
    if trigger is not None:
        return trigger
    if checkpoint is not None:
        return f"{checkpoint}: it waits for a person"
    first = triggers[0]
    about = f" ({', '.join(first.ids)})" if first.ids else ""
    reason = f"{WAKE_REASONS[first.name]}{about}"
    return f"{reason}, and {MAX_WAKES} planning sessions changed nothing: it waits for a person"


def _exhausted_fingerprints(state: State) -> frozenset[str]:
    """Return the fingerprints of the triggers for which a planner was woken MAX_WAKES times."""
    plan = state.planning
    last = {plan.fingerprint} if plan.fingerprint is not None and plan.count >= MAX_WAKES else set()
    return frozenset(plan.exhausted) | last


def claim_planning(state: State, agent: str, now: datetime, evidence: Evidence = _NO_EVIDENCE) -> tuple[State, str]:
    """Claim the current wake-up for ``agent``; return the board and the new run. Raises Refused."""
    trigger = next_trigger(state, evidence)
    if isinstance(trigger, str):
        raise Refused(f"{agent} has nothing to plan: {trigger}", "liza status")
    busy = occupation(state, agent)
    if busy:
        raise Refused(f"{agent} is busy with {busy}", f"liza agents {agent}")
    state, run = allocate_run(_count_round(state), agent)
    previous = state.planning
    present = {other.fingerprint for other in find_triggers(state, evidence)} - {trigger.fingerprint}
    present |= {_left_mark(task.id) for task in state.tasks if is_incomplete(task)}
    planning = replace(
        previous,
        exhausted=tuple(sorted(_exhausted_fingerprints(state) & present)),
        run=run,
        trigger=trigger.name.value,
        ids=trigger.ids,
        fingerprint=trigger.fingerprint,
        count=previous.count + 1 if previous.fingerprint == trigger.fingerprint else 1,
        lease_expires=lease_expiry(state.config, now),
    )
    return replace(state, planning=planning), run


def end_planning(state: State, run: str, end: SprintEnd | None = None) -> State:
    """End the planning session of ``run``, with or without a decision; unchanged if ``run`` does not hold it.

    ``end``: the time and the usage of the sprint, for its retrospective if this completes it.
    """
    if state.planning.run != run:
        return state
    over = replace(_count_round(state).planning, run=None, trigger=None, ids=(), lease_expires=None)
    return _close_goal(replace(state, planning=over), state.planning.trigger, end)


def end_at_checkpoint(state: State, run: str) -> State:
    """End the planning session of ``run``, which asked for a person; unchanged if ``run`` does not hold it.

    The goal stays in progress. Once the person has resumed the crew, the same trigger wakes a planner as if anew.
    """
    if state.planning.run != run:
        return state
    over = replace(_count_round(state).planning, run=None, trigger=None, ids=(), lease_expires=None)
    return replace(state, planning=replace(over, fingerprint=None, count=0))


def undo_planning_claim(state: State, run: str) -> State:
    """Undo a wake-up whose session could not reach the board; unchanged if ``run`` does not hold it."""
    previous = state.planning
    if previous.run != run:
        return state
    count = max(previous.count - 1, 0)
    return replace(state, planning=replace(previous, run=None, trigger=None, ids=(), lease_expires=None, count=count))


def _close_goal(state: State, trigger: str | None, end: SprintEnd | None) -> State:
    """Complete goal and sprint if a planner was woken for SPRINT_COMPLETE and added no task."""
    if trigger != WakeTrigger.SPRINT_COMPLETE or not _is_all_done(state):
        return state
    completed = replace(
        state,
        goal=replace(state.goal, status=GoalStatus.COMPLETED.value),
        sprint=replace(state.sprint, status=SprintStatus.COMPLETED.value),
    )
    if end is None:
        return completed

    return close_sprint(completed, end)


def is_crew_done(state: State, has_planner: bool) -> bool:
    """Return whether a crew has nothing more to do: the goal is not in progress, or all tasks are final and there is
    no planner.
    """
    if state.goal.status != GoalStatus.IN_PROGRESS:
        return True
    has_tasks = bool(state.tasks) or state.archived.total > 0
    return not has_planner and has_tasks and _is_all_done(state)


def is_idle(state: State) -> bool:
    """Return whether no agent works on anything, and none can begin a task or a review without a person."""
    return state.planning.run is None and not any(
        task.status is S.CLAIMED
        or task.reviewing_by is not None
        or (task.status is S.READY_FOR_REVIEW and not waits_only_for_verdict(task))
        or (task.status in CLAIMABLE_STATUSES and not waits_for_author(task) and not unmet_dependencies(state, task))
        for task in state.tasks
    )


def is_task_over(state: State, task_id: str, roles: frozenset[str]) -> bool:
    """Return whether a task is closed, and supervisors of ``roles`` can continue no other one without a person."""
    task = state.task(task_id)
    is_closed = task is None or (task.status in FINAL_STATUSES and not targets.is_to_land(task))
    return is_closed and not can_continue(state, roles)


def _is_all_done(state: State) -> bool:
    """Return whether all tasks are closed and all epics have landed."""
    return all(task.status in FINAL_STATUSES and not targets.is_to_land(task) for task in state.tasks)


def find_others(state: State, task_id: str) -> frozenset[str]:
    """Return the tasks without this one and those that it depends on."""
    names, left = set[str](), [task_id]
    while left:
        task = state.task(left.pop())
        if task is not None and task.id not in names:
            names.add(task.id)
            left += [*task.depends_on, *task.superseded_by]
    return frozenset(task.id for task in state.tasks) - names


def without_others(state: State, task_id: str | None) -> State:
    """Return the board with no other tasks than this one and those that it depends on; all without a ``task_id``."""
    if task_id is None:
        return state
    others = find_others(state, task_id)
    return replace(state, tasks=tuple(task for task in state.tasks if task.id not in others))


def find_stalled_tasks(state: State, roles: frozenset[str]) -> tuple[str, ...]:
    """Return the open tasks if supervisors of ``roles`` can continue none of them, whatever a person does."""
    unfinished = [task for task in state.tasks if task.status not in FINAL_STATUSES]
    if _can_plan(state, roles) or any(_has_role_after_person(task, roles) for task in unfinished):
        return ()
    return tuple(task.id for task in unfinished)


def waits_for_verdict(task: Task) -> bool:
    """Return whether only a person can review the submitted work of a task."""
    return task.status is S.READY_FOR_REVIEW and (task.review == "human" or is_foreign(task))


def find_missing_roles(state: State, roles: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Return the roles beside ``roles`` that open tasks wait for: role → ids of those tasks."""
    needs: dict[str, tuple[str, ...]] = {}
    for task in state.tasks:
        role = None if waits_for_verdict(task) or waits_for_author(task) else _NEEDS.get(task.status)
        if role is not None and role not in roles and not unmet_dependencies(state, task):
            needs[role] = (*needs.get(role, ()), task.id)
    return needs


def can_continue(state: State, roles: frozenset[str]) -> bool:
    """Return whether supervisors of ``roles`` can plan, or continue a task, without a person."""
    is_to_land = bool(roles) and _may_merge(state) and any(map(targets.is_to_land, state.tasks))
    if is_to_land or _can_plan(state, roles):
        return True
    return any(_can_progress(state, task, roles) for task in state.tasks if task.status not in FINAL_STATUSES)


def may_plan_for_breaker(state: State, roles: frozenset[str]) -> bool:
    """Return whether a planner looks, or may look, for the cause of a trip that has set CHECKPOINT."""
    if "planner" not in roles:
        return False
    trigger = next_trigger(state)
    is_due = isinstance(trigger, Trigger) and trigger.name is WakeTrigger.BREAKER_TRIPPED
    return is_due or state.planning.trigger == WakeTrigger.BREAKER_TRIPPED


def _can_plan(state: State, roles: frozenset[str]) -> bool:
    return "planner" in roles and (state.planning.run is not None or isinstance(next_trigger(state), Trigger))


def _has_role(task: Task, roles: frozenset[str]) -> bool:
    """Return whether one of ``roles`` continues tasks of this status. Every supervisor merges."""
    if task.status is S.APPROVED:
        return bool(roles)
    if waits_only_for_verdict(task) or waits_for_author(task):
        return False
    return _NEEDS.get(task.status, "planner") in roles - {"planner"}


def _has_role_after_person(task: Task, roles: frozenset[str]) -> bool:
    """Return whether one of ``roles`` continues the task once a person has answered it or completed the draft."""
    return _has_role(task, roles) or (task.status in (S.BLOCKED, S.DRAFT) and "coder" in roles)


def _can_progress(state: State, task: Task, roles: frozenset[str]) -> bool:
    if task.status is S.APPROVED and (not _may_merge(state) or _is_merge_held(state, task)):
        return False
    if task.status in CLAIMABLE_STATUSES and (unmet_dependencies(state, task) or failed_by_every_coder(state, task)):
        return False
    return _has_role(task, roles)


def _may_merge(state: State) -> bool:
    """Return whether supervisors merge: not while the tests are known to say nothing about a candidate."""
    return test_proof.untested_reason(state.config) is None


def _is_merge_held(state: State, task: Task) -> bool:
    """Return whether an approved task waits for a person, for files of the checkout, or for other tasks."""
    is_waiting = task.merging is not None and bool(task.merging.waiting)
    has_failed = task.set_aside is not None and task.set_aside.tries >= MAX_MERGE_TRIES
    return (
        task.merge_hold is not None
        or is_waiting
        or has_failed
        or lacks_permission(task)
        or bool(unmet_dependencies(state, task))
    )


_NEEDS = {
    **dict.fromkeys((S.UNCLAIMED, S.CLAIMED, S.REJECTED, S.INTEGRATION_FAILED), "coder"),
    S.READY_FOR_REVIEW: "code-reviewer",
}
"""Role whose supervisor a task waits for. Every supervisor merges."""


E = HistoryEvent
_REJECTIONS: dict[str, str] = {E.REJECT: "by a reviewer", E.DEADLOCK: "as the last one allowed"}
"""Kinds of rejections: event → text."""


class SprintEnd(Value):
    """When a sprint ended, and its usage as text; empty if it cannot be read."""

    time: datetime
    cost: str = ""


def close_sprint(state: State, end: SprintEnd) -> State:
    """Return the board with the end of its sprint and the retrospective."""
    timeline = replace(state.sprint.timeline, ended=end.time)
    sprint = replace(state.sprint, timeline=timeline, retrospective=describe_sprint_end(state, end))
    return replace(state, sprint=sprint)


def describe_sprint_end(state: State, end: SprintEnd) -> str:
    """Return the retrospective: tasks, tries, rejections by kind, failed merges, reports, cost and time; a line each.

    The histories of archived tasks are not on the board, so only their statuses and verdicts are counted.
    """
    events = Counter(event.event for task in state.tasks for event in task.history)
    events.update(state.archived.verdicts)
    statuses = Counter(task.status.value for task in state.tasks)
    statuses.update({status.value: state.archived.counts.get(status, 0) for status in FINAL_STATUSES})
    most = max(state.tasks, key=lambda task: task.iteration, default=None)
    tries = f"tries: {sum(task.iteration for task in state.tasks)}"
    tries += f", most for {most.id}: {most.iteration}" if most is not None and most.iteration > 1 else ""
    rejections = {text: events[event] for event, text in _REJECTIONS.items()}
    total = sum(rejections.values())
    lines = [
        f"tasks: {_counts(statuses)}",
        tries,
        f"rejections: {total}" + (f" ({_counts(rejections)})" if total else ""),
        f"failed merges: {events[E.MERGE_FAILED] - events[E.MERGE_CLEARED]}",
        f"crashed sessions: {events[E.CRASH]}",
        *_report_line(state),
    ]
    seconds = goal_seconds(state, end.time)
    lines += [f"cost: {end.cost}"] if end.cost else []
    lines += [f"time: {format_duration(seconds)}"] if seconds is not None else []
    archived = state.archived.total
    lines += [f"without the tries and merges of {count_noun(archived, 'archived task')}"] if archived else []
    return "\n".join(lines)


def _report_line(state: State) -> list[str]:
    """Return what agents reported; empty if they reported nothing."""
    converted = sum(discovery.converted_to_task is not None for discovery in state.discovered)
    kinds = Counter(anomaly.type for anomaly in state.anomalies)
    parts = [f"{count_noun(len(state.discovered), 'discovery', 'discoveries')}, {converted} of them tasks"]
    parts = parts if state.discovered else []
    return [f"reports: {', '.join([*parts, *filter(None, [_counts(kinds)])])}"] if parts or kinds else []


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def move_agent(state: State, agent: str, host: str, now: datetime) -> State:
    """Return the board with the supervisor of ``agent`` on ``host``.

    What the agent holds on another host is free again: its worktree is there, and no session of it lives any more.
    """
    former = state.agents[agent].host if agent in state.agents else host
    state = claims.ensure_agent(state, agent, host)
    work = find_current_work(state, agent) if former != host else None
    if work is None:
        return state
    if work.kind == WorkKind.WORK and work.task is not None:
        return claims.release(state, work.task, work.run, now, agent, f"{agent} is on another host now: {host}")
    return give_back_work(state, agent, now)


def give_back_work(state: State, agent: str, now: datetime) -> State:
    """Give back what ``agent`` holds. A claim is stopped and stays with its coder; a review or planning is free again.

    Unchanged if it holds nothing.
    """
    work = find_current_work(state, agent)
    if work is None:
        return state
    if work.kind == WorkKind.PLANNING:
        return end_planning(state, work.run)
    if work.task is None:
        return state
    if work.kind == WorkKind.REVIEW:
        return release_review(state, work.task, work.run, now)
    return claims.stop(state, work.task, work.run, now)
