"""The merge queue: its order, what a person changes about it, and which tasks are merged together."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from datetime import timedelta

import pytest
from msgspec.structs import replace

from liza.alarms.rules.alarm_checks import AlarmFacts, evaluate_alarms
from liza.merging.rules import merge_queue, merge_rules
from liza.merging.rules.merge_rules import MergeFailureKind
from liza.model.configuration import QueueSettings
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, MergeInProgress, MergeRetry, State, Status, Task
from liza.model.tested import HowTested
from liza.model.transitions import Invocation
from liza.tasks.rules import backlog
from tests.unit.merging.test_merging import BY, NOW, TIP, approved, board


def order(state: State) -> list[str]:
    return [entry.task.id for entry in merge_queue.ordered_queue(state, NOW)]


def obstacles(state: State) -> dict[str, str | None]:
    return {entry.task.id: entry.obstacle and entry.obstacle[0] for entry in merge_queue.ordered_queue(state, NOW)}


def waiting(task_id: str, seconds: int, **fields: object) -> object:
    task = approved(task_id, **fields)
    last = replace(task.history[-1], time=NOW - timedelta(seconds=seconds))
    return replace(task, history=(*task.history[:-1], last))


def test_priority_comes_first_then_the_waiting_time() -> None:
    state = board(waiting("new", 10), waiting("old", 50), waiting("urgent", 1, priority=1))
    assert order(state) == ["urgent", "old", "new"]


@pytest.mark.parametrize("position", [1, 2, 3, 4])
@pytest.mark.parametrize("task_id", ["a", "b", "c", "d"])
def test_a_moved_task_gets_its_position_and_others_keep_order(task_id: str, position: int) -> None:
    state = board(*(waiting(name, 50 - number) for number, name in enumerate("abcd")))
    moved = merge_queue.move(merge_queue.move(state, "c", 2), task_id, position)
    rest = [name for name in ["a", "c", "b", "d"] if name != task_id]
    assert order(moved) == [*rest[: position - 1], task_id, *rest[position - 1 :]]


def test_moving_a_task_to_the_front_changes_only_it() -> None:
    state = board(waiting("a", 50), waiting("b", 40), waiting("urgent", 1, priority=1))
    moved = merge_queue.move(state, "b", 1)
    assert [task.id for before, task in zip(state.tasks, moved.tasks, strict=True) if before != task] == ["b"]
    assert merge_rules.next_to_merge(moved, NOW) == moved.task("b")


@pytest.mark.parametrize("position", [0, -1, 3])
def test_a_position_that_the_queue_does_not_have_is_refused(position: int) -> None:
    with pytest.raises(UsageError, match="the queue has 2"):
        merge_queue.move(board(approved("a"), approved("b")), "a", position)


def test_a_held_task_is_passed_over_until_it_is_released() -> None:
    state = merge_queue.hold(board(waiting("a", 50), approved("b")), "a", " after  the release ")
    assert merge_rules.next_to_merge(state, NOW) == state.task("b")
    assert obstacles(state) == {"a": "held: after the release", "b": None}
    alarm = {found.kind: found for found in evaluate_alarms(state, NOW, AlarmFacts())}["merge_held"]
    assert (alarm.message, alarm.next) == ("a is approved and held: after the release", "liza queue release a")
    with pytest.raises(Refused, match="held"):
        merge_queue.refuse_held(state.tasks[0])
    assert merge_rules.next_to_merge(merge_queue.release(state, "a"), NOW) == approved_like(state, "a")


def approved_like(state: State, task_id: str) -> object:
    task = state.task(task_id)
    assert task is not None
    return replace(task, merge_hold=None)


def test_only_an_open_task_is_held_and_with_a_reason() -> None:
    with pytest.raises(Refused, match="in no queue"):
        merge_queue.hold(board(replace(approved("a"), status=Status.MERGED)), "a", "why")
    with pytest.raises(Refused, match="being merged right now"):
        merge_queue.hold(board(approved("a", merging=chain("1")[0])), "a", "why")
    with pytest.raises(UsageError, match="reason is empty"):
        merge_queue.hold(board(approved("a")), "a", " ")


@pytest.mark.parametrize(("tested", "is_refused"), [(None, True), (True, False)])
def test_a_retry_in_progress_counts_as_a_merge(tested: bool | None, is_refused: bool) -> None:
    """The merge failed before, so the task is set aside until the retry has ended."""
    merging = replace(chain("1")[0], tested=tested)
    state = board(approved("a", merging=merging, set_aside=MergeRetry(kind="failed", reason="x")))
    said = Invocation(now=NOW, by="human:ann")
    for change in (lambda: merge_queue.hold(state, "a", "why"), lambda: backlog.drop(state, "a", said, None)):
        with pytest.raises(Refused, match="being merged right now") if is_refused else nullcontext():
            change()


def test_a_retry_ends_the_pause_and_keeps_the_count() -> None:
    until = NOW + timedelta(seconds=30)
    state = board(approved("a", set_aside=MergeRetry(kind="failed", reason="x", tries=3, until=until)))
    assert obstacles(state) == {"a": "set aside: x"}
    tried = merge_queue.retry(state, "a")
    assert merge_rules.next_to_merge(tried, NOW) == tried.tasks[0]
    assert tried.tasks[0].set_aside == MergeRetry(kind="failed", reason="x", tries=3)


def test_tasks_that_depend_on_each_other_are_not_merged() -> None:
    state = board(approved("a", depends_on=("b",)), approved("b", depends_on=("a",)))
    assert obstacles(state) == {"a": "depends on b", "b": "depends on a"}
    assert merge_rules.next_to_merge(state, NOW) is None


def test_a_batch_has_the_head_and_mergeable_tasks_within_size() -> None:
    tasks = [waiting(f"t{number}", 50 - number) for number in range(5)]
    state = board(*tasks, waiting("held", 99, merge_hold="why"))
    state = replace(state, config=replace(state.config, queue=QueueSettings(batch=3)))
    head = merge_rules.next_to_merge(state, NOW)
    assert head is not None
    assert [task.id for task in merge_queue.choose_batch(state, head, NOW)] == ["t0", "t1", "t2"]


@pytest.mark.parametrize(
    ("kind", "is_alone"),
    [(kind, kind in ("merger died", "failed", "batch failed")) for kind in MergeFailureKind],
)
def test_a_task_that_may_fail_its_merges_is_tried_alone(kind: MergeFailureKind, is_alone: bool) -> None:
    tried = waiting("a", 50, set_aside=MergeRetry(kind=kind, reason="x"))
    state = board(tried, waiting("b", 40), waiting("c", 30))
    first, second = state.tasks[:2]
    assert len(merge_queue.choose_batch(state, first, NOW)) == (1 if is_alone else 3)
    assert [task.id for task in merge_queue.choose_batch(state, second, NOW)] == (
        ["b", "c"] if is_alone else ["b", "a", "c"]
    )


def chain(*names: str, tip: str | None = None) -> list[MergeInProgress]:
    """The candidates of a batch on TIP, named after their tasks."""
    commits = [TIP, *(name * 40 for name in names)]
    last = tip or (commits[-1] if len(names) > 1 else None)
    return [
        MergeInProgress(candidate=commit, expected=before, tip=last) for before, commit in itertools.pairwise(commits)
    ]


def test_the_tasks_of_a_batch_are_listed_in_chain_order() -> None:
    one, two, three = chain("1", "2", "3")
    tasks = [approved("c", merging=three), approved("x"), approved("a", merging=one), approved("b", merging=two)]
    (batch,) = merge_queue.find_batches(board(*tasks))
    assert (batch.ids, batch.expected, batch.tip) == (("a", "b", "c"), TIP, "3" * 40)
    assert (batch.prefix(2).tip, batch.prefix(1).tip) == ("2" * 40, "1" * 40)


def test_a_batch_of_which_a_task_is_missing_is_none() -> None:
    one, _, three = chain("1", "2", "3")
    batches = merge_queue.find_batches(board(approved("a", merging=one), approved("c", merging=three)))
    assert [batch.ids for batch in batches] == [("a",), ("c",)]
    assert batches[0].members[-1].merging.candidate != batches[0].tip


def test_each_task_of_a_published_batch_merges_its_own_candidate() -> None:
    one, two, three = chain("1", "2", "3")
    state = board(approved("a"), approved("b"), approved("c"))
    tasks = [replace(task, merging=merging) for task, merging in zip(state.tasks, (one, two, three), strict=True)]
    (batch,) = merge_queue.find_batches(board(*tasks))
    state = merge_queue.begin_batch(state, batch)
    state = merge_queue.record_tested(state, batch.prefix(2), ["c"], HowTested(True))
    assert [task.merging and task.merging.tested for task in state.tasks] == [True, True, None]
    (passed,) = merge_queue.find_batches(state)
    merged = merge_queue.record_merged(state, passed, BY)
    assert [(task.status.value, task.merge_commit, task.tested) for task in merged.tasks] == [
        ("MERGED", "1" * 40, True),
        ("MERGED", "2" * 40, True),
        ("APPROVED", None, None),
    ]


def _left(task_id: str, *events: HistoryEvent, status: Status, detail: str = "") -> Task:
    history = [
        Event(time=NOW + timedelta(seconds=at), event=event, commit=TIP, detail=detail)
        for at, event in enumerate(events, int(task_id[1:]))
    ]
    return replace(approved(task_id), status=status, history=tuple(history))


def test_a_task_that_left_the_queue_has_a_reason() -> None:
    approve = HistoryEvent.APPROVE
    state = board(
        _left("t1", approve, HistoryEvent.MERGE, status=Status.MERGED),
        _left("t2", approve, HistoryEvent.MERGE_FAILED, status=Status.INTEGRATION_FAILED, detail="conflict\nlines"),
        _left("t3", approve, HistoryEvent.DROP, status=Status.ABANDONED, detail="not needed"),
        _left("t4", approve, HistoryEvent.MERGE_FAILED, approve, status=Status.APPROVED),
        _left("t5", HistoryEvent.DROP, status=Status.ABANDONED),
    )
    exits = merge_queue.find_exits(state)
    assert [(row.id, row.is_merged) for row in exits] == [("t3", False), ("t2", False), ("t1", True)]
    assert [row.why for row in exits] == [
        "given up: not needed",
        "does not merge: conflict",
        f"merged as {TIP[:10]}",
    ]
    assert exits[0].time == NOW + timedelta(seconds=4)
