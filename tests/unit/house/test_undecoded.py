"""Bytes that are not UTF-8, as texts show them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.board.text import changes, document
from liza.printing.columns import escape_json, strip_controls
from liza.text.undecoded import MAX_NAMES, encode_json, escape_name, escape_undecoded, list_names
from tests.unit.board.test_board_document import BOARD

any_text = st.text(st.characters(codec=None, exclude_categories=()))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("é", "é"),
        ("x\udcff", r"x\xff"),
        ("\ud800", r"\ud800"),
        ("a\nb\x1b\x00", r"a\nb\x1b\x00"),
        ("a\u202eb", r"a\u202eb"),
    ],
)
def test_a_name_is_shown_on_one_line_of_utf_8(name: str, shown: str) -> None:
    assert escape_name(name) == shown


def test_a_list_of_names_ends_after_the_first_ones() -> None:
    assert list_names(["a", "b\n"]) == r"a, b\n"
    assert list_names([str(number) for number in range(MAX_NAMES + 2)]).endswith(", 19 and 2 more")


@given(any_text)
def test_any_text_can_be_printed_and_only_surrogates_change(text: str) -> None:
    escaped = escape_undecoded(text)
    assert escaped.encode().decode() == escaped
    strip_controls(text).encode()
    if all(not "\ud800" <= letter <= "\udfff" for letter in text):
        assert escaped == text


@given(any_text)
def test_any_text_is_json(text: str) -> None:
    value = {"path": Path("a"), text: [text, (text, 1), None]}
    escaped = escape_undecoded(text)
    assert json.loads(escape_json(encode_json(value).decode())) == {"path": "a", escaped: [escaped, [escaped, 1], None]}


@given(any_text)
def test_any_text_can_be_written_to_the_board(text: str) -> None:
    before = document.read_document(BOARD)
    first, *others = before.state.tasks
    task = msgspec.structs.replace(first, rejection_reason=text, attempted=(text,))
    after = msgspec.structs.replace(before.state, tasks=(task, *others))
    changed = changes.change_document(before, after)
    read = document.load_state(changed.text.encode().decode()).tasks[0]
    assert (read.rejection_reason, read.attempted) == (escape_undecoded(text), (escape_undecoded(text),))
