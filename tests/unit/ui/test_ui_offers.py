"""What is offered for each status of a task, how it is confirmed, and the command that does the same."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.alarm_table import Alarm
from liza.model.model import FINAL_STATUSES, Status, Task
from liza.tasks.diff import TaskDiff
from liza.ui.rules.lines import Target, TargetKind
from liza.ui.rules.offers import (
    OUTSIDE,
    ActionClass,
    ActionName,
    Offer,
    command_of,
    describe_change,
    mark_task,
    offer_actions,
    offer_for_task,
)
from liza.ui.rules.picture_view import DraftComment
from liza.ui.rules.task_screen import describe_lines, split_diff
from liza.view.rules.picture import build_picture
from liza.view.rules.structs import CrewFacts
from tests.unit import boards

ENDS = (ActionName.DROP, ActionName.RELEASE, ActionName.STOP)
DIFF = """\
diff --git a/shop/tax.py b/shop/tax.py
index 1..2 100644
--- a/shop/tax.py
+++ b/shop/tax.py
@@ -1,4 +1,4 @@
 rate = 5
-total = 1
+total = 2
+--- not a heading
 end
@@ -10 +10,0 @@
-gone
diff --git a/a b b/a b
--- a/a b\t
+++ b/a b\t
@@ -0,0 +1 @@
+x
"""


def offers_of(status: Status, **fields: object) -> dict[ActionName, Offer]:
    task = Task(id="pdf", status=status, **fields)  # type: ignore[arg-type]
    return {offer.name: offer for offer in offer_for_task(task)}


@pytest.mark.parametrize("status", list(Status))
def test_what_ends_work_is_confirmed_by_its_name(status: Status) -> None:
    offers = offers_of(status, review_commit="abc", reviewing_by="code-reviewer-1", blocked_questions=("Why?",))
    for name, offer in offers.items():
        assert (offer.action_class is ActionClass.END) == (name in ENDS)
        assert offer.mark is not None, "it is refused if the task has changed"
        assert name in OUTSIDE or offer.effect
    assert (ActionName.DROP in offers) == (status not in FINAL_STATUSES)
    assert (ActionName.ANSWER in offers) == (status is Status.BLOCKED)
    assert (ActionName.APPROVE in offers) == (status is Status.READY_FOR_REVIEW)
    assert (ActionName.MOVE in offers) == (status is Status.APPROVED)


def test_only_comments_on_the_commit_go_with_its_rejection() -> None:
    task = Task(id="pdf", status=Status.READY_FOR_REVIEW, review_commit="new")
    own, old = DraftComment("pdf", "new", "a:1", "x"), DraftComment("pdf", "old", "a:2", "y")
    (reject,) = [offer for offer in offer_for_task(task, (own, old)) if offer.name is ActionName.REJECT]
    assert command_of(reject, ("no",)) == (
        *("liza", "verdict", "reject", "no", "--task", "pdf", "--commit", "new"),
        *("--comment", "a:1", "x"),
    )


@given(st.text(min_size=1))
def test_the_command_has_the_typed_text_as_one_word(text: str) -> None:
    offer = offers_of(Status.BLOCKED, blocked_questions=("Why?",))[ActionName.ANSWER]
    words = command_of(offer, (text,))
    assert shlex.split(shlex.join(words)) == ["liza", "answer", "pdf", text]


def test_each_change_of_a_task_is_named() -> None:
    task = Task(id="pdf", status=Status.READY_FOR_REVIEW, review_commit="a", iteration=1)
    mark = mark_task(task)
    assert describe_change(mark, task, "pdf") is None
    changed = (
        None,
        Task(id="pdf", status=Status.APPROVED, review_commit="a", iteration=1),
        Task(id="pdf", status=Status.READY_FOR_REVIEW, review_commit="a", iteration=2),
        Task(id="pdf", status=Status.READY_FOR_REVIEW, review_commit="b", iteration=1),
    )
    sentences = [describe_change(mark, other, "pdf") for other in changed]
    assert all(sentences)
    assert len(set(sentences)) == len(changed)


def test_lines_of_a_diff_have_the_numbers_of_the_commit() -> None:
    rows = {row.text: row.location for row in split_diff(DIFF)}
    assert rows[" rate = 5"] == "shop/tax.py:1"
    assert rows["+total = 2"] == "shop/tax.py:2"
    assert rows["+--- not a heading"] == "shop/tax.py:3"
    assert rows[" end"] == "shop/tax.py:4"
    assert rows["-total = 1"] == rows["-gone"] == rows["+++ b/shop/tax.py"] == ""
    assert rows["+x"] == "a b:1"


def test_a_comment_on_removed_lines_belongs_to_a_line_of_the_commit() -> None:
    diff = TaskDiff("pdf", "READY_FOR_REVIEW", "a", "b", None, (), (), DIFF)
    texts = [row.text for row in split_diff(DIFF)]
    spot = describe_lines(diff, [texts.index("-total = 1")])
    assert spot is not None
    assert spot.location == "shop/tax.py:2"
    assert "total = 1" in spot.prefix
    several = describe_lines(diff, [texts.index(" rate = 5"), texts.index("+total = 2")])
    assert several is not None
    assert (several.location, several.prefix) == ("shop/tax.py:1", "to line 2: ")
    assert describe_lines(diff, [0]) is None


@pytest.mark.parametrize(
    ("step", "is_run"),
    [
        ("liza doctor --fix", True),
        ("liza down", False),
        ("liza init && liza doctor --fix", False),
        ("liza status; rm x", False),
    ],
)
def test_no_key_runs_what_ends_sessions_or_several_commands(step: str, is_run: bool) -> None:
    alarm = Alarm("moved", "crew", "it was moved", step)
    picture = build_picture(CrewFacts(now=boards.NOW, state=boards.board(), waiting=(alarm,)))
    offers = offer_actions(picture, Target(TargetKind.ALARM, "moved:crew"))
    expected = {ActionName.EDIT, ActionName.RUN} if is_run else {ActionName.EDIT}
    assert {offer.name for offer in offers if offer.name in OUTSIDE} == expected


def test_a_text_belongs_to_the_question_or_commit_it_is_about() -> None:
    answers = [offers_of(Status.BLOCKED, blocked_questions=(text,))[ActionName.ANSWER] for text in ("Why?", "Who?")]
    notes = [offers_of(status)[ActionName.NOTE] for status in (Status.CLAIMED, Status.BLOCKED)]
    assert answers[0].draft_key != answers[1].draft_key
    assert notes[0].draft_key == notes[1].draft_key
