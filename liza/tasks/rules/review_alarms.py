"""Alarms about tasks that wait for a review which no agent of the crew gives. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator

from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.model import State, Status, Task
from liza.model.paths import role_of
from liza.model.statuses import AgentStatus
from liza.tasks.rules.up_command import up_command_for

REVIEWER = "code-reviewer"


def unreviewed_alarms(state: State, offline: Container[str], exits: Collection[str]) -> Iterator[Alarm]:
    """Yield alarms if tasks wait for a review, and the crew has no reviewer.

    If a reviewer was killed while others run, it names the command that starts one. If the crew never had one, or its
    reviewers were stopped on request, as with `liza up --reviewers 0`, a person reviews: each task has an alarm.
    None for a crew that was stopped as a whole, unless it never had a reviewer, and none for tasks that persons work
    on without a crew. ``exits``: agents whose supervisor exited by itself, which is an alarm of its own.
    """
    waiting = [
        task
        for task in state.tasks
        if task.status is Status.READY_FOR_REVIEW and task.reviewing_by is None and task.review != "human"
    ]
    supervised = {name for name, agent in state.agents.items() if agent.program}
    running = {name for name in supervised if name not in offline}
    reviewers = {name for name in (running or supervised) if role_of(name) == REVIEWER}
    if not waiting or not supervised or reviewers or any(role_of(name) == REVIEWER for name in exits):
        return
    step = up_command_for(state, f"{REVIEWER}-1")
    if persons_review(state):
        for task in waiting:
            yield verdict_alarm(task, f", because the crew has no reviewer ({step})")
        return
    names = ", ".join(task.id for task in waiting[:5]) + (f" and {len(waiting) - 5} more" if len(waiting) > 5 else "")
    verb = "waits" if len(waiting) == 1 else "wait"
    message = f"{names} {verb} for a review, and no reviewer runs"
    yield Alarm(AlarmKind.NEEDS_REVIEWER, waiting[0].id, message, "", starts=(f"{REVIEWER}-1",))


def persons_review(state: State) -> bool:
    """Return whether the crew never had a reviewer, or each of its reviewers was stopped on request."""
    reviewers = [agent for name, agent in state.agents.items() if agent.program and role_of(name) == REVIEWER]
    return all(agent.status == AgentStatus.OFFLINE for agent in reviewers)


def verdict_alarm(task: Task, why: str = "") -> Alarm:
    """Return the alarm for a task whose submitted work waits for the verdict of a person."""
    message = f"{task.id} waits for your verdict{why}; its changes: liza diff {task.id}"
    since = task.history[-1].time if task.history else None
    return Alarm(AlarmKind.NEEDS_VERDICT, task.id, message, verdict_command(task.id), since)


def verdict_command(task_id: str) -> str:
    """Return the command with which a person approves the commit under review."""
    return f'liza verdict approve --task {task_id} "…"'
