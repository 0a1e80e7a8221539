"""The goal as a text for an editor."""

from __future__ import annotations

import pytest

from liza.model.errors import UsageError
from liza.model.model import AlignmentNote, Goal
from liza.tasks.rules import edits
from tests.unit.boards import NOW


@pytest.mark.parametrize("description", ["Customers can pay", "Two lines\nof text", "a spec: of it", "ünï"])
def test_what_is_not_changed_is_read_as_it_was(description: str) -> None:
    goal = Goal(id="goal", status="IN_PROGRESS", description=description, spec_ref="docs/a b.md")
    assert edits.parse_goal(edits.format_goal(goal)) == (description, "docs/a b.md")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 lines spec: FILE"),
        ("spec:\n\nA goal", "1 lines spec: FILE"),
        ("spec: a\nspec: b\n\nA goal", "2 lines"),
        ("spec: a\n\n# only this\n", "no description"),
    ],
)
def test_a_text_without_a_document_or_a_description_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        edits.parse_goal(text)


def test_the_goal_text_names_its_document_and_omits_hash_lines() -> None:
    goal = Goal(id="goal", status="IN_PROGRESS", description="Pay", spec_ref="a.md")
    text = edits.format_goal(goal)
    assert text.startswith("# ")
    assert text.splitlines()[1:] == ["spec: a.md", "", "Pay"]
    assert edits.parse_goal("#x\nspec:  b.md \n\n\n Pay\n# no\nby invoice \n") == ("Pay\nby invoice", "b.md")


@pytest.mark.parametrize(
    ("before", "after", "summary"),
    [
        (("g", "a.md"), ("h", "a.md"), "the goal is: h"),
        (("g", "a.md"), ("g", "b.md"), "the document is b.md, not a.md"),
        (("g", ""), ("h", "b.md"), "the document is b.md; the goal is: h"),
    ],
)
def test_an_edit_is_noted_behind_the_earlier_notes(
    before: tuple[str, str], after: tuple[str, str], summary: str
) -> None:
    earlier = AlignmentNote(event="planner-1.2", summary="enough")
    old = Goal(id="goal", status="IN_PROGRESS", description=before[0], spec_ref=before[1])
    new = Goal(id="goal", status="IN_PROGRESS", description=after[0], spec_ref=after[1], alignment_history=(earlier,))
    noted = edits.note_edit(old, new, "human:ann", NOW)
    assert noted.alignment_history == (earlier, AlignmentNote(timestamp=NOW, event="human:ann", summary=summary))
    assert (noted.description, noted.spec_ref) == after
    assert edits.describe_note(noted.alignment_history[1]) == f"human:ann at 2026-01-01T12:00:00Z: {summary}"
    assert edits.describe_note(AlignmentNote(summary="s")) == "unknown: s"


@pytest.mark.parametrize("text", ["", "spec: a.md\n"])
def test_a_refused_goal_edit_names_the_command_to_edit_again(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        edits.parse_goal(text)
    assert refused.value.hint == "liza edit --goal"
