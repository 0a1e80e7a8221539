from __future__ import annotations

import pytest

from liza.model.model import MergeInProgress, Status
from liza.tasks.rules.planning import find_stalled_tasks
from tests.unit.boards import BASE, HEAD, board, task

S = Status
CODER, REVIEWER = frozenset({"coder"}), frozenset({"code-reviewer"})


@pytest.mark.parametrize(
    ("status", "roles", "undone"),
    [
        (S.UNCLAIMED, REVIEWER, True),
        (S.CLAIMED, REVIEWER, True),
        (S.INTEGRATION_FAILED, REVIEWER, True),
        (S.READY_FOR_REVIEW, REVIEWER, False),
        (S.READY_FOR_REVIEW, CODER, True),
        (S.APPROVED, REVIEWER, False),
        (S.APPROVED, frozenset(), True),
        (S.UNCLAIMED, CODER, False),
        (S.BLOCKED, frozenset({"planner"}), False),
        # A coder continues it after the answer: the crew waits for that, and not for the agent that left.
        (S.BLOCKED, CODER, False),
        (S.BLOCKED, REVIEWER, True),
        (S.DRAFT, CODER, False),
        (S.DRAFT, REVIEWER, True),
        (S.MERGED, frozenset(), False),
    ],
)
def test_a_crew_leaves_tasks_without_an_agents_role_undone(status: Status, roles: frozenset[str], undone: bool) -> None:
    state = board(task("t", status, review_commit=BASE, blocked_reason="r", blocked_questions=("q",)))
    assert find_stalled_tasks(state, roles) == (("t",) if undone else ())


def test_a_task_waiting_for_a_person_is_not_left_undone() -> None:
    merging = MergeInProgress(candidate=HEAD, expected=HEAD, waiting=("a.txt",))
    waiting = board(task("t", S.APPROVED, review_commit=HEAD, approved_by="code-reviewer-1", merging=merging))
    assert find_stalled_tasks(waiting, REVIEWER) == ()
    blocked = task("d", S.BLOCKED, blocked_reason="r", blocked_questions=("q",))
    assert find_stalled_tasks(board(blocked, task("t", S.UNCLAIMED, depends_on=("d",))), CODER) == ()
