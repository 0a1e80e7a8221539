"""Which tasks an undo names and refuses, what the board records, and what then is true of the undone task."""

from __future__ import annotations

from datetime import timedelta

import pytest

from liza.board.rules import archiving
from liza.board.rules.archiving import ArchiveTotals
from liza.merging.rules import undo_rules
from liza.model import invariants, targets
from liza.model.errors import Refused
from liza.model.history_events import HistoryEvent, describe_undo
from liza.model.model import Event, State, Status, Task, Undo
from liza.model.value_classes import replace
from liza.tasks.rules import picking
from tests.unit.boards import NOW, board

S, E = Status, HistoryEvent
RECORD = Undo(commit="c" * 40, tested=True, by="human:ann", because="not now")


def merged(name: str, *needs: str, minute: int = 0, **fields: object) -> Task:
    when = NOW + timedelta(minutes=minute)
    event = Event(time=when, event=E.MERGE, agent="liza", commit="a" * 40)
    usual = {"description": "d", "done_when": "w", "scope": "s", "spec_ref": "README.md", "depends_on": needs}
    verdict = {"merge_commit": "a" * 40, "review_commit": "b" * 40, "approved_by": "code-reviewer-1"}
    return replace(Task(id=name, status=S.MERGED, history=(event,)), **{**usual, **verdict, **fields})


def opened(name: str, *needs: str, status: Status = S.UNCLAIMED) -> Task:
    return replace(merged(name, *needs), status=status, merge_commit=None, review_commit=None, approved_by=None)


def with_tasks(*tasks: Task) -> State:
    return replace(board(), tasks=tasks)


def undone(state: State, name: str = "a") -> State:
    task = state.task(name)
    assert task is not None
    return undo_rules.record_undone(undo_rules.begin_undo(state, task, RECORD), name, NOW)


def test_dependents_come_in_the_order_of_their_undo() -> None:
    tasks = (
        merged("a"),
        merged("b", "a", minute=1),
        merged("c", "b", minute=2),
        merged("d", "a", minute=3),
        merged("other", minute=4),
        opened("open", "a"),
        opened("far", "open"),
        opened("dropped", "a", status=S.ABANDONED),
    )
    found = undo_rules.find_dependents(tasks, "a")
    assert (found.merged, found.open) == (("d", "c", "b"), ("open",))
    with pytest.raises(Refused) as refused:
        undo_rules.refuse_dependents("a", found)
    assert refused.value.hint == "liza undo d"


def test_a_dependency_on_a_replaced_task_is_one_on_its_successor() -> None:
    replaced = replace(opened("old", status=S.SUPERSEDED), superseded_by=("a",))
    assert undo_rules.find_dependents((merged("a"), replaced, merged("b", "old")), "a").merged == ("b",)


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        (opened("a"), 'liza task drop a "it is not wanted any more"'),
        (opened("a", status=S.APPROVED), 'liza task drop a "it is not wanted any more"'),
        (opened("a", status=S.ABANDONED), "liza task show a"),
        (replace(opened("a", status=S.SUPERSEDED), superseded_by=("b", "c")), "liza undo b"),
    ],
)
def test_a_task_without_a_merge_is_refused_with_its_command(task: Task, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        undo_rules.require_merged(task)
    assert refused.value.hint == hint


def test_an_undone_task_is_abandoned_with_its_story() -> None:
    before = with_tasks(merged("a"), merged("b"))
    after = undone(before)
    task = after.task("a")
    assert task is not None
    assert (task.status, task.undo) == (S.ABANDONED, Undo(commit="c" * 40, tested=True))
    assert (task.history[-1].agent, task.history[-1].detail) == ("human:ann", "not now")
    assert describe_undo(task) == f"undone as {'c' * 10}: not now"
    assert after.task("b") is before.task("b")
    assert invariants.check_board(after) == ()
    assert undone_again(after) is after
    assert not targets.is_on_integration(task)
    assert targets.find_own_commits(task) == ("a" * 40, "c" * 40)


def undone_again(state: State) -> State:
    return undo_rules.record_undone(state, "a", NOW)


def test_what_depends_on_an_undone_task_waits_again() -> None:
    before = with_tasks(merged("a"), opened("b", "a"))
    after = undone(before)
    waiting = after.task("b")
    assert waiting is not None
    assert picking.unmet_dependencies(before, waiting) == ()
    assert picking.unmet_dependencies(after, waiting) == ("a",)
    assert "b" in picking.find_unclaimable(after)
    assert invariants.check_board(after) == ()


def test_a_revert_that_was_not_published_leaves_the_task_merged() -> None:
    before = with_tasks(merged("a"))
    task = before.tasks[0]
    begun = undo_rules.begin_undo(before, task, RECORD)
    assert begun.tasks[0].status is S.MERGED
    assert targets.find_own_commits(begun.tasks[0]) == ("a" * 40,)
    assert archiving.find_archivable(begun, frozenset()) == ()
    assert undo_rules.drop_undo(begun, "a") == before
    with pytest.raises(Refused):
        undo_rules.begin_undo(before, replace(task, merge_commit="d" * 40), RECORD)


def test_a_task_of_the_archive_comes_back_with_its_numbers() -> None:
    approved = Event(time=NOW, event=E.APPROVE, agent="code-reviewer-1", commit="b" * 40)
    task = replace(merged("a"), history=(approved, *merged("a").history))
    before = with_tasks(task, merged("c"), opened("b", "a"))
    archived = archiving.move_to_archive(before, (task, merged("c")), ArchiveTotals())
    assert archived.archived.outcomes == {"a": S.MERGED}
    back = archiving.take_back(archived, task)
    assert (back.archived.counts, back.archived.verdicts, back.archived.outcomes) == ({"MERGED": 1}, {}, {})
    assert back.task("a") == task
    assert archiving.take_back(back, task) is back
    assert invariants.check_board(undone(back)) == ()


def test_an_undo_is_a_violation_on_any_other_task() -> None:
    wrong = (replace(opened("a"), undo=RECORD), replace(opened("b", status=S.ABANDONED), undo=RECORD))
    fields = [violation.field for violation in invariants.check_board(with_tasks(*wrong))]
    assert fields == ["undo", "undo"]
