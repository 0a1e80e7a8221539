"""What a task that is put back has of its earlier self."""

from __future__ import annotations

from msgspec.structs import replace

from liza.rules.model import Status
from liza.rules.tasks import coding, forged_status, reviews
from liza.rules.tasks.coding import SubmittedWork
from liza.rules.tasks.picking import Evidence
from tests.unit.boards import NOW, agents, board, claimed, later, task, under_review


def test_a_review_that_its_reviewer_has_left_for_another_one_is_not_put_back() -> None:
    crew = agents("coder-1", "coder-2", "code-reviewer-1", runs=0)
    before, _, _ = under_review(board(task(), task("task-2"), agents=crew))
    earlier = before.tasks[0]
    forged = before.with_task(replace(earlier, status=Status.DRAFT, reviewing_by=None, review_run=None))
    assert forged_status.restore_task(forged, earlier, 1, "human:me", NOW).tasks[0].reviewing_by == "code-reviewer-1"
    state, run = claimed(forged, "task-2", "coder-2")
    state = coding.submit(state, "task-2", run, SubmittedWork(head="e" * 40, ahead=True, branch="task/task-2"), NOW)
    state, _ = reviews.claim_review(state, "task-2", "code-reviewer-1", later(1), Evidence(dead=frozenset({run})))
    back = forged_status.restore_task(state, earlier, 1, "human:me", later(2)).tasks[0]
    assert (back.status, back.reviewing_by, back.review_run) == (Status.READY_FOR_REVIEW, None, None)
