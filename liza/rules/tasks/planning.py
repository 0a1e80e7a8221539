"""What wakes a planner, and its claim of the wake-up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from liza.rules.errors import NotOwner, Refused
from liza.rules.model import FINAL_STATUSES, State, Status
from liza.rules.paths import agent_of
from liza.rules.tasks.claims import allocate_run, lease_expiry
from liza.rules.tasks.picking import Evidence, occupation

S = Status
MAX_WAKES = 2
WAKE_REASONS = {
    "INITIAL_PLANNING": "there are no tasks yet",
    "IMMEDIATE_DISCOVERY": "something was found that cannot wait",
    "HYPOTHESIS_EXHAUSTION": "two coders failed at a task",
    "BLOCKED_TASKS": "a task asks something",
    "INTEGRATION_FAILED": "a merge that nobody may mend any more",
    "SPRINT_COMPLETE": "every task is settled",
}
"""What wakes a planner, in words."""
MAX_FAILED_CODERS = 2
_NO_EVIDENCE = Evidence()


@dataclass(frozen=True)
class Trigger:
    """A reason to plan: the same name, ids and facts have the same fingerprint."""

    name: str
    ids: tuple[str, ...]
    facts: str

    @property
    def fingerprint(self) -> str:
        return "|".join((self.name, *self.ids, self.facts))


def find_triggers(state: State) -> tuple[Trigger, ...]:
    """Every reason to plan that stands, the most urgent first."""
    if state.goal.status != "IN_PROGRESS":
        return ()
    if not state.tasks:
        return (Trigger("INITIAL_PLANNING", (), state.goal.description),)
    found: list[Trigger] = []
    urgent = [one for one in state.discovered if one.urgency == "immediate" and one.converted_to_task is None]
    exhausted = [task for task in state.tasks if task.status is S.BLOCKED and len(task.failed_by) >= MAX_FAILED_CODERS]
    blocked = [task for task in state.tasks if task.status is S.BLOCKED and len(task.failed_by) < MAX_FAILED_CODERS]
    if urgent:
        found.append(Trigger("IMMEDIATE_DISCOVERY", tuple(one.id for one in urgent), urgent[0].description))
    if exhausted:
        facts = "; ".join(f"{task.id}: {task.blocked_reason}" for task in exhausted)
        found.append(Trigger("HYPOTHESIS_EXHAUSTION", tuple(task.id for task in exhausted), facts))
    if blocked:
        facts = "; ".join(f"{task.id}: {task.blocked_reason}" for task in blocked)
        found.append(Trigger("BLOCKED_TASKS", tuple(task.id for task in blocked), facts))
    found += _unmergeable(state) + _sprint_complete(state)
    return tuple(found)


def _unmergeable(state: State) -> list[Trigger]:
    """Integration failures that no coder may mend any more."""
    stuck = [
        task for task in state.tasks if task.status is S.INTEGRATION_FAILED and len(task.failed_by) >= MAX_FAILED_CODERS
    ]
    if not stuck:
        return []
    return [Trigger("INTEGRATION_FAILED", tuple(task.id for task in stuck), "nobody may mend them any more")]


def _sprint_complete(state: State) -> list[Trigger]:
    if state.sprint.status != "IN_PROGRESS" or not all(task.status in FINAL_STATUSES for task in state.tasks):
        return []
    merged = sum(task.status is S.MERGED for task in state.tasks)
    return [Trigger("SPRINT_COMPLETE", (), f"{merged} of {len(state.tasks)} merged")]


def next_trigger(state: State, evidence: Evidence = _NO_EVIDENCE) -> Trigger | str:
    """The trigger that a planner should be woken for now, or the reason why none is."""
    standing = find_triggers(state)
    if not standing:
        return "nothing to plan"
    first = standing[0]
    if state.planning.run is not None and state.planning.run not in evidence.abandoned:
        return f"{state.planning.run} is planning {state.planning.trigger}"
    if state.planning.fingerprint == first.fingerprint and state.planning.count >= MAX_WAKES:
        about = f" ({', '.join(first.ids)})" if first.ids else ""
        return f"{WAKE_REASONS[first.name]}{about}, and {MAX_WAKES} planning sessions changed nothing: it waits for a person"
    return first


def claim_planning(state: State, agent: str, now: datetime, evidence: Evidence = _NO_EVIDENCE) -> tuple[State, str]:
    """``agent`` takes the wake-up that stands; its run. Raises Refused."""
    trigger = next_trigger(state, evidence)
    if isinstance(trigger, str):
        raise Refused(f"{agent} has nothing to plan: {trigger}", "liza status")
    busy = occupation(state, agent)
    if busy:
        raise Refused(f"{agent} is busy with {busy}", f"liza agents {agent}")
    state, run = allocate_run(state, agent)
    known = state.planning
    planning = replace(
        known,
        run=run,
        trigger=trigger.name,
        ids=trigger.ids,
        fingerprint=trigger.fingerprint,
        count=known.count + 1 if known.fingerprint == trigger.fingerprint else 1,
        lease_expires=lease_expiry(state, now),
    )
    return replace(state, planning=planning), run


def end_planning(state: State, run: str) -> State:
    """The planner's session is over, with or without its word; unchanged where it is not this run's."""
    if state.planning.run != run:
        return state
    over = replace(state.planning, run=None, trigger=None, ids=(), lease_expires=None)
    return _close_goal(replace(state, planning=over), state.planning.trigger)


def undo_planning_claim(state: State, run: str) -> State:
    """The planner's session could not reach the board: as if it had not been woken. Unchanged where it is not this
    run's."""
    known = state.planning
    if known.run != run:
        return state
    count = max(known.count - 1, 0)
    return replace(state, planning=replace(known, run=None, trigger=None, ids=(), lease_expires=None, count=count))


def _close_goal(state: State, trigger: str | None) -> State:
    """A planner that was asked whether the sprint is complete, and added nothing, has said yes."""
    if trigger != "SPRINT_COMPLETE" or not all(task.status in FINAL_STATUSES for task in state.tasks):
        return state
    return replace(
        state, goal=replace(state.goal, status="COMPLETED"), sprint=replace(state.sprint, status="COMPLETED")
    )


def is_crew_done(state: State, has_planner: bool) -> bool:
    """Whether a crew has nothing more to do: the goal is not in progress, or there is no planner and all tasks are
    final."""
    if state.goal.status != "IN_PROGRESS":
        return True
    return not has_planner and bool(state.tasks) and all(task.status in FINAL_STATUSES for task in state.tasks)


def find_stalled_tasks(state: State, roles: frozenset[str]) -> tuple[str, ...]:
    """The open tasks, where none of them can go on with supervisors of these roles only; nothing where one can."""
    unfinished = [task for task in state.tasks if task.status not in FINAL_STATUSES]
    plans = "planner" in roles and (state.planning.run is not None or isinstance(next_trigger(state), Trigger))
    if plans or any(_NEEDS.get(task.status, "planner") in roles - {"planner"} for task in unfinished):
        return ()
    if roles and any(task.status is S.APPROVED for task in unfinished):
        return ()
    return tuple(task.id for task in unfinished)


_NEEDS = {
    **dict.fromkeys((S.UNCLAIMED, S.CLAIMED, S.REJECTED, S.INTEGRATION_FAILED), "coder"),
    S.READY_FOR_REVIEW: "code-reviewer",
}
"""Whose supervisor a task waits for; every supervisor merges."""


def require_planner(state: State, run: str) -> None:
    """The fence for a planner's verbs. Raises NotYours."""
    if state.planning.run != run:
        raise NotOwner(
            f"{run} is not the planning run; {state.planning.run or 'nobody'} is. Stop at once", "liza status"
        )


def current_planner(state: State) -> str | None:
    """Who plans now."""
    return agent_of(state.planning.run) if state.planning.run else None
