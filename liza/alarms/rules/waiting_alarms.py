"""What the supervisors of a crew wait for when only a person can continue it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms, join_names
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.model import State
from liza.model.paths import ROLES
from liza.tasks.rules.picking import MissingParts
from liza.tasks.rules.planning import can_continue, find_missing_roles, is_crew_done
from liza.tasks.rules.up_command import up_command_for

_WAITING_KINDS = frozenset(
    {
        AlarmKind.BACK_WITH_AUTHOR,
        AlarmKind.BLOCKED,
        AlarmKind.HYPOTHESIS_EXHAUSTION,
        AlarmKind.IMMEDIATE_DISCOVERY,
        AlarmKind.INCOMPLETE_DRAFT,
        AlarmKind.MERGE_HELD,
        AlarmKind.MERGE_SET_ASIDE,
        AlarmKind.STALE_DRAFT,
        AlarmKind.NEEDS_ANOTHER_CODER,
        AlarmKind.NEEDS_PERMISSION,
        AlarmKind.NEEDS_VERDICT,
        AlarmKind.NEVER_CLAIMABLE,
        AlarmKind.PLANNERS_CHECKPOINT,
        AlarmKind.PLANNING_ROUNDS,
        AlarmKind.PLANNING_STALLED,
        AlarmKind.TESTS_ELSEWHERE,
        AlarmKind.TESTS_GREEN,
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
        return (AlarmKind.NO_TASKS.alarm("goal"),)
    return (_no_agent(state, roles),)


def _no_agent(state: State, roles: frozenset[str]) -> Alarm:
    """Return the alarm for open tasks that need an agent of another role, with the command that starts one."""
    needs = find_missing_roles(state, roles)
    waits = "; ".join(f"{join_names(ids)} {_WAITS[role]}" for role, ids in needs.items())
    step = up_command_for(state, *(f"{role}-1" for role in needs)) if needs else "liza status"
    return AlarmKind.NO_AGENT.alarm("goal", waits=f": {waits}" if waits else "", step=step)
