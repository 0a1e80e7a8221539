"""The entries of a board as rows: any change of the text is written by the rows that it touches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liza.board.postgresql import entry_rows
from liza.board.postgresql.entry_rows import EntryRow, Name
from liza.board.text.document import read_document

HEAD = "version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\n"
names = st.lists(st.sampled_from([f"t{number}" for number in range(8)]), unique=True)
texts = st.sampled_from(["one", "two"])
boards = st.tuples(names, names, texts).map(lambda drawn: _board(*drawn))


def _board(tasks: list[str], agents: list[str], text: str) -> str:
    items = [f'  - id: "{name}"\n    status: DRAFT\n    description: {text}\n' for name in tasks]
    pairs = [f"  coder-{name[1:]}1:\n    role: coder\n    status: IDLE\n" for name in agents]
    return HEAD + "tasks:\n" * bool(items) + "".join(items) + "agents:\n" * bool(pairs) + "".join(pairs)


def _apply(rows: dict[Name, EntryRow], text: str) -> dict[Name, EntryRow]:
    after = dict(rows)
    for write in entry_rows.find_writes(rows, read_document(text)):
        after.pop((write.section, write.name), None)
        if write.body is not None:
            after[write.section, write.name] = EntryRow(write.order, write.body)
    return after


def _text(rows: dict[Name, EntryRow]) -> str:
    return "".join(rows[name].body for name in entry_rows.sort_names(rows))


@given(st.lists(boards, min_size=1, max_size=8))
def test_rows_follow_every_edit_of_the_text(edits: list[str]) -> None:
    rows: dict[Name, EntryRow] = {}
    for text in edits:
        rows = _apply(rows, text)
        assert _text(rows) == text
        assert entry_rows.find_writes(rows, read_document(text)) == []


def test_an_added_entry_moves_no_other() -> None:
    rows = _apply({}, _board(["t1", "t3"], ["t1"], "one"))
    for edit in (["t1", "t3", "t4"], ["t1", "t2", "t3", "t4"], ["t0", "t1", "t2", "t3", "t4"]):
        text = _board(edit, ["t1"], "one")
        assert len(entry_rows.find_writes(rows, read_document(text))) == 1
        rows = _apply(rows, text)
    assert _text(rows) == text


def test_a_gap_that_is_used_up_is_made_again() -> None:
    order, rows = ["t1", "end"], _apply({}, _board(["t1", "end"], [], "one"))
    for number in range(100):
        order.insert(1, f"n{number}")
        rows = _apply(rows, _board(order, [], "one"))
        assert _text(rows) == _board(order, [], "one")
