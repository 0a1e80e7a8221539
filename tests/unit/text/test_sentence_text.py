"""A task of one sentence: its id, its fields, its document."""

from __future__ import annotations

import pytest

from liza.model.errors import UsageError
from liza.model.model import Status
from liza.model.paths import check_task_id
from liza.tasks.rules import backlog
from tests.unit.boards import board, task


@pytest.mark.parametrize(
    ("sentence", "task_id"),
    [
        ("Show the due date", "show-the-due-date"),
        ("Größe: 5%!", "groesse-5"),
        ("Gru\u0308ße an Zoë und François", "gruesse-an-zoe-und-francois"),
        ("Ærø, ŁÓDŹ", "aero-lodz"),
        ("日本語", "task"),
        ("-- --", "task"),
        ("x" * 100, "x" * 32),
        ("The invoice shows the due date in the letter", "the-invoice-shows-the-due-date"),
    ],
)
def test_the_id_is_made_of_the_first_words(sentence: str, task_id: str) -> None:
    assert backlog.choose_task_id(sentence, ()) == check_task_id(task_id)
    assert backlog.choose_task_id(sentence, {task_id, f"{task_id}-2"}) == f"{task_id}-3"


@pytest.mark.parametrize("text", ["", " \n ", "x" * 2001])
def test_a_sentence_is_there_and_bounded(text: str) -> None:
    with pytest.raises(UsageError, match="the sentence is"):
        backlog.check_sentence(text)
    assert backlog.check_sentence(" a \n b ") == "a b"


def test_the_task_of_a_sentence_lacks_nothing() -> None:
    fields = backlog.sentence_fields("a", "Show the due date")
    added = task("a", Status.DRAFT, **fields.given_fields())
    assert backlog.find_missing(board(), added, frozenset({".liza/specs/a.md"})) == ()
    assert "one sentence" in added.done_when
    assert "Show the due date" in backlog.compose_sentence_spec("Show the due date")


def test_only_an_open_task_of_the_same_sentence_is_continued() -> None:
    state = board(task("a", Status.MERGED, description="x"), task("b", description="x"), task("c", description="y"))
    found = backlog.find_open_task(state, "x")
    assert found is not None
    assert found.id == "b"
    assert backlog.find_open_task(state, "z") is None


def test_an_id_ends_with_a_word_before_its_limit() -> None:
    exact = "a" * 16 + " " + "b" * 15
    assert backlog.choose_task_id(exact, ()) == exact.replace(" ", "-")
    assert backlog.choose_task_id(exact + "b", ()) == "a" * 16
    assert backlog.choose_task_id(exact + "b c", ()) == "a" * 16
    assert backlog.choose_task_id("a", {"a"}) == "a-2"
    assert backlog.check_sentence("x" * 2000) == "x" * 2000


@pytest.mark.parametrize(("text", "says"), [("", "empty"), ("x" * 2001, "2001 characters")])
def test_a_refused_sentence_names_its_length(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        backlog.check_sentence(text)
    assert str(refused.value) == f"the sentence is {says}; it can have 1 to 2000"
    assert refused.value.hint == "liza task add --help"


def test_sentences_document_begins_with_it_and_closed_tasks_free_ids() -> None:
    assert backlog.compose_sentence_spec("Pay").startswith("# Pay\n\n")
    fields = backlog.sentence_fields("a", "Pay")
    assert (fields.id, fields.description, fields.spec_ref) == ("a", "Pay", ".liza/specs/a.md")
    assert "this holds: Pay\n" in (fields.done_when or "")
    assert fields.scope
    for status in (Status.MERGED, Status.ABANDONED, Status.SUPERSEDED):
        assert backlog.find_open_task(board(task("a", status, description="x")), "x") is None
