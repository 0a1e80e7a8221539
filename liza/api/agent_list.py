"""The agents of the crew with their operating states, as `liza agents --json` shows them."""

from __future__ import annotations

from msgspec.structs import replace

from liza.api.api_answers import WorkerAnswer
from liza.board import signals
from liza.crew.crew import Crew
from liza.model.agent_states import AgentState
from liza.model.errors import LizaError
from liza.model.model import AwareDatetime, State
from liza.model.owned_work import find_current_work
from liza.model.paths import role_of, run_id, sort_agents
from liza.view import activity


class ListedAgent(WorkerAnswer, frozen=True, kw_only=True):
    """An agent with its operating state, the evidence for it, and since when. ``run_id`` is its newest run, ``task_id``
    the task that it holds. ``error``: why the state is unknown; then the state is null."""

    id: str
    role: str
    state: AgentState | None = None
    evidence: str | None = None
    state_since: AwareDatetime | None = None
    run_id: str | None = None
    task_id: str | None = None
    error: str | None = None


class AgentsAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """All agents of the crew: planners, coders, reviewers, each by number."""

    agents: tuple[ListedAgent, ...]


def list_agents(crew: Crew) -> AgentsAnswer:
    """Return all agents of the board. Raises LizaError, OSError if the board cannot be read."""
    state, signal_names = crew.board.read(), signals.active_signals(crew.paths)
    agents = (_list_agent(crew, state, agent, signal_names) for agent in sort_agents(state.agents))
    return AgentsAnswer(agents=tuple(agents))


def _list_agent(crew: Crew, state: State, agent: str, signal_names: tuple[str, ...]) -> ListedAgent:
    runs, work = state.agents[agent].runs, find_current_work(state, agent)
    row = ListedAgent(
        id=agent,
        role=role_of(agent),
        run_id=run_id(agent, runs) if runs else None,
        task_id=None if work is None else work.task,
    )
    try:
        report = activity.find_state(crew, state, agent, signal_names)
    except (LizaError, OSError) as error:
        return replace(row, error=str(error))
    return replace(row, state=report.state, evidence=report.evidence, state_since=report.since)
