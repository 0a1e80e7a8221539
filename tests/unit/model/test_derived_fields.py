"""What follows from the tasks: the status of agents, the metrics of the sprint, and the settings in effect."""

from __future__ import annotations

from typing import Any

import pytest

from liza.config.rules import settings
from liza.model.configuration import Budget, Config, QueueSettings
from liza.model.derived import sprint_metrics, update_derived_fields
from liza.model.errors import BoardInconsistent
from liza.model.history_events import (
    HistoryEvent,
)
from liza.model.model import Agent, ArchiveSummary, Event, State, Status
from liza.model.statuses import AgentStatus
from liza.model.transitions import Invocation, apply_verb, find_illegal_changes, find_unexplained_step
from liza.model.value_classes import replace
from tests.unit.boards import NOW, agents, board, task

S = Status
A = AgentStatus
E = HistoryEvent


def with_status(state: State, name: str, status: AgentStatus, task_id: str | None = None) -> State:
    return state.with_agent(name, Agent(role=name.rpartition("-")[0], status=status, current_task=task_id))


@pytest.mark.parametrize(
    ("fields", "before", "after"),
    [
        ({"status": S.CLAIMED}, A.IDLE, (A.WORKING, "task-1")),
        ({"status": S.CLAIMED}, A.OFFLINE, (A.WORKING, "task-1")),
        ({"status": S.CLAIMED, "handoff_pending": True}, A.WORKING, (A.HANDOFF, "task-1")),
        ({"status": S.CLAIMED, "handoff_pending": True}, A.OFFLINE, (A.OFFLINE, "task-1")),
        ({"status": S.REJECTED}, A.WORKING, (A.IDLE, None)),
        ({"status": S.REJECTED}, A.STARTING, (A.STARTING, None)),
        ({"status": S.REJECTED}, A.WAITING, (A.WAITING, None)),
        ({"status": S.REJECTED}, A.OFFLINE, (A.OFFLINE, None)),
        ({"status": S.REJECTED}, A.HANDOFF, (A.IDLE, None)),
    ],
)
def test_the_status_of_a_coder_follows_from_its_task(
    fields: dict[str, Any], before: AgentStatus, after: tuple[AgentStatus, str | None]
) -> None:
    state = with_status(board(task(assigned_to="coder-1", **fields)), "coder-1", before, "old")
    agent = update_derived_fields(state).agents["coder-1"]
    assert (agent.status, agent.current_task) == after


def test_metrics_count_tasks_of_the_board_and_the_archive() -> None:
    verdicts = tuple(Event(time=NOW, event=event) for event in (E.APPROVE, E.REJECT, E.REJECT, E.DEADLOCK, E.CLAIM))
    tasks = [task(str(number), status) for number, status in enumerate(Status)]
    archived = ArchiveSummary(counts={"MERGED": 3, "ABANDONED": 2}, verdicts={"approve": 5, "deadlock": 1})
    metrics = sprint_metrics(board(*tasks, task("z", S.MERGED, history=verdicts)))
    assert metrics == {
        "total": len(Status) + 1,
        "merged": 2,
        "in_progress": 4,
        "blocked": 1,
        "approved": 1,
        "rejected": 3,
    }
    both = sprint_metrics(replace(board(task(history=verdicts)), archived=archived))
    assert (both["total"], both["merged"], both["approved"], both["rejected"]) == (6, 3, 6, 4)


def test_a_transition_from_a_wrong_status_is_refused_with_hint() -> None:
    with pytest.raises(BoardInconsistent) as refused:
        apply_verb(task(), E.SUBMIT, Invocation(NOW, "coder-1"))
    assert str(refused.value) == "task-1 is UNCLAIMED: no transition 'submit' from that status"
    assert refused.value.hint == "liza task show task-1"


@pytest.mark.parametrize(
    ("status", "events", "step"),
    [
        (S.UNCLAIMED, (), None),
        (S.MERGED, (), None),
        (S.UNCLAIMED, ("add",), None),
        (S.DRAFT, ("add",), None),
        (S.MERGED, ("add",), "add"),
        (S.MERGED, ("danced",), "danced"),
        (S.READY_FOR_REVIEW, ("add", "claim", "crash"), None),
        (S.APPROVED, ("add", "claim", "crash"), "claim"),
        (S.APPROVED, ("add", "claim", "submit", "approve"), None),
        (S.UNCLAIMED, ("add", "claim"), None),
        (S.UNCLAIMED, ("add", "edit"), None),
        (S.CLAIMED, ("add", "claim", "crash", "resume"), None),
        (S.CLAIMED, ("add", "claim", "submit"), "submit"),
        (S.APPROVED, ("add",), "add"),
    ],
)
def test_an_unexplained_status_is_reported_with_the_last_step(
    status: Status, events: tuple[str, ...], step: str | None
) -> None:
    history = tuple(Event(time=NOW, event=event) for event in events)
    assert find_unexplained_step(task(status=status, history=history)) == step


def test_illegal_changes_of_a_status_name_the_allowed_ones() -> None:
    before = board(task("a"), task("b", S.MERGED), task("c", S.CLAIMED), task("d"))
    after = board(task("a", S.APPROVED), task("b", S.DRAFT), task("c", S.CLAIMED), task("new", S.CLAIMED))
    found = [(one.entry, one.field, one.actual, one.expected) for one in find_illegal_changes(before, after)]
    assert found == [
        (
            "a",
            "status",
            "APPROVED",
            "UNCLAIMED or one of ABANDONED, CLAIMED, READY_FOR_REVIEW, SUPERSEDED: it was UNCLAIMED",
        ),
        ("b", "status", "DRAFT", "MERGED or one of ABANDONED: it was MERGED"),
        ("new", "status", "CLAIMED", "DRAFT or UNCLAIMED: it is new"),
        ("d", "id", "gone", "every task stays on the board"),
    ]
    assert find_illegal_changes(board(), board(task("x", S.DRAFT), task("y"))) == ()


def test_unconfirmed_settings_have_their_confirmed_or_default_values() -> None:
    written = Config(push="auto", routing="record", queue=QueueSettings(batch=3), budget=Budget(money_per_task=9.0))
    budget = settings.confirmable_values(Config(budget=Budget(money_per_task=2.0)))["budget"]
    confirmed = {"budget": budget, "queue": settings.confirmable_values(written)["queue"], "gone": 1}
    used = settings.effective_config(written, confirmed)
    assert (used.push, used.routing, used.queue.batch, used.budget.money_per_task) == ("never", "record", 3, 2.0)
    assert [setting.key for setting in settings.find_unconfirmed(written, confirmed)] == ["budget", "push"]
    assert settings.effective_config(written, settings.confirmable_values(written)) is written
    assert settings.changed_settings(Config(), replace(written, queue=QueueSettings(), budget=Budget())) == {
        "push": "auto"
    }


@pytest.mark.parametrize(
    ("confirmed", "valid"),
    [({}, True), ({"push": "auto"}, True), ({"push": 5}, False), ({"routing": 5}, True), (None, False), ([], False)],
)
def test_confirmed_values_of_a_wrong_type_count_for_nothing(confirmed: object, valid: bool) -> None:
    assert settings.are_valid(confirmed) is valid


def test_unknown_keys_are_found_also_one_level_below() -> None:
    written = {"push": "auto", "zzz": 1, "queue": {"batch": 1, "bach": 2}, "slots": 5, "budget": {"x": 1}}
    assert settings.unknown_keys(written) == ("zzz", "budget.x", "queue.bach")


def test_agents_that_hold_nothing_stay_as_they_are() -> None:
    state = board(agents=agents("coder-1"))
    assert update_derived_fields(state).agents == state.agents
