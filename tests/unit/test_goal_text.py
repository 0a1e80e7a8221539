"""The goal as a text for an editor."""

from __future__ import annotations

import pytest

from liza.rules.errors import UsageError
from liza.rules.model import Goal
from liza.rules.reports import goal_text


@pytest.mark.parametrize("description", ["Customers can pay", "Two lines\nof text", "a spec: of it", "ünï"])
def test_what_is_not_changed_is_read_as_it_was(description: str) -> None:
    goal = Goal(id="goal", status="IN_PROGRESS", description=description, spec_ref="docs/a b.md")
    assert goal_text.parse_goal(goal_text.format_goal(goal)) == (description, "docs/a b.md")


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
        goal_text.parse_goal(text)
