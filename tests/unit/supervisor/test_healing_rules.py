"""What `liza up` or its keeper does about an agent without a supervisor: a table of facts and decisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.agent_states import AgentFacts, Session, SessionPhase, Work
from liza.supervisor.rules.healing_rules import (
    EndZombie,
    Escalate,
    HealingFacts,
    LeaveAlone,
    RestartLater,
    RestartSupervisor,
    decide_healing,
)

WORK = Work("t1")
LIVING = Session("coder-1.3", SessionPhase.READY, is_of_work=True)
LEFT_OVER = Session("coder-1.3", SessionPhase.READY)
HOLDS = "it holds t1, and its supervisor is gone"
GONE = "its supervisor is gone"
RESTART = RestartSupervisor("coder-1", 1, HOLDS)
NONE = Session()


def facts(work: Work | None = WORK, session: Session = NONE, **more: Any) -> HealingFacts:
    agent = AgentFacts("coder-1", more.pop("is_supervised", False), work, session, more.pop("halt", None))
    return HealingFacts(**{"agent": agent, "was_killed": True, "grace": 10.0, **more})


@pytest.mark.parametrize(
    ("seen", "decision"),
    [
        (facts(), RESTART),
        (facts(session=LIVING), RESTART),
        (facts(restarts=2), RestartSupervisor("coder-1", 3, HOLDS)),
        (facts(restarts=1, since_restart=4.9), RestartLater(f"{HOLDS}; it is started again after 5 s")),
        (facts(restarts=1, since_restart=5.0), RestartSupervisor("coder-1", 2, HOLDS)),
        (facts(restarts=2, since_restart=9.9), RestartLater(f"{HOLDS}; it is started again after 10 s")),
        (facts(restarts=2, since_restart=-1.0), RestartSupervisor("coder-1", 3, HOLDS)),
        (facts(is_kept=False), LeaveAlone("its supervisor was not started here")),
        (facts(is_supervised=True), LeaveAlone("its supervisor acts")),
        (facts(was_killed=False), LeaveAlone("its supervisor was stopped, or has said why it left")),
        (facts(halt="PAUSE is set"), RestartLater(f"{HOLDS}, and PAUSE is set")),
        (facts(None), RestartSupervisor("coder-1", 1, GONE)),
        (facts(None, restarts=9, since_restart=299.0), RestartLater(f"{GONE}; it is started again after 300 s")),
        (facts(None, restarts=9, since_restart=300.0), RestartSupervisor("coder-1", 10, GONE)),
        (facts(None, restarts=9, since_restart=601.0), RestartSupervisor("coder-1", 1, GONE)),
        (facts(None, was_killed=False), LeaveAlone("its supervisor was stopped, or has said why it left")),
        (
            facts(session=Session("coder-1.3", SessionPhase.BY_HAND, is_of_work=True)),
            LeaveAlone("t1 is worked on by hand"),
        ),
        (facts(restarts=3), Escalate("coder-1", "t1: its supervisor was started 3 times, and is gone")),
        (facts(restarts=3, is_escalated=True), LeaveAlone("the planner and a person know")),
        (facts(None, LEFT_OVER), EndZombie("coder-1.3", "coder-1.3 has lost its work and still runs")),
        (facts(None, LEFT_OVER, closed_seconds=10.0, was_killed=False, is_kept=False), "ended"),
        (facts(None, LEFT_OVER, closed_seconds=9.0), "waits"),
        (facts(None, LEFT_OVER, is_supervised=True), LeaveAlone("its supervisor acts")),
    ],
)
def test_an_agent_is_healed_by_its_facts(seen: HealingFacts, decision: object) -> None:
    expected = {"ended": EndZombie, "waits": LeaveAlone}.get(str(decision))
    found = decide_healing(seen)
    assert isinstance(found, expected) if expected else found == decision


@given(
    st.sampled_from(SessionPhase),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.floats(0, 99),
    st.integers(0, 9),
)
def test_no_supervised_agent_or_session_with_work_is_ended(
    phase: SessionPhase, holds: bool, supervised: bool, killed: bool, closed: float | None, restarts: int
) -> None:
    session = Session("coder-1.3", phase, is_of_work=holds)
    work = WORK if holds else None
    decision = decide_healing(
        facts(work, session, is_supervised=supervised, was_killed=killed, closed_seconds=closed, restarts=restarts)
    )
    if holds:
        assert not isinstance(decision, EndZombie)
    if supervised:
        assert isinstance(decision, LeaveAlone)
