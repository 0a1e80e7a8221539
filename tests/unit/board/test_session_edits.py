"""What a session may change in the text of the board: a table, and random changes of everything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.breaker.rules import board_reports
from liza.model.errors import LizaError, NotOwner, Refused
from liza.model.model import Anomaly, Discovery, Handoff, HumanNote, Resolution, State
from liza.model.value_classes import replace
from liza.tasks.rules import leases
from liza.tasks.rules.edits import Editor, apply_edit
from tests.unit.boards import NOW, agents, board, claimed, later, task

RUN = "coder-1.1"
EDITOR = Editor(RUN, "task-1", later(10))
NOTE = Handoff(agent="coder-1", run=RUN, summary="half of it", next_action="the other half")
REPORT = Discovery(
    id="d-9", by="coder-1", during="task-1", description="prices are floats", severity="high", urgency="deferred"
)
ANOMALY = Anomaly(
    timestamp=NOW,
    task="task-1",
    reporter=RUN,
    type="trade_off",
    details={"text": "cached", "what": "cache", "why": "speed", "debt_created": "yes"},
)


def make_board() -> State:
    """A board on which coder-1 works on task-1, with an entry in each section."""
    state, run = claimed(
        board(
            task(),
            task("task-2", depends_on=("task-1",)),
            agents=agents("coder-1", "coder-2"),
            discovered=(replace(REPORT, id="d-1", by="coder-2", during="task-2", created=NOW),),
            anomalies=(replace(ANOMALY, task="task-2", reporter="coder-2.1"),),
            handoff={"task-2": Handoff(agent="coder-2", run="coder-2.1", summary="s", next_action="n")},
            human_notes=(HumanNote(timestamp=NOW, message="be quick", recipient="task-1"),),
        )
    )
    assert run == RUN
    return state


BOARD = make_board()


def with_own(**fields: Any) -> State:
    return BOARD.with_agent("coder-1", replace(BOARD.agents["coder-1"], **fields))


def with_note(**fields: Any) -> State:
    return replace(BOARD, handoff={**BOARD.handoff, "task-1": replace(NOTE, **fields)})


def with_report(**fields: Any) -> State:
    return replace(BOARD, discovered=(*BOARD.discovered, replace(REPORT, **fields)))


def with_anomaly(**fields: Any) -> State:
    return replace(BOARD, anomalies=(*BOARD.anomalies, replace(ANOMALY, **fields)))


def with_task(**fields: Any) -> State:
    return BOARD.with_task(replace(BOARD.tasks[0], **fields))


@pytest.mark.parametrize(
    ("typed", "check"),
    [
        (BOARD, lambda state: state == BOARD),
        (replace(BOARD, revision=7), lambda state: state == BOARD),
        (with_own(heartbeat=later(9)), lambda state: state == leases.renew_lease(BOARD, RUN, later(10))),
        (with_own(lease_expires=later(300)), lambda state: state == leases.renew_lease(BOARD, RUN, later(10))),
        (with_own(context_percent=40), lambda state: state.agents["coder-1"].context_percent == 40),
        (with_note(), lambda state: state.handoff["task-1"] == replace(NOTE, timestamp=later(10))),
        (with_report(), lambda state: state.discovered[1:] == (replace(REPORT, id="d-2", created=later(10)),)),
        (with_anomaly(), lambda state: state.anomalies[1:] == (replace(ANOMALY, timestamp=later(10)),)),
    ],
)
def test_a_session_may_change_what_its_verbs_change(typed: State, check: Callable[[State], bool]) -> None:
    assert check(apply_edit(BOARD, typed, BOARD, EDITOR))


GONE = replace(BOARD, discovered=())


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (with_task(priority=1), "tasks.task-1.priority"),
        (with_task(lease_expires=later(9999)), "tasks.task-1.lease_expires"),
        (replace(BOARD, tasks=BOARD.tasks[:1]), "tasks.task-2"),
        (replace(BOARD, tasks=(*BOARD.tasks, task("task-3"))), "tasks.task-3"),
        (replace(BOARD, config=replace(BOARD.config, integration_command="true")), "config.integration_command"),
        (replace(BOARD, goal=replace(BOARD.goal, description="another")), "goal.description"),
        (replace(BOARD, human_notes=()), "human_notes.0"),
        (replace(BOARD, human_notes=(*BOARD.human_notes, HumanNote(timestamp=NOW, message="m"))), "human_notes.1"),
        (BOARD.with_agent("coder-2", replace(BOARD.agents["coder-2"], status="LEFT")), "agents.coder-2.status"),
        (BOARD.with_agent("coder-2", replace(BOARD.agents["coder-2"], heartbeat=NOW)), "agents.coder-2.heartbeat"),
        (with_own(runs=9), "agents.coder-1.runs"),
        (with_own(program="other"), "agents.coder-1.program"),
        (with_own(heartbeat=later(11)), "agents.coder-1.heartbeat"),
        (with_own(lease_expires=later(9999)), "agents.coder-1.lease_expires"),
        (with_own(context_percent=101), "agents.coder-1.context_percent"),
        (replace(BOARD, agents=agents("coder-2")), "agents.coder-1"),
        (replace(BOARD, handoff={}), "handoff.task-2"),
        (with_note(agent="coder-2"), "handoff.task-1.agent"),
        (with_note(run="coder-1.2"), "handoff.task-1.run"),
        (with_note(context_used=3), "handoff.task-1.context_used"),
        (with_note(summary=" "), "handoff.task-1.summary"),
        (with_note(next_action=""), "handoff.task-1.next_action"),
        (with_note(next_steps=("x" * 5000,)), "handoff.task-1.next_steps"),
        (GONE, "discovered.d-1"),
        (replace(BOARD, discovered=(replace(BOARD.discovered[0], urgency="immediate"),)), "discovered.d-1"),
        (with_report(by="coder-2"), "discovered.d-9.by"),
        (with_report(during="task-2"), "discovered.d-9.during"),
        (with_report(converted_to_task="task-2"), "discovered.d-9.converted_to_task"),
        (with_report(resolved=Resolution(by="coder-1", timestamp=NOW, why="w")), "discovered.d-9.resolved"),
        (with_report(urgency="now"), "discovered.d-9: "),
        (with_report(description="x" * 5000), "discovered.d-9: "),
        (replace(BOARD, anomalies=()), "anomalies.a-1"),
        (replace(BOARD, anomalies=(ANOMALY, *BOARD.anomalies)), "anomalies.a-1"),
        (with_anomaly(reporter="coder-2.1"), "anomalies.a-2.reporter"),
        (with_anomaly(task="task-2"), "anomalies.a-2.task"),
        (with_anomaly(type="opinion"), "anomalies.a-2: "),
    ],
)  # fmt: skip
def test_any_other_change_is_refused_whole_and_names_its_key(typed: State, key: str) -> None:
    with pytest.raises(Refused) as error:
        apply_edit(BOARD, typed, BOARD, EDITOR)
    assert error.value.message.startswith(key)
    assert "nothing was written" in error.value.message


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list | tuple) and value:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(part, (*path, key))
    else:
        yield path


PLAIN = json.loads(msgspec.json.encode(replace(BOARD, handoff={**BOARD.handoff, "task-1": NOTE})))
OTHER_VALUES = st.one_of(st.integers(0, 5), st.text(max_size=5), st.just("coder-1"), st.just("2026-01-01T13:00:00Z"))


@given(st.sampled_from(list(leaves(PLAIN))), OTHER_VALUES)
def test_a_random_change_by_a_session_is_refused_or_permitted(path: tuple[Any, ...], value: Any) -> None:
    base = msgspec.convert(PLAIN, State)
    plain = json.loads(msgspec.json.encode(base))
    inner = plain
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    try:
        typed = msgspec.convert(plain, State)
        edited = apply_edit(base, typed, base, EDITOR)
    except (msgspec.ValidationError, LizaError):
        return
    renewed = leases.renew_lease(base, RUN, EDITOR.now)
    own = replace(edited.agents["coder-1"], context_percent=0)
    allowed = [replace(state, handoff=edited.handoff).with_agent("coder-1", own) for state in (base, renewed)]
    assert edited.with_agent("coder-1", own) in allowed
    assert edited.handoff["task-2"] == base.handoff["task-2"]


def test_an_edit_of_an_older_board_keeps_what_changed_meanwhile() -> None:
    later_board = replace(
        leases.renew_lease(BOARD, RUN, later(5)),
        revision=5,
        discovered=(*BOARD.discovered, replace(REPORT, id="d-2", by="coder-2", during=None)),
    )
    edited = apply_edit(BOARD, with_report(id="d-2"), later_board, EDITOR)
    assert edited == replace(
        later_board, discovered=(*later_board.discovered, replace(REPORT, id="d-3", created=later(10)))
    )


def test_a_hand_off_that_changed_meanwhile_is_a_conflict() -> None:
    with pytest.raises(Refused, match=r"handoff\.task-1: another process changed it meanwhile"):
        apply_edit(BOARD, with_note(), with_note(summary="other"), EDITOR)


def test_a_run_that_lost_its_task_changes_nothing() -> None:
    state = with_task(run="coder-2.1", assigned_to="coder-2")
    for typed in (with_note(), with_own(heartbeat=later(9))):
        with pytest.raises((NotOwner, Refused)):
            apply_edit(state, replace(state, handoff=typed.handoff, agents=typed.agents), state, EDITOR)


def test_a_session_cannot_report_without_end() -> None:
    many = tuple(replace(REPORT, id=f"d-{number}") for number in range(2, 2 + board_reports.MAX_REPORTS + 1))
    with pytest.raises(Refused, match=r"discovered\.d-22: coder-1 has made 20 such reports"):
        apply_edit(BOARD, replace(BOARD, discovered=(*BOARD.discovered, *many)), BOARD, EDITOR)
