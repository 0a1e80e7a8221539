"""The state of an agent follows from facts, with the evidence and since when."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.agent_states import AgentFacts, AgentState, Session, SessionPhase, Work, derive_state
from liza.model.derived import update_derived_fields
from liza.model.model import Agent, Status
from liza.model.statuses import (
    AGENT_WORDS,
    STATE_WORDS,
    TASK_WORDS,
    AgentStatus,
    AgentWord,
    TaskWord,
    agent_word,
    find_statuses,
    task_word,
)
from tests.unit.boards import board, claimed, task

START, CLAIMED, CLOSED = (datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (10, 9, 11))
WORK = Work("t1", CLAIMED)
PAGE = Path(__file__).parents[3] / "specs" / "architecture" / "agent-states.md"


def session(phase: SessionPhase, **fields: object) -> Session:
    return Session(**{"run": "coder-1.3", "phase": phase, "since": START, "is_of_work": True, **fields})


READY = session(SessionPhase.READY)
CASES = [
    (AgentFacts("coder-1", True), AgentState.IDLE, "it holds no work and has no session", None),
    (AgentFacts("coder-1", False), AgentState.IDLE, "it holds no work and has no session", None),
    (AgentFacts("coder-1", True, is_starting_up=True), AgentState.STARTING, "its supervisor starts up", None),
    (
        AgentFacts("coder-1", True, WORK, READY, is_starting_up=True),
        AgentState.WORKING,
        "coder-1.3 works on t1",
        START,
    ),
    (AgentFacts("coder-1", True, WORK, READY), AgentState.WORKING, "coder-1.3 works on t1", START),
    (AgentFacts("coder-1", True, WORK, host="h2"), AgentState.WORKING, "it holds t1 on the host h2", CLAIMED),
    (
        AgentFacts("coder-1", True, host="h2"),
        AgentState.IDLE,
        "it holds no work; its supervisor is on the host h2",
        None,
    ),
    (AgentFacts("coder-1", False, WORK, READY), AgentState.WORKING, "coder-1.3 works on t1", START),
    (
        AgentFacts("coder-1", False, WORK, session(SessionPhase.BY_HAND)),
        AgentState.WORKING,
        "t1 is worked on by hand",
        CLAIMED,
    ),
    (
        AgentFacts("coder-1", True, WORK, session(SessionPhase.STARTING)),
        AgentState.STARTING,
        "coder-1.3 has not read its brief yet",
        START,
    ),
    (
        AgentFacts("coder-1", True, WORK, session(SessionPhase.SET_UP)),
        AgentState.STARTING,
        "the set-up for t1 runs",
        START,
    ),
    (
        AgentFacts("coder-1", True, WORK, session(SessionPhase.NONE)),
        AgentState.STARTING,
        "its supervisor starts a session for t1",
        CLAIMED,
    ),
    (
        AgentFacts("coder-1", False, WORK, session(SessionPhase.NONE)),
        AgentState.STALLED,
        "it holds t1, and has no session and no supervisor",
        CLAIMED,
    ),
    (
        AgentFacts("coder-1", True, WORK, session(SessionPhase.NONE), halt="PAUSE is set"),
        AgentState.STALLED,
        "it holds t1, and PAUSE is set",
        CLAIMED,
    ),
    # The session of an earlier run lives: the work has none of its own.
    (
        AgentFacts("coder-1", False, WORK, session(SessionPhase.READY, is_of_work=False)),
        AgentState.STALLED,
        "it holds t1, and has no session and no supervisor",
        CLAIMED,
    ),
    (
        AgentFacts("coder-1", True, None, session(SessionPhase.READY, closed_at=CLOSED)),
        AgentState.ZOMBIE,
        "coder-1.3 has closed its work and still runs",
        CLOSED,
    ),
    (
        AgentFacts("coder-1", True, None, READY),
        AgentState.ZOMBIE,
        "coder-1.3 has lost its work and still runs",
        None,
    ),
    (
        AgentFacts("coder-1", True, WORK, READY, question="Allow it?"),
        AgentState.STUCK,
        "coder-1.3 asks: Allow it?",
        START,
    ),
    (
        AgentFacts("coder-1", True, WORK, READY, no_progress="no progress: the same call 40 times"),
        AgentState.STUCK,
        "coder-1.3 makes no progress: the same call 40 times",
        START,
    ),
    (
        AgentFacts("coder-1", True, blocked=(Work("t2", CLAIMED),)),
        AgentState.STUCK,
        "it asked for help with t2",
        CLAIMED,
    ),
    (
        AgentFacts("coder-1", True, WORK, READY, blocked=(Work("t2", CLAIMED),)),
        AgentState.WORKING,
        "coder-1.3 works on t1",
        START,
    ),
]


@pytest.mark.parametrize(("facts", "state", "evidence", "since"), CASES)
def test_each_state_has_its_evidence_and_since_when(
    facts: AgentFacts, state: AgentState, evidence: str, since: datetime | None
) -> None:
    report = derive_state(facts)
    assert (report.state, report.evidence, report.since) == (state, evidence, since)


def test_every_agent_state_is_derived_in_a_case_and_documented() -> None:
    assert {state for _, state, _, _ in CASES} == set(AgentState)
    rows = {line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    assert set(AgentState) <= rows


@given(
    work=st.sampled_from([None, WORK]),
    phase=st.sampled_from(SessionPhase),
    is_of_work=st.booleans(),
    is_supervised=st.booleans(),
    halt=st.sampled_from([None, "PAUSE is set"]),
)
def test_only_an_agent_with_a_session_works(
    work: Work | None, phase: SessionPhase, is_of_work: bool, is_supervised: bool, halt: str | None
) -> None:
    facts = AgentFacts("coder-1", is_supervised, work, session(phase, is_of_work=is_of_work), halt)
    state = derive_state(facts).state
    assert (state in (AgentState.IDLE, AgentState.ZOMBIE)) == (work is None)
    if state is AgentState.WORKING:
        assert phase in (SessionPhase.READY, SessionPhase.BY_HAND)
    if state is AgentState.STALLED:
        assert not is_supervised or halt is not None or not is_of_work


def test_what_an_agent_holds_outranks_that_its_supervisor_starts_up() -> None:
    starting = {"coder-1": Agent(role="coder", status="STARTING", runs=1)}
    assert update_derived_fields(board(agents=starting)).agents["coder-1"].status == "STARTING"
    state, _ = claimed(board(task(), agents=starting))
    assert update_derived_fields(state).agents["coder-1"].status == "WORKING"


def test_each_status_and_agent_state_has_a_word() -> None:
    assert set(TASK_WORDS) == set(Status)
    assert set(AGENT_WORDS) == set(AgentStatus)
    assert set(STATE_WORDS) == set(AgentState)
    assert {word for status in Status for word in [task_word(status)]} == set(TaskWord)
    for word in TaskWord:
        assert {task_word(status) for status in find_statuses(word.replace(" ", "-").upper())} == {word}
    assert find_statuses("CLAIMED") == frozenset()
    assert task_word("nonsense") == "nonsense"


def test_the_glossary_has_the_table_of_the_words() -> None:
    glossary = (Path(__file__).parents[3] / "specs" / "glossary.md").read_text()
    for word in TaskWord:
        statuses = [status for status, of_status in TASK_WORDS.items() if of_status is word]
        row = next(line for line in glossary.splitlines() if line.startswith(f"| {word} |"))
        assert re.findall(r"`([A-Z_]+)`", row.split("|")[2]) == statuses
    for agent_state in AgentWord:
        assert f"\n| {agent_state} |" in glossary


@pytest.mark.parametrize(
    ("status", "state", "fields", "word"),
    [
        ("OFFLINE", "stalled", {}, AgentWord.OFF),
        ("OFFLINE", "idle", {"is_asking": True}, AgentWord.OFF),
        ("OFFLINE", "zombie", {}, AgentWord.STUCK),
        ("WAITING", "stalled", {}, AgentWord.WAITS_UNTIL),
        ("WORKING", "stuck", {"is_asking": True}, AgentWord.WAITS_FOR_YOU),
        ("WORKING", "stuck", {}, AgentWord.STUCK),
        ("IDLE", "stuck", {}, AgentWord.IDLE),
        ("WORKING", "stalled", {"is_halted": True}, AgentWord.IDLE),
        ("WORKING", "stalled", {}, AgentWord.STUCK),
        ("WORKING", "starting", {}, AgentWord.WORKING),
        ("STARTING", "starting", {}, AgentWord.IDLE),
        ("REVIEWING", None, {}, AgentWord.WORKING),
        ("HANDOFF", None, {}, AgentWord.WORKING),
        ("nonsense", None, {}, AgentWord.IDLE),
    ],
)
def test_the_word_of_an_agent_shows_what_to_expect(
    status: str, state: str | None, fields: dict[str, bool], word: AgentWord
) -> None:
    assert agent_word(status, state, **{"is_asking": False, "is_halted": False, **fields}) is word
