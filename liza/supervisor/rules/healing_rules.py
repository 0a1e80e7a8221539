"""What `liza up`, or its keeper, does about an agent whose supervisor is gone. Pure.

An agent with a supervisor is left to it: `decide.py` reminds, ends and starts its sessions. Nothing here ends a session
that has work, removes a slot or interrupts an agent: a new supervisor adopts a living session.
"""

from __future__ import annotations

from liza.model.agent_states import AgentFacts, AgentState, SessionPhase, derive_state
from liza.model.backoff import MAX_BACKOFF, backoff
from liza.model.value_classes import Value

MAX_RESTARTS = 3
"""Supervisors that are started again for one task before the planner and a person are told."""
FIRST_DELAY = 5.0
"""Seconds from a restart to the second one; the first restart is at once."""


class HealingFacts(Value):
    """An agent whose supervisor may be gone.

    ``is_kept``: this process keeps its supervisor running. ``was_killed``: its supervisor ended without a record of its
    end. ``closed_seconds``: since when its session has closed its work; None if it has not. ``restarts``: supervisors
    that were started again for the work it holds; ``since_restart``: seconds since the last one. ``is_escalated``:
    planner and person know.
    """

    agent: AgentFacts
    was_killed: bool
    grace: float
    is_kept: bool = True
    closed_seconds: float | None = None
    restarts: int = 0
    since_restart: float | None = None
    is_escalated: bool = False


class RestartSupervisor(Value):
    """Start the supervisor again, the ``count``-th time. It adopts the living session, or continues the work in the
    same slot."""

    agent: str
    count: int
    why: str


class RestartLater(Value):
    """Start the supervisor again later: after a pause, or when nothing halts the agent any more."""

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


def decide_healing(facts: HealingFacts) -> RestartSupervisor | RestartLater | EndZombie | Escalate | LeaveAlone:
    """Return what to do about an agent."""
    agent = facts.agent
    if agent.is_supervised:
        return LeaveAlone("its supervisor acts")
    report = derive_state(agent)
    if report.state is AgentState.ZOMBIE:
        if facts.closed_seconds is not None and facts.closed_seconds < facts.grace:
            return LeaveAlone(f"{report.evidence}: it has {facts.grace:g} s to exit")
        return EndZombie(agent.session.run, report.evidence)
    if not facts.is_kept:
        return LeaveAlone("its supervisor was not started here")
    if agent.session.phase is SessionPhase.BY_HAND:
        return LeaveAlone(report.evidence)
    if not facts.was_killed:
        return LeaveAlone("its supervisor was stopped, or has said why it left")
    if agent.work is None:
        return _decide_idle(facts)
    if facts.restarts >= MAX_RESTARTS:
        if facts.is_escalated:
            return LeaveAlone("the planner and a person know")
        why = f"{agent.work.name}: its supervisor was started {facts.restarts} times, and is gone"
        return Escalate(agent.agent, why)
    return _restart(facts, facts.restarts, f"it holds {agent.work.name}, and its supervisor is gone")


def _decide_idle(facts: HealingFacts) -> RestartSupervisor | RestartLater:
    """Nothing can be lost: there is no limit, and what was long ago does not count."""
    is_recent = facts.since_restart is not None and facts.since_restart <= 2 * MAX_BACKOFF
    return _restart(facts, facts.restarts if is_recent else 0, "its supervisor is gone")


def _restart(facts: HealingFacts, restarts: int, why: str) -> RestartSupervisor | RestartLater:
    if facts.agent.halt is not None:
        return RestartLater(f"{why}, and {facts.agent.halt}")
    pause = backoff(restarts, FIRST_DELAY, MAX_BACKOFF)
    # If the clock was set back, the last start is in the future: its age is unknown, and counts as long enough.
    if facts.since_restart is not None and 0 <= facts.since_restart < pause:
        return RestartLater(f"{why}; it is started again after {pause:g} s")
    return RestartSupervisor(facts.agent.agent, restarts + 1, why)
