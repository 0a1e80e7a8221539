"""What becomes of a merge that failed: by its kind, and by how often it failed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.breaker.rules.breaker_patterns import collect_events, evaluate_patterns
from liza.git import git_refs
from liza.git.git_refs import RefChange
from liza.merging.rules import merge_rules
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import invariants
from liza.model.configuration import Config
from liza.model.model import Agent, Event, Goal, MergeInProgress, MergeRetry, State, Status, Task
from liza.model.statuses import Pattern
from liza.model.transitions import Invocation
from liza.supervisor.rules import decide
from liza.supervisor.rules.actions import Merge, Wait
from liza.supervisor.rules.session_facts import Situation
from liza.tasks.rules import backlog

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
COMMIT, TIP, MADE = "c" * 40, "a" * 40, "b" * 40
BY = Invocation(now=NOW, by="coder-1", commit=COMMIT)


def approved(task_id: str = "t", **fields: Any) -> Task:
    texts = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "p"}
    said = [("claim", "coder-1", None), ("submit", "coder-1", COMMIT), ("approve", "code-reviewer-1", COMMIT)]
    history = tuple(Event(time=NOW, event=event, agent=agent, commit=commit) for event, agent, commit in said)
    known = {"assigned_to": "coder-1", "worktree": "s1", "base_commit": TIP, "review_commit": COMMIT}
    more = {"approved_by": "code-reviewer-1", "history": history}
    return Task(id=task_id, status=Status.APPROVED, **{**texts, **known, **more, **fields})


def board(*tasks: Task) -> State:
    agents = {name: Agent(role=name.rpartition("-")[0], status="IDLE") for name in ("coder-1", "code-reviewer-1")}
    config = Config(integration_command="true", restart_after_crash=10.0)
    goal = Goal(id="goal", status="IN_PROGRESS")
    return State(version=1, revision=7, goal=goal, tasks=tasks, agents=agents, config=config)


def troubled(state: State, kind: MergeFailureKind, times: int = 1) -> Task:
    for _ in range(times):
        state = merge_rules.retry_or_fail(state, "t", MergeFailure(kind, "git's words"), BY)
    return state.tasks[0]


@pytest.mark.parametrize("kind", [MergeFailureKind.UNRELATED, MergeFailureKind.GONE])
def test_a_merge_only_its_coder_can_fix_returns_at_once(kind: MergeFailureKind) -> None:
    back = troubled(board(approved()), kind)
    assert (back.status, back.set_aside, back.merging) == (Status.INTEGRATION_FAILED, None, None)
    assert (back.history[-1].event, back.history[-1].detail) == ("merge failed", "git's words")


@pytest.mark.parametrize(
    ("before", "status"),
    [
        (("merge failed",) * 3, Status.INTEGRATION_FAILED),
        (("merge failed",) * 4, Status.BLOCKED),
        (("merge failed", "reject", "merge failed", "claim", "merge failed", "merge failed"), Status.BLOCKED),
        (("merge failed", "merge failed", "merge failed", "merge failed", "merge cleared"), Status.INTEGRATION_FAILED),
        (("merge failed", "merge failed", "merge failed", "unblock", "merge failed"), Status.INTEGRATION_FAILED),
    ],
)
def test_a_task_that_never_merges_is_blocked_alone(before: tuple[str, ...], status: Status) -> None:
    task = approved()
    past = tuple(Event(time=NOW + timedelta(seconds=n), event=event) for n, event in enumerate(before))
    known = replace(task, history=(*past, *task.history))
    failed = merge_rules.fail_merge(board(known), "t", merge_rules.with_detail(BY, "red tests\nand output"))
    after = failed.tasks[0]
    assert (after.status, after.approved_by, after.merging) == (status, None, None)
    assert invariants.check_entry("tasks", "t", after, failed) == ()
    if status is Status.BLOCKED:
        assert [event.event for event in after.history[-2:]] == ["merge failed", "block"]
        assert (after.blocked_reason, after.failed_by) == ("5 failed merges; the last: red tests", ("coder-1",))
        assert len(after.blocked_questions) == 1
    if "reject" not in before:
        events = collect_events(failed, NOW + timedelta(seconds=60))
        assert Pattern.REVIEW_LOOP not in [found.pattern for found in evaluate_patterns(failed, events)]


@pytest.mark.parametrize("kind", [MergeFailureKind.FAILED, MergeFailureKind.MOVING])
def test_a_temporary_merge_failure_is_retried_after_growing_pauses(kind: MergeFailureKind) -> None:
    pauses = []
    for times in (1, 2, 3, 30):
        aside = troubled(board(approved()), kind, times).set_aside
        assert aside is not None
        assert (aside.tries, aside.reason) == (times, "git's words")
        pauses.append((aside.until or NOW) - NOW)
    assert pauses == [timedelta(seconds=10), timedelta(seconds=20), timedelta(seconds=40), timedelta(seconds=900)]


def test_a_failing_merge_pauses_even_without_a_crash_pause() -> None:
    state = board(approved())
    aside = troubled(
        replace(state, config=replace(state.config, restart_after_crash=0.0)), MergeFailureKind.FAILED
    ).set_aside
    assert aside is not None
    assert aside.until == NOW + timedelta(seconds=1)


def test_two_dead_mergers_cause_a_wait_and_three_return_tasks() -> None:
    first, second, third = (troubled(board(approved()), MergeFailureKind.DIED, times) for times in (1, 2, 3))
    assert first.set_aside == MergeRetry(kind="merger died", reason="git's words", deaths=1)
    assert second.set_aside is not None
    assert second.set_aside.until == NOW + timedelta(seconds=10)
    assert third.status is Status.INTEGRATION_FAILED


def test_failures_of_another_kind_continue_the_count_without_a_death() -> None:
    state = board(approved(set_aside=MergeRetry(kind=MergeFailureKind.DIED, reason="x", tries=2)))
    aside = troubled(state, MergeFailureKind.FAILED).set_aside
    assert aside is not None
    assert (aside.kind, aside.tries, aside.deaths) == ("failed", 3, 0)


@pytest.mark.parametrize(("tested", "kept"), [(True, True), (False, True), (None, False)])
def test_a_candidate_is_kept_only_if_it_may_be_published(tested: bool | None, kept: bool) -> None:
    made = MergeInProgress(candidate=MADE, expected=TIP, tested=tested)
    assert (troubled(board(approved(merging=made)), MergeFailureKind.FAILED).merging is not None) == kept


def test_a_task_set_aside_follows_others_until_its_pause_ends() -> None:
    until = NOW + timedelta(seconds=30)
    state = board(approved(set_aside=MergeRetry(kind="failed", reason="x", until=until)), approved("u", priority=5))
    first = merge_rules.next_to_merge(state, NOW)
    later = merge_rules.next_to_merge(state, until)
    assert (first and first.id, later and later.id) == ("u", "t")
    assert merge_rules.seconds_to_next_try(state, NOW) == 30
    assert merge_rules.seconds_to_next_try(state, until) is None


def test_a_supervisor_wakes_and_merges_after_a_merge_pause() -> None:
    until = NOW + timedelta(seconds=3)
    state = board(approved(set_aside=MergeRetry(kind="failed", reason="x", until=until)))
    action = decide.decide(Situation(agent="coder-1", state=state, now=NOW))
    assert isinstance(action, Wait)
    assert action.seconds == 3
    assert decide.decide(Situation(agent="coder-1", state=state, now=until)) == Merge("t")


def test_a_task_no_longer_approved_is_not_set_aside() -> None:
    made = MergeInProgress(candidate=MADE, expected=TIP, tested=True)
    state = board(approved(merging=made, set_aside=MergeRetry(kind="failed", reason="x")))
    done = merge_rules.record_merge(state, "t", replace_commit(MADE), made).tasks[0]
    back = merge_rules.fail_merge(state, "t", BY).tasks[0]
    gone = backlog.drop(state, "t", BY, None).tasks[0]
    assert {task.set_aside for task in (done, back, gone)} == {None}
    odd = replace(back, set_aside=MergeRetry(kind="failed", reason="x"))
    assert "set_aside" in {one.field for one in invariants.check_board(board(odd))}


def replace_commit(commit: str) -> Invocation:
    return Invocation(now=NOW, by="coder-1", commit=commit)


HINTS = {
    "": "liza merge t",
    "liza merge t": "liza merge t",
    "rm -r '/a b/x.lock'": "rm -r '/a b/x.lock' && liza merge t",
    "git status; curl evil": "liza merge t",
    "git log $(evil)": "liza merge t",
    "git log\nevil": "liza merge t",
    "say 'what": "liza merge t",
}
"""The hint of the error, and the next command: only one plain command is taken from the board."""


def test_a_merge_set_aside_is_an_alarm_with_one_command() -> None:
    until = NOW + timedelta(seconds=30)
    state = board(approved(set_aside=MergeRetry(kind="failed", reason="fatal: no\nspace", tries=2, until=until)))
    found = {one.kind: one for one in evaluate_alarms(state, NOW, AlarmFacts())}["merge_set_aside"]
    assert found.message == (
        "t is approved and could not be merged (2 times): fatal: no space; the next try is at 12:00:30Z, "
        "others are merged meanwhile"
    )
    assert found.next == "liza merge t"
    late = {one.kind: one for one in evaluate_alarms(state, NOW + timedelta(hours=1), AlarmFacts())}["merge_set_aside"]
    assert late.message.endswith("; the next try has been due since 12:00:30Z, and waits for a supervisor")
    for hint, step in HINTS.items():
        state = board(approved(set_aside=MergeRetry(kind="failed", reason="x", until=until, hint=hint)))
        assert [one.next for one in evaluate_alarms(state, NOW, AlarmFacts()) if one.kind == "merge_set_aside"] == [
            step
        ], hint
    once = board(approved(set_aside=MergeRetry(kind="merger died", reason="x")))
    assert [one.kind for one in evaluate_alarms(once, NOW, AlarmFacts())] == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (RefChange("refs/heads/integration", built_on=True), True),
        (RefChange("refs/tags/v1", built_on=True), True),
        (RefChange("refs/heads/task/b", built_on=True), True),
        (RefChange("refs/heads/main", rewound=True), True),
        (RefChange("refs/heads/old", gone=True), True),
        (RefChange("refs/liza/tested/t"), True),
        (RefChange("refs/liza/candidates/t", gone=True), True),
        (RefChange("refs/heads/main"), False),
        (RefChange("refs/heads/integration"), False),
        (RefChange("refs/heads/task/b", rewound=True), False),
        (RefChange("refs/liza/blackboard"), False),
        (RefChange("refs/liza/salvage/b/coder-1.1"), False),
        (RefChange("refs/remotes/origin/main", rewound=True), False),
        (RefChange("refs/stash", gone=True), False),
    ],
)
def test_only_refs_that_tests_alone_can_have_moved_are_named(change: RefChange, told: bool) -> None:
    assert git_refs.refs_moved_by_tests([change]) == ((change.name,) if told else ())


@pytest.mark.parametrize(
    ("there", "related", "kind"),
    [
        (False, False, MergeFailureKind.GONE),
        (True, False, MergeFailureKind.UNRELATED),
        (True, True, MergeFailureKind.FAILED),
    ],
)
def test_the_kind_of_a_failure_follows_from_the_repository(there: bool, related: bool, kind: MergeFailureKind) -> None:
    assert merge_rules.classify_failure(commit_exists=there, related=related) is kind


@pytest.mark.parametrize("value", ["always", "after_red", "never", "sometimes"])
def test_when_a_slot_is_cleaned_is_one_of_three_words(value: str) -> None:
    state = replace(board(), config=Config(merge_clean=value))
    assert bool(invariants.check_entry("config", "config", state.config, state)) == (value == "sometimes")


def test_alternating_kinds_of_failures_still_lengthen_the_pause() -> None:
    state = board(approved())
    for kind in (MergeFailureKind.FAILED, MergeFailureKind.MOVING, MergeFailureKind.FAILED, MergeFailureKind.BASE_RED):
        state = merge_rules.retry_or_fail(state, "t", MergeFailure(kind, "git's words"), BY)
    aside = state.tasks[0].set_aside
    assert aside is not None
    assert aside.until is not None
    assert (aside.tries, (aside.until - NOW).total_seconds()) == (4, 80.0)


def test_failures_of_another_kind_are_no_deaths() -> None:
    state = board(approved())
    for kind in (MergeFailureKind.FAILED, MergeFailureKind.FAILED, MergeFailureKind.DIED):
        state = merge_rules.retry_or_fail(state, "t", MergeFailure(kind, "git's words"), BY)
    assert state.tasks[0].status is Status.APPROVED


def test_a_dropped_task_written_back_as_approved_is_not_merged() -> None:
    """Its history still has the verdict on exactly its commit."""
    dropped = backlog.drop(board(approved()), "t", BY, None)
    forged = dropped.with_task(replace(dropped.tasks[0], status=Status.APPROVED))
    assert merge_rules.next_to_merge(forged, NOW) is None
    assert (
        merge_rules.merge_obstacle(forged, forged.tasks[0])
        == "nothing in its history led there: the last step was 'drop'"
    )
