"""Red gates: which task is blamed for them, and what happens when the branch is red without any task."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from liza.breaker.rules.breaker_patterns import collect_events
from liza.merging.rules import epic_rules, merge_alarms, merge_queue, merge_rules
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import history_events
from liza.model.errors import Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import EpicStep, MergeInProgress, State, Status, Task
from liza.model.transitions import Invocation, add_event, find_unexplained_step
from liza.tasks.rules import coding
from liza.tasks.rules.coding import SubmittedWork
from tests.unit.boards import NOW, board, claimed, later, task
from tests.unit.merging.test_merging import BY, COMMIT, approved
from tests.unit.merging.test_merging import board as merge_board

RED = "pytest: exit 1 on the merge with integration (log: .liza/logs/merge-a.log)\nno service"
E = HistoryEvent


def two_approved() -> State:
    return merge_board(approved("a"), approved("b"))


def blamed(state: State, task_id: str = "a", detail: str = RED, seconds: float = 10) -> State:
    return merge_rules.fail_merge(state, task_id, Invocation(now=later(seconds), by="coder-1", detail=detail))


def red_branch(seconds: float = 0, branch: str = "integration", kind: str = "BASE_RED") -> MergeFailure:
    return MergeFailure(MergeFailureKind[kind], f"{branch} is red ({seconds})", branch=branch, gates=("tests",))


def fail(state: State, task_id: str, failure: MergeFailure, seconds: float) -> State:
    return merge_rules.retry_or_fail(state, task_id, failure, Invocation(now=later(seconds), by="coder-1"))


def test_a_second_red_merge_in_a_row_is_suspicious() -> None:
    state = two_approved()
    assert merge_queue.last_blamed(state, "integration") is None
    once = blamed(state)
    assert merge_queue.last_blamed(once, "integration") == once.tasks[0]
    assert merge_queue.last_blamed(once, "release") is None
    merged = Invocation(now=later(20), by="coder-1", commit="f" * 40)
    tested = MergeInProgress(candidate="f" * 40, expected="e" * 40, tested=True)
    after = merge_rules.record_merge(once, "b", merged, tested)
    assert merge_queue.last_blamed(after, "integration") is None
    epic = replace(once, tasks=(once.tasks[0], replace(after.tasks[1], epic="shop")))
    assert merge_queue.last_blamed(epic, "integration") == epic.tasks[0], "b is not on integration yet"
    landed = epic_rules.finish_landing(epic, "shop", "e" * 40, ["b"], Invocation(now=later(30), by="coder-1"))
    assert merge_queue.last_blamed(landed, "integration") is None
    conflict = history_events.describe_conflict("integration", ["a.txt"], "<<<")
    assert merge_queue.last_blamed(blamed(state, detail=conflict), "integration") is None


def test_a_task_is_approved_again_if_the_branch_was_red() -> None:
    state = merge_queue.clear_blame(blamed(two_approved()), "integration", Invocation(now=later(30), by="coder-1"))
    cleared = state.tasks[0]
    assert (cleared.status, cleared.history[-1].event) == (Status.APPROVED, E.MERGE_CLEARED)
    assert merge_rules.merge_obstacle(state, cleared) is None
    assert find_unexplained_step(cleared) is None
    assert merge_queue.last_blamed(state, "integration") is None
    counted = [event.event for event in collect_events(state, later(60))]
    assert E.MERGE_FAILED not in counted
    assert E.MERGE_FAILED in [event.event for event in collect_events(blamed(two_approved()), later(60))]


def cleared_late(status: Status) -> tuple[State, str]:
    """Task a, cleared after its coder began; the run of its coder."""
    state, run = claimed(blamed(two_approved()), "a", "coder-1", later(20))
    if status is Status.BLOCKED:
        state = coding.block(state, "a", run, "nothing to change", ("What is red?",), later(25))
    return merge_queue.clear_blame(state, "integration", Invocation(now=later(30), by="coder-2", detail="red")), run


@pytest.mark.parametrize("status", [Status.CLAIMED, Status.BLOCKED])
def test_a_failure_is_cleared_after_the_coder_began(status: Status) -> None:
    state, _ = cleared_late(status)
    task = state.tasks[0]
    assert (task.status, task.history[-1].event) == (status, E.MERGE_CLEARED)
    assert find_unexplained_step(task) is None
    assert E.MERGE_FAILED not in [event.event for event in collect_events(state, later(60))]
    assert history_events.count_in_a_row(task) == 0
    assert merge_queue.last_blamed(state, "integration") is None
    assert merge_queue.clear_blame(state, "integration", Invocation(now=later(40), by="coder-2")) is state


def test_the_approved_commit_is_submitted_again_after_it_was_cleared() -> None:
    state, run = cleared_late(Status.CLAIMED)
    work = SubmittedWork(head=COMMIT, ahead=True, branch="task/a")
    assert coding.submit(state, "a", run, work, later(40)).tasks[0].status is Status.READY_FOR_REVIEW


@pytest.mark.parametrize("last", [E.MERGE_FAILED, E.REJECT])
def test_a_commit_that_is_to_blame_is_not_submitted_again(last: E) -> None:
    state, run = cleared_late(Status.CLAIMED)
    blamed_again = add_event(state.tasks[0], last, Invocation(now=later(35), by="coder-1", detail=RED))
    work = SubmittedWork(head=COMMIT, ahead=True, branch="task/a")
    with pytest.raises(Refused, match="is the commit that was sent back"):
        coding.submit(state.with_task(blamed_again), "a", run, work, later(40))


def test_a_conflict_after_red_gates_is_not_cleared() -> None:
    conflict = Invocation(
        now=later(20), by="coder-1", detail=history_events.describe_conflict("integration", ["a"], "")
    )
    state = blamed(two_approved())
    state = state.with_task(add_event(state.tasks[0], E.MERGE_FAILED, conflict))
    assert merge_queue.clear_blame(state, "integration", Invocation(now=later(30), by="coder-1")) is state


def test_nothing_is_merged_into_red_branches_before_their_next_test() -> None:
    other = replace(approved("other"), target="release")
    state = fail(merge_board(approved("a"), approved("b"), other), "a", red_branch(), 0)
    retry = state.tasks[0].set_aside
    assert retry is not None
    assert retry.until is not None
    assert merge_rules.find_paused_branches(state, NOW) == {"integration"}
    assert getattr(merge_rules.next_to_merge(state, NOW), "id", None) == "other"
    pause = (retry.until - NOW).total_seconds()
    assert epic_rules.seconds_to_next_try(state, NOW) == pause
    due = getattr(merge_rules.next_to_merge(state, later(pause)), "id", None)
    assert due == "b", "a task that was red alone comes last"
    obstacles = {entry.task.id: entry.obstacle for entry in merge_queue.ordered_queue(state, NOW)}
    assert obstacles["b"] == ("set aside: integration is red (0)", "liza merge b")
    assert obstacles["other"] is None


def test_the_pause_of_a_red_branch_grows_only_by_itself() -> None:
    state = fail(two_approved(), "a", red_branch(), 0)
    first = merge_rules.find_red_branches(state)["integration"]
    asked = fail(state, "b", red_branch(1), 1)
    assert asked.tasks[1].set_aside is not None
    assert asked.tasks[1].set_aside.until == first.until, "a person's try does not prolong it"
    assert first.until is not None
    passed = (first.until - NOW).total_seconds() + 1
    again = merge_rules.find_red_branches(fail(state, "b", red_branch(2), passed))["integration"]
    assert again.tries == 2
    assert again.until == first.until + timedelta(seconds=1) + 2 * (first.until - NOW)
    batch = fail(two_approved(), "a", red_branch(kind="BATCH"), 0).tasks[0]
    assert batch.set_aside is not None
    assert batch.set_aside.until == first.until
    assert not merge_rules.was_red_alone(batch)


def test_a_red_branch_has_one_alarm_with_one_command() -> None:
    state = fail(fail(two_approved(), "a", red_branch(), 0), "b", red_branch(1), 1)
    alarms = [
        *merge_alarms.retry_alarms(state.tasks[0], NOW),
        *merge_alarms.retry_alarms(state.tasks[1], NOW),
        *merge_alarms.red_branch_alarms(state, NOW),
    ]
    assert [alarm.next for alarm in alarms] == ["liza merge a"]
    assert "nothing is merged into integration until it is green" in alarms[0].message


def test_a_person_can_end_the_pause_of_a_red_branch() -> None:
    state = fail(fail(two_approved(), "a", red_branch(), 0), "b", red_branch(1), 1)
    state = merge_queue.retry(state, "b")
    assert merge_rules.find_paused_branches(state, NOW) == frozenset()
    assert merge_rules.find_red_branches(state)["integration"].gates == ("tests",)
    green = merge_rules.clear_red_branch(state, "integration")
    assert [entry.set_aside for entry in green.tasks] == [None, None]


def test_an_epic_does_not_land_on_a_red_branch() -> None:
    merged = replace(approved("a"), status=Status.MERGED, epic="shop")
    state = fail(merge_board(merged, approved("b")), "b", red_branch(), 0)
    assert epic_rules.due_job(state, NOW) is None
    green = merge_rules.clear_red_branch(state, "integration")
    job = epic_rules.due_job(green, NOW)
    assert job is not None
    assert job.step is EpicStep.LAND
    held = epic_rules.schedule_retry(green, "shop", red_branch(), NOW)
    assert merge_rules.find_paused_branches(held, NOW) == {"integration"}
    assert [alarm.next for alarm in merge_alarms.red_branch_alarms(held, NOW)] == ["liza merge epic/shop"]
    assert list(merge_alarms.epic_alarms(held.epics, NOW)) == []


@pytest.mark.parametrize("entry", [task("a"), approved("a")])
def test_a_task_without_a_failed_merge_is_not_cleared(entry: Task) -> None:
    state = board(entry)
    assert merge_queue.clear_blame(state, "integration", Invocation(now=NOW, by=BY.by)) is state
