"""Alarms about tasks that wait for a review which no agent of the crew gives. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.model import State, Status
from liza.rules.paths import role_of
from liza.rules.reports.up_command import up_command_for

REVIEWER = "code-reviewer"


def unreviewed_alarms(state: State, offline: Container[str], exits: Collection[str]) -> Iterator[Alarm]:
    """Yield an alarm if tasks wait for a review, and the crew has no reviewer.

    None for a crew that was stopped as a whole, unless it never had a reviewer, and none for tasks that persons work
    on without a crew. ``exits``: agents whose supervisor exited by itself, which is an alarm of its own.
    """
    waiting = [task.id for task in state.tasks if task.status is Status.READY_FOR_REVIEW and task.reviewing_by is None]
    supervised = {name for name, agent in state.agents.items() if agent.program}
    running = {name for name in supervised if name not in offline}
    reviewers = {name for name in (running or supervised) if role_of(name) == REVIEWER}
    if not waiting or not supervised or reviewers or any(role_of(name) == REVIEWER for name in exits):
        return
    names = ", ".join(waiting[:5]) + (f" and {len(waiting) - 5} more" if len(waiting) > 5 else "")
    verb = "waits" if len(waiting) == 1 else "wait"
    message = f"{names} {verb} for a review, and no reviewer runs"
    yield Alarm(AlarmKind.NEEDS_REVIEWER, waiting[0], message, up_command_for(state, f"{REVIEWER}-1"))
