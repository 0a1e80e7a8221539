"""The operating state of an agent, derived from facts: what it does, since when, and by which evidence. Pure.

No command sets a state. `status` and `agents` show it; specs/architecture/agent-states.md has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from liza.model.value_classes import Value, field


class StoppedProcesses(Value):
    """Processes that a signal stopped: pids of supervisors by agent, and of a `liza up` or the keeper."""

    supervisors: Mapping[str, int] = field(default_factory=dict)
    keepers: tuple[int, ...] = ()


class AgentState(StrEnum):
    """Operating state of an agent."""

    WORKING = "working"
    IDLE = "idle"
    STARTING = "starting"
    STALLED = "stalled"
    ZOMBIE = "zombie"
    STUCK = "stuck"


class SessionPhase(StrEnum):
    """What is known about the newest session of an agent. BY_HAND: a person or a script does the work without one."""

    NONE = "none"
    SET_UP = "set-up"
    STARTING = "starting"
    READY = "ready"
    BY_HAND = "by hand"


class Work(Value):
    """What an agent holds: ``name`` for people, such as ``t1`` or ``the review of t1``; ``since`` when, if known."""

    name: str
    since: datetime | None = None


class Session(Value):
    """The newest session of an agent: its run, phase, and when that began, if known.

    ``is_of_work``: it is the session of the work that the agent holds. ``closed_at``: when it wrote its closing code,
    None before.
    """

    run: str = ""
    phase: SessionPhase = SessionPhase.NONE
    since: datetime | None = None
    is_of_work: bool = False
    closed_at: datetime | None = None


class AgentFacts(Value):
    """Facts about an agent. ``halt``: why nothing is started now, as a signal or a rest. ``closed``: until when no
    supervisor starts a session; a supervisor itself may be started. ``question``: what its session asks a person.
    ``no_progress``: why its session makes none. ``blocked``: the tasks for which it has asked for help.
    ``is_starting_up``: a supervisor runs, and has not finished its recovery. ``host``: the other host that has the
    supervisor, and the files of its sessions; empty for this host.
    """

    agent: str
    is_supervised: bool
    work: Work | None = None
    session: Session = Session()
    halt: str | None = None
    closed: str | None = None
    question: str | None = None
    no_progress: str | None = None
    blocked: tuple[Work, ...] = ()
    is_starting_up: bool = False
    host: str = ""


class StateReport(Value):
    """State of an agent, the evidence in one sentence, and since when; None if that is unknown."""

    state: AgentState
    evidence: str
    since: datetime | None = None


def derive_state(facts: AgentFacts) -> StateReport:
    """Return the state of an agent."""
    if facts.host:
        return _on_other_host(facts)
    if facts.work is None:
        return _without_work(facts)
    if not facts.session.is_of_work or facts.session.phase is SessionPhase.NONE:
        return _without_session(facts, facts.work)
    session = facts.session
    match session.phase:
        case SessionPhase.SET_UP:
            return StateReport(AgentState.STARTING, f"the set-up for {facts.work.name} runs", session.since)
        case SessionPhase.BY_HAND:
            return StateReport(AgentState.WORKING, f"{facts.work.name} is worked on by hand", facts.work.since)
        case _ if facts.question is not None:
            return StateReport(AgentState.STUCK, f"{session.run} asks: {facts.question}", session.since)
        case _ if facts.no_progress is not None:
            return StateReport(AgentState.STUCK, f"{session.run} makes {facts.no_progress}", session.since)
        case SessionPhase.STARTING:
            return StateReport(AgentState.STARTING, f"{session.run} has not read its brief yet", session.since)
        case _:
            return StateReport(AgentState.WORKING, f"{session.run} works on {facts.work.name}", session.since)


def _on_other_host(facts: AgentFacts) -> StateReport:
    """Return what the board says of an agent whose session this host cannot see."""
    if facts.work is not None:
        return StateReport(AgentState.WORKING, f"it holds {facts.work.name} on the host {facts.host}", facts.work.since)
    if facts.blocked:
        return _without_work(facts)
    return StateReport(AgentState.IDLE, f"it holds no work; its supervisor is on the host {facts.host}")


def _without_work(facts: AgentFacts) -> StateReport:
    session = facts.session
    if session.phase in (SessionPhase.STARTING, SessionPhase.READY):
        reason = "has closed its work" if session.closed_at is not None else "has lost its work"
        return StateReport(AgentState.ZOMBIE, f"{session.run} {reason} and still runs", session.closed_at)
    if facts.blocked:
        first = facts.blocked[0]
        return StateReport(AgentState.STUCK, f"it asked for help with {first.name}", first.since)
    if facts.is_starting_up:
        return StateReport(AgentState.STARTING, "its supervisor starts up")
    return StateReport(AgentState.IDLE, "it holds no work and has no session", session.closed_at)


def _without_session(facts: AgentFacts, work: Work) -> StateReport:
    halt = facts.halt or (facts.closed if facts.is_supervised else None)
    if halt is not None:
        return StateReport(AgentState.STALLED, f"it holds {work.name}, and {halt}", work.since)
    if facts.is_supervised:
        return StateReport(AgentState.STARTING, f"its supervisor starts a session for {work.name}", work.since)
    return StateReport(AgentState.STALLED, f"it holds {work.name}, and has no session and no supervisor", work.since)
