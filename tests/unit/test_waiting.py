"""What a crew waits for when only a person can continue it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from liza.rules.model import MergeInProgress, PlanningClaim, State, Status, Task
from liza.rules.reports.waiting import waiting_alarms
from liza.rules.tasks.drafts import MissingParts
from liza.rules.tasks.planning import find_triggers
from tests.unit.boards import HEAD, NOW, agents, board, task

S = Status
ALL = frozenset({"planner", "coder", "code-reviewer"})
WORKERS = ALL - {"planner"}


def blocked(task_id: str = "t") -> Task:
    return task(task_id, S.BLOCKED, blocked_reason="no address", blocked_questions=("which?",))


def planned_twice(state: State) -> State:
    return replace(state, planning=PlanningClaim(fingerprint=find_triggers(state)[0].fingerprint, count=2))


def waits(state: State, roles: frozenset[str] = ALL, **lacks: MissingParts) -> list[str]:
    return [alarm.next for alarm in waiting_alarms(state, NOW, lacks, roles)]


FILES: dict[str, Any] = {
    "review_commit": HEAD,
    "approved_by": "code-reviewer-1",
    "merging": MergeInProgress(candidate=HEAD, expected=HEAD, waiting=("a.txt",)),
}


@pytest.mark.parametrize(
    ("state", "roles", "steps"),
    [
        (board(blocked()), ALL, []),  # the planner can answer
        (planned_twice(board(blocked())), ALL, ['liza answer t "…"']),
        (board(blocked()), WORKERS, ['liza answer t "…"']),
        (board(blocked(), task("next", depends_on=("t",))), WORKERS, ['liza answer t "…"']),
        (board(blocked(), task("other")), WORKERS, []),
        (board(blocked(), task("u", S.READY_FOR_REVIEW, review_commit=HEAD)), WORKERS, []),
        (board(blocked("a"), blocked("b")), WORKERS, ['liza answer a "…"', 'liza answer b "…"']),
        (board(task(failed_by=("coder-1",)), agents=agents("coder-1")), WORKERS, ["liza up --coders 2"]),
        (board(task("t", S.APPROVED, **FILES)), WORKERS, ["git status"]),
        (board(), WORKERS, ["liza task add --help"]),
        (board(), ALL, []),
        (board(task("t", S.READY_FOR_REVIEW, review_commit=HEAD)), frozenset({"coder"}), ["liza status"]),
        (board(task("t", S.MERGED)), WORKERS, []),
        (planned_twice(board(task("t", S.MERGED))), ALL, ["liza task list"]),
    ],
)
def test_a_crew_that_only_a_person_can_continue_says_with_which_commands(
    state: State, roles: frozenset[str], steps: list[str]
) -> None:
    assert waits(state, roles) == steps


def test_a_draft_that_waits_for_a_document_names_the_command_that_commits_it() -> None:
    state = board(task("t", S.DRAFT))
    assert waits(state, t=MissingParts(("spec a.md is not committed",), "git add a.md")) == ["git add a.md"]
