"""A task of which a person's edit took the coder: nobody is recorded as the one who failed it."""

from __future__ import annotations

from msgspec.structs import replace

from liza.model.model import Status
from liza.tasks.rules import coding, reviews
from tests.unit.boards import HEAD, NOW, board, task, under_review, with_config


def test_blocking_a_task_without_a_coder_names_no_agent() -> None:
    state = coding.block_by_supervisor(board(task("t", Status.REJECTED, review_commit=HEAD)), "t", "tries used up", NOW)
    (after,) = state.tasks
    assert after.status is Status.BLOCKED
    assert (after.failed_by, after.history[-1].agent) == ((), None)


def test_a_review_deadlock_without_a_coder_names_no_agent() -> None:
    state, _, review = under_review(with_config(board(task()), max_review_cycles=1))
    state = state.with_task(replace(state.tasks[0], assigned_to=None))
    (after,) = reviews.reject(state, "task-1", review, HEAD, NOW, "1. a.py:1 is wrong").tasks
    assert after.status is Status.BLOCKED
    assert after.failed_by == ()
