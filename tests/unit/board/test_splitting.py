"""How a board is split depends on its text alone, whatever was read or changed before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.board import revision_texts, revisions
from liza.board.revisions import EntryChange, RevisionLine
from liza.board.text import changes, document
from liza.board.text.document import Document
from liza.model.errors import LizaError
from liza.model.model import Agent, State, Status, Task
from tests.unit.board.line_edits import LineEdit, edited, line_edits

INDENTED = """\
# by hand
version: 1
revision: 7
goal:
  id: g
  status: IN_PROGRESS
tasks:
  - id: t1
    status: DRAFT
    description: |
      one
  # about the second
  - id: t2
    status: DRAFT # soon

  - id: t3
    status: MERGED
    depends_on: [t1]

agents:
  coder-1:
    role: coder
    status: IDLE
  coder-2:
    role: coder
    status: IDLE
anomalies: []
human_notes:
- timestamp: 2026-01-01T12:00:00Z
  message: hi
- timestamp: 2026-01-01T12:00:00Z
  message: ho
config:
  lease_duration: 200
"""
AT_MARGIN = """\
---
version: 1
revision: 7
goal: {id: g, status: IN_PROGRESS}

# all tasks
tasks: # here
- id: t1
  status: DRAFT
- id: t2
  status: DRAFT
  history:
  - time: "2026-01-01T12:00:00Z"
    event: add
"""


def changed(state: State, number: int) -> State:
    """One change of those that verbs make."""
    tasks = list(state.tasks)
    i = number // 5 % len(tasks) if tasks else 0
    if number % 5 == 0 and tasks:
        tasks[i] = replace(tasks[i], status=Status.BLOCKED, blocked_reason="why\nnot", priority=3)
    elif number % 5 == 1 and tasks:
        del tasks[i]
    elif number % 5 == 2:
        tasks.append(Task(id=f"new{len(tasks)}", status=Status.DRAFT, description="x"))
    elif number % 5 == 3:
        return state.with_agent("coder-1", Agent(role="coder", status="WORKING", runs=number))
    elif tasks:
        tasks[i] = replace(tasks[i], status=Status.DRAFT, blocked_reason=None, depends_on=(), description="")
    return replace(state, tasks=tuple(tasks), revision=state.revision + 1)


def shape(board: Document) -> list[Any]:
    return [
        (part.kind, part.section, part.key, part.text, name)
        for part, name in zip(board.parts, board.names, strict=True)
    ]


def read(text: str, previous: Document | None = None) -> Document | str:
    try:
        return document.read_document(text, previous=previous)
    except LizaError as error:
        return error.message


def follow(text: str, steps: list[LineEdit | int]) -> None:
    """Edit and change a board step by step, and read each text with and without the document before."""
    known = document.read_document(text)
    for step in steps:
        if isinstance(step, int):
            try:
                known = changes.change_document(known, changed(known.state, step))
            except LizaError:
                continue
            read_again: Document | str = known
        else:
            text = edited(known.text, step)
            read_again = read(text, known)
        fresh = read(known.text if isinstance(step, int) else text)
        assert isinstance(read_again, str) == isinstance(fresh, str)
        if isinstance(fresh, Document) and isinstance(read_again, Document):
            assert shape(read_again) == shape(fresh)
            assert read_again.state == fresh.state
            known = read_again


def journal_line(revision: int, text: str, *entries: EntryChange) -> RevisionLine:
    sha256 = revisions.sha(text.encode())
    return RevisionLine(revision, sha256=sha256, entries=entries, text=None if entries else text)


def test_an_older_journal_with_comments_in_a_first_entry_is_rebuilt() -> None:
    commented = INDENTED.replace("  - id: t1\n", "  # about it\n  # and more\n  - id: t1\n").replace(
        "  coder-1:\n", "  # about her\n  coder-1:\n"
    )
    merged = commented.replace("    status: DRAFT\n    desc", "    status: MERGED\n    desc")
    working = merged.replace("coder\n    status: IDLE\n  coder-2", "coder\n    status: WORKING\n  coder-2")
    task = merged[merged.index("  # about it") : merged.index("  # about the second")]
    agent = working[working.index("  # about her") : working.index("  coder-2")]
    lines = [
        journal_line(7, INDENTED),
        journal_line(8, commented),
        journal_line(9, merged, EntryChange("tasks", "t1", task)),
        journal_line(10, working, EntryChange("agents", "coder-1", agent)),
    ]
    rebuilt = [text for _, text in revision_texts.rebuild_texts(lines[::-1])]
    assert rebuilt == [INDENTED, commented, merged, working]


starts = st.sampled_from([INDENTED, AT_MARGIN, INDENTED.replace("\n", "\r\n"), INDENTED.rstrip("\n")])
steps = st.lists(line_edits | st.integers(0, 99), min_size=1, max_size=4)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(starts, steps)
@example(INDENTED, [("insert", 7, 0, "  # note"), 0])
@example(INDENTED, [("replace", 6, 0, "anomalies:")])
@example(AT_MARGIN, [("double", 0, 2, "")])
def test_a_text_is_split_alike_after_any_reading(text: str, steps: list[LineEdit | int]) -> None:
    follow(text, steps)


@pytest.mark.campaign
@settings(max_examples=20_000, suppress_health_check=list(HealthCheck), deadline=None)
@given(starts, steps)
def test_any_text_is_split_alike_in_the_long_run(text: str, steps: list[LineEdit | int]) -> None:
    follow(text, steps)
