"""What `liza watch --heal` does about an agent whose supervisor is gone. Pure.

An agent with a supervisor is left to it: `decide.py` reminds, ends and starts its sessions. Nothing here ends a session
that has work, removes a slot or interrupts an agent: a new supervisor adopts a living session.
"""

from __future__ import annotations

from liza.rules.sessions.agent_states import AgentFacts, AgentState, SessionPhase, derive_state
from liza.rules.value_classes import Value

MAX_RESTARTS = 3
"""Supervisors that are started again for one task before the planner and a person are told."""


class HealingFacts(Value):
    """An agent as `liza watch --heal` sees it.

    ``was_killed``: its supervisor ended without a record of its end. ``is_starting``: a new supervisor was started, and
    does not hold its lock yet. ``closed_seconds``: since when its session has closed its work; None if it has not.
    ``restarts``: supervisors that were started again for the work it holds. ``is_escalated``: planner and person know.
    """

    agent: AgentFacts
    was_killed: bool
    grace: float
    is_starting: bool = False
    closed_seconds: float | None = None
    restarts: int = 0
    is_escalated: bool = False


class RestartSupervisor(Value):
    """Start the supervisor again. It adopts the living session, or continues the work in the same slot."""

    agent: str
    why: str


class EndZombie(Value):
    """End the session of a run that holds no work."""

    run: str
    why: str


class Escalate(Value):
    """Tell the planner and a person."""

    agent: str
    why: str


class LeaveAlone(Value):
    """Do nothing, and why."""

    why: str


def decide_healing(facts: HealingFacts) -> RestartSupervisor | EndZombie | Escalate | LeaveAlone:
    """Return what to do about an agent."""
    agent = facts.agent
    if agent.is_supervised or facts.is_starting:
        return LeaveAlone("its supervisor acts")
    report = derive_state(agent)
    if report.state is AgentState.ZOMBIE:
        if facts.closed_seconds is not None and facts.closed_seconds < facts.grace:
            return LeaveAlone(f"{report.evidence}: it has {facts.grace:g} s to exit")
        return EndZombie(agent.session.run, report.evidence)
    if agent.work is None:
        return LeaveAlone("it holds no work")
    if agent.session.phase is SessionPhase.BY_HAND:
        return LeaveAlone(report.evidence)
    if not facts.was_killed:
        return LeaveAlone("its supervisor was stopped, or has said why it left")
    if agent.halt is not None:
        return LeaveAlone(agent.halt)
    if facts.restarts < MAX_RESTARTS:
        return RestartSupervisor(agent.agent, f"it holds {agent.work.name}, and its supervisor is gone")
    if facts.is_escalated:
        return LeaveAlone("the planner and a person know")
    return Escalate(agent.agent, f"{agent.work.name}: its supervisor was started {facts.restarts} times, and is gone")
