"""Derived fields: computed again in every transaction, for display and for hints. No decision reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from liza.model.history_events import VERDICTS, HistoryEvent
from liza.model.model import FINAL_STATUSES, Agent, State, Status
from liza.model.paths import split_run
from liza.model.statuses import AgentStatus
from liza.model.value_classes import replace

S = Status
_SUPERVISOR_STATUSES = (AgentStatus.STARTING, AgentStatus.WAITING, AgentStatus.OFFLINE)


def update_derived_fields(state: State) -> State:
    """Return the board with agents.status, agents.current_task and sprint.metrics computed from the tasks."""
    work = work_by_agent(state)
    agents = {name: _agent(agent, work.get(name)) for name, agent in state.agents.items()}
    return replace(state, agents=agents, sprint=replace(state.sprint, metrics=sprint_metrics(state)))


def restart_planning_rounds(state: State) -> State:
    """Return the board after a person changed it: from now on planning rounds are counted anew."""
    if not state.planning.rounds:
        return state
    return replace(state, planning=replace(state.planning, rounds=0))


def work_by_agent(state: State) -> dict[str, tuple[AgentStatus, str | None]]:
    """Return the status and the task (None: planning) of each agent that holds a claim, a review or planning."""
    work: dict[str, tuple[AgentStatus, str | None]] = {}
    if state.planning.run is not None:
        work[split_run(state.planning.run)[0]] = (AgentStatus.WORKING, None)
    for task in state.tasks:
        if task.reservation is not None:
            work[task.reservation.agent] = (AgentStatus.WORKING, task.id)
        elif task.status is S.CLAIMED and task.assigned_to:
            work[task.assigned_to] = (AgentStatus.HANDOFF if task.handoff_pending else AgentStatus.WORKING, task.id)
        if task.reviewing_by:
            work[task.reviewing_by] = (AgentStatus.REVIEWING, task.id)
    return work


def _agent(agent: Agent, work: tuple[AgentStatus, str | None] | None) -> Agent:
    if work is None:
        return replace(
            agent, status=agent.status if agent.status in _SUPERVISOR_STATUSES else AgentStatus.IDLE, current_task=None
        )
    if work[0] == AgentStatus.HANDOFF and agent.status == AgentStatus.OFFLINE:
        # The supervisor has exited. The task stays with this agent until it runs again.
        return replace(agent, current_task=work[1])
    return replace(agent, status=work[0], current_task=work[1])


def sprint_metrics(state: State) -> dict[str, Any]:
    """Return counts over the sprint's tasks, those in the archive included, for people and planners."""
    counts = Counter(task.status for task in state.tasks)
    counts.update({status: state.archived.counts.get(status.value, 0) for status in FINAL_STATUSES})
    verdicts = Counter(event.event for task in state.tasks for event in task.history if event.event in VERDICTS)
    verdicts.update(state.archived.verdicts)
    return {
        "total": len(state.tasks) + state.archived.total,
        "merged": counts[S.MERGED],
        "in_progress": sum(counts[status] for status in (S.CLAIMED, S.READY_FOR_REVIEW, S.APPROVED, S.REJECTED)),
        "blocked": counts[S.BLOCKED],
        "approved": verdicts[HistoryEvent.APPROVE],
        "rejected": verdicts[HistoryEvent.REJECT] + verdicts[HistoryEvent.DEADLOCK],
    }
