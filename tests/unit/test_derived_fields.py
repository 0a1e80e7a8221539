"""What follows from the tasks: the status of agents, the metrics of the sprint, and the settings in effect."""

from __future__ import annotations

from typing import Any

import pytest

from liza.config.rules import settings
from liza.model.derived import sprint_metrics, update_derived_fields, work_by_agent
from liza.model.errors import BoardInconsistent
from liza.model.history_events import (
    ANSWER_EVENTS,
    CLOSING_EVENTS,
    CREW_EVENTS,
    FRAMING_EVENTS,
    QUESTION_EVENTS,
    UNFINISHED_ENDS,
    VERDICTS,
    HistoryEvent,
    session_end,
)
from liza.model.model import Agent, ArchiveSummary, Budget, Config, Event, PlanningClaim, QueueSettings, State, Status
from liza.model.statuses import AgentStatus
from liza.model.transitions import Invocation, apply_verb, find_illegal_changes, find_unexplained_step, has_done
from liza.model.value_classes import replace
from liza.tasks.rules import claims
from liza.tasks.rules.picking import Evidence
from tests.unit.boards import HEAD, HERE, NOW, agents, board, claimed, task, under_review

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


def test_a_claim_that_is_prepared_a_review_and_planning_are_work_too() -> None:
    reserved, _ = claims.reserve(board(task()), "task-1", claims.Claimant("coder-2", HERE), "s1", NOW, Evidence())
    assert work_by_agent(reserved) == {"coder-2": (A.WORKING, "task-1")}
    reviewed, _, _ = under_review(board(task()))
    assert work_by_agent(reviewed) == {"code-reviewer-1": (A.REVIEWING, "task-1")}
    planned = replace(board(), planning=PlanningClaim(run="planner-1.12", trigger="x", count=1))
    assert work_by_agent(planned) == {"planner-1": (A.WORKING, None)}


def test_the_metrics_count_tasks_of_the_board_and_of_the_archive() -> None:
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


def test_which_events_end_a_run_ask_answer_and_judge() -> None:
    """Boards of earlier versions have these events: what each means does not change."""
    assert set(CLOSING_EVENTS) == {
        E.HANDOFF, E.SUBMIT, E.SUBMIT_AGAIN, E.BLOCK, E.RELEASE_REVIEW, E.APPROVE, E.REJECT, E.DEADLOCK,
    }  # fmt: skip
    assert set(UNFINISHED_ENDS) == {
        E.CRASH, E.ENDED, E.HELD_UP, E.QUOTA, E.UNUSABLE, E.UNANSWERED, E.CONTEXT_FULL, E.TOO_OLD,
    }  # fmt: skip
    assert set(FRAMING_EVENTS) == {*UNFINISHED_ENDS, E.CLAIM, E.STOP, E.HANDOFF, E.SUBMIT, E.REJECT}
    assert set(QUESTION_EVENTS) == {E.BLOCK, E.GIVE_UP_REVIEW, E.DEADLOCK}
    assert set(ANSWER_EVENTS) == {E.READY, E.UNBLOCK, E.UNBLOCK_REVIEW, E.SUPERSEDE, E.DROP}
    assert set(VERDICTS) == {E.APPROVE, E.REJECT, E.DEADLOCK}
    assert set(CREW_EVENTS) == {E.MERGE, E.MERGE_FAILED, E.MERGE_CLEARED, E.LAND}
    assert session_end("crash") == "it crashed"
    assert session_end("submit") == ""


def test_a_verb_from_a_status_that_does_not_allow_it_is_a_fault_with_a_command() -> None:
    with pytest.raises(BoardInconsistent) as refused:
        apply_verb(task(), E.SUBMIT, Invocation(NOW, "coder-1"))
    assert str(refused.value) == "task-1 is UNCLAIMED: no transition 'submit' from that status"
    assert refused.value.hint == "liza task show task-1"


def test_a_verb_is_recorded_with_who_did_it_and_an_end_gives_the_worktree_back() -> None:
    state, run = claimed(board(task()))
    before = state.tasks[0]
    dropped = apply_verb(before, E.DROP, Invocation(NOW, "human:ann", run, HEAD, "why"), priority=3)
    assert dropped.history[-1] == Event(time=NOW, event="drop", agent="human:ann", run=run, commit=HEAD, detail="why")
    assert (dropped.status, dropped.worktree, dropped.priority) == (S.ABANDONED, None, 3)
    assert apply_verb(before, E.SUBMIT, Invocation(NOW, "coder-1", run)).worktree == before.worktree
    assert [has_done(dropped, E.DROP, name) for name in (run, "coder-1.9", None)] == [True, False, False]
    assert not has_done(dropped, E.SUBMIT, run)


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
def test_a_status_that_no_transition_explains_is_told_with_the_last_step(
    status: Status, events: tuple[str, ...], step: str | None
) -> None:
    history = tuple(Event(time=NOW, event=event) for event in events)
    assert find_unexplained_step(task(status=status, history=history)) == step


def test_changes_of_a_status_by_other_means_are_told_with_what_is_allowed() -> None:
    before = board(task("a"), task("b", S.MERGED), task("c", S.CLAIMED), task("d"))
    after = board(task("a", S.APPROVED), task("b", S.DRAFT), task("c", S.CLAIMED), task("new", S.CLAIMED))
    found = [(one.entry, one.field, one.actual, one.expected) for one in find_illegal_changes(before, after)]
    assert found == [
        (
            "a",
            "status",
            "APPROVED",
            "UNCLAIMED or one of ABANDONED, CLAIMED, SUPERSEDED: it was UNCLAIMED",
        ),
        ("b", "status", "DRAFT", "MERGED or one of none: it was MERGED"),
        ("new", "status", "CLAIMED", "DRAFT or UNCLAIMED: it is new"),
        ("d", "id", "gone", "every task stays on the board"),
    ]
    assert find_illegal_changes(board(), board(task("x", S.DRAFT), task("y"))) == ()


def test_settings_that_nobody_confirmed_have_their_confirmed_or_default_values() -> None:
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


def test_settings_in_effect_are_listed_without_those_that_have_their_default() -> None:
    assert settings.describe_effective(Config()) == (
        "the settings in effect: none (all others have their default values)"
    )
    assert settings.describe_effective(Config(push="auto", permissions="bypass")) == (
        "the settings in effect: permissions 'bypass'; push 'auto' (all others have their default values)"
    )
    change = settings.UnconfirmedSetting("integration_command", None, "make")
    assert change.description == (
        "config.integration_command was changed outside of liza to 'make'; nothing is used until a person confirms that"
    )


def test_the_settings_that_need_a_person_are_these() -> None:
    assert set(settings.confirmable_values(Config())) == {
        "integration_command", "integration_timeout", "merge_clean", "proof", "environment", "sandbox_setup",
        "sandbox_setup_files", "sandbox_copy", "sandbox_keep", "permissions", "budget", "loop", "breaker", "guards",
        "planning_rounds", "queue", "gates", "push", "notify", "gate_environment", "tests_write", "checkout",
        "proof_runs", "unproved_commands", "installed_changes", "env_allow", "confinement",
        "network", "shared",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("zzz", "config.zzz is no setting"),
        ("rooting", "config.rooting is no setting; did you mean routing?"),
        ("push.x", "config.push.x is no setting"),
        (
            "queue.bach",
            "config.queue.bach is no setting; did you mean batch? (config.queue has batch, parallel, retries",
        ),
        ("budget.zzz", "config.budget.zzz is no setting and limits nothing (config.budget has "),
    ],
)
def test_an_unknown_key_is_told_with_the_similar_setting(key: str, text: str) -> None:
    described = settings.describe_unknown_key(key)
    assert described.startswith(text)
    assert described.count("has ") == text.count("(config.")


def test_unknown_keys_are_found_also_one_level_below() -> None:
    written = {"push": "auto", "zzz": 1, "queue": {"batch": 1, "bach": 2}, "slots": 5, "budget": {"x": 1}}
    assert settings.unknown_keys(written) == ("zzz", "budget.x", "queue.bach")


def test_agents_that_hold_nothing_stay_as_they_are() -> None:
    state = board(agents=agents("coder-1"))
    assert update_derived_fields(state).agents == state.agents
