"""Triggers of planning: what counts as the same reason as before."""

from __future__ import annotations

import pytest

from liza.rules.model import Discovery, Event, State, Status, Task
from liza.rules.tasks.planning import find_triggers
from tests.unit.boards import NOW, board, task


def fingerprint(state: State) -> str:
    return find_triggers(state)[0].fingerprint


def blocked(reason: str = "r", *, times: int = 1, failed_by: tuple[str, ...] = ()) -> Task:
    events = [Event(time=NOW, event=name) for _ in range(times) for name in ("claim", "block", "unblock")][:-1]
    return task(
        "t", Status.BLOCKED, blocked_reason=reason, blocked_questions=("q",), failed_by=failed_by, history=tuple(events)
    )


@pytest.mark.parametrize("failed_by", [(), ("coder-1", "coder-2")])
def test_a_blocked_task_is_the_same_reason_in_other_words_and_a_new_one_when_it_is_blocked_again(
    failed_by: tuple[str, ...],
) -> None:
    before = board(blocked("it crashed 5 times", failed_by=failed_by))
    assert fingerprint(board(blocked("5 sessions crashed", failed_by=failed_by))) == fingerprint(before)
    assert fingerprint(board(blocked("it crashed 5 times", times=2, failed_by=failed_by))) != fingerprint(before)
    assert "it crashed 5 times" in find_triggers(before)[0].facts, "the brief of the planner has the reason"


def test_an_urgent_discovery_is_the_same_reason_after_its_text_was_edited() -> None:
    def found(name: str, text: str) -> State:
        return board(task(), discovered=(Discovery(id=name, urgency="immediate", description=text),))

    assert fingerprint(found("d1", "keys in the log")) == fingerprint(found("d1", "keys in log.txt"))
    assert fingerprint(found("d1", "keys in the log")) != fingerprint(found("d2", "keys in the log"))


def test_a_sprint_that_is_complete_with_more_tasks_than_before_is_a_new_reason() -> None:
    merged, dropped = task("a", Status.MERGED), task("b", Status.ABANDONED)
    assert len({fingerprint(board(*tasks)) for tasks in ((merged,), (dropped,), (merged, dropped))}) == 3
