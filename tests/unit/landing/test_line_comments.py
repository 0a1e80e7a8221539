"""Comments on lines of a rejected commit: which lines there are, and what a coder reads of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.commands.verdict import split_pairs
from liza.model.errors import UsageError
from liza.model.model import LineComment
from liza.tasks.rules import reviews
from tests.unit.boards import HEAD, NOW, board, submitted, task

FILE = b"def tax():\n    return 5\n"


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("a.py:1", ("a.py", 1)),
        ("./src/a b.py:12", ("src/a b.py", 12)),
        ("a:b:3", ("a:b", 3)),
        (" a.py:7 ", ("a.py", 7)),
    ],
)
def test_a_location_is_a_file_and_a_line(text: str, location: tuple[str, int]) -> None:
    assert reviews.parse_location(text) == location


@pytest.mark.parametrize(
    "text", ["a.py", "a.py:", ":3", "a.py:0", "a.py:-1", "a.py:x", "a.py:١", "a.py:" + "9" * 10, ""]
)
def test_any_other_location_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected FILE:LINE"):
        reviews.parse_location(text)


def test_a_comment_quotes_its_line() -> None:
    comment = reviews.quote_comment("a.py:2", " must be 6 ", HEAD, FILE)
    assert comment == LineComment(path="a.py", line=2, text="must be 6", quote="    return 5", commit=HEAD)
    assert reviews.format_comment(comment) == "a.py:2: must be 6\n> return 5"
    long = reviews.quote_comment("a.py:1", "x", HEAD, b"y" * 5000)
    assert len(long.quote) == reviews.MAX_QUOTED_LINE + 1


@pytest.mark.parametrize(
    ("location", "data", "message"),
    [
        ("a.py:3", FILE, "a.py has 2 lines at the reviewed commit cccccccccccc, and no line 3"),
        ("a.py:1", b"", "a.py has 0 lines"),
        ("b.py:1", None, "b.py is not a file of the reviewed commit cccccccccccc"),
        ("a.png:1", b"\x89PNG\0", "a.png is not a text"),
    ],
)
def test_a_line_that_the_commit_does_not_have_is_refused(location: str, data: bytes | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reviews.quote_comment(location, "x", HEAD, data)


@pytest.mark.parametrize(
    ("comments", "message"),
    [
        ([("a:1", "x")] * 51, "51 comments; a rejection has at most 50"),
        ([("a:1", " ")], "has no text"),
        ([("a:1", "x" * 1001)], "1001 characters"),
    ],
)
def test_comments_are_bounded(comments: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reviews.check_comments(comments)


def test_a_comment_without_its_text_is_a_usage_error() -> None:
    assert split_pairs(["a:1\nfirst\nsecond"]) == [("a:1", "first\nsecond")]
    with pytest.raises(UsageError, match="FILE:LINE and a text"):
        split_pairs(["a:1"])


def test_a_rejection_keeps_its_comments_until_the_next_verdict() -> None:
    state, _ = submitted(board(task()))
    comment = LineComment(path="a.py", line=1, text="x", quote="y", commit=HEAD)
    rejected = reviews.reject(state, "task-1", "human:ana", HEAD, NOW, "no", comments=(comment,))
    assert rejected.tasks[0].review_comments == (comment,)
    waiting = state.with_task(replace(state.tasks[0], review_comments=(comment,)))
    assert reviews.approve(waiting, "task-1", "human:ana", HEAD, NOW, "good").tasks[0].review_comments == ()
