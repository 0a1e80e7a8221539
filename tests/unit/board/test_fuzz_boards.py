"""Any text and any change: the splice means what the whole-file round trip means, or nothing is written at all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from liza.board.text import changes, document
from liza.board.text.document import Document
from liza.board.text.values import from_plain, to_plain
from liza.model.errors import BoardUnreadable, LizaError
from liza.model.model import Agent, HumanNote, State, Status, Task
from tests.unit.board.test_board_document import NOW

replace = msgspec.structs.replace
ROOT = Path(__file__).parents[3]
CORPUS = sorted((ROOT / "tests/data/fuzz").glob("board-*"))
BOARD = """\
# Head
version: 1
revision: 7
goal: {id: g, status: IN_PROGRESS}  # the goal
tasks:
  # before the first
  - id: "t1"
    status: UNCLAIMED # a comment
    description: |
      Lines that look like entries:
        - id: "t9"
      tasks:
    scope: 'it''s'
    depends_on: [t2]
    x-own: &a {k: [1, 2]}
  - id: t2
    status: MERGED
    description: "two\\nlines"
    done_when: >-
      folded
      text
agents:
  coder-1:
    role: coder
    status: IDLE
  "code-reviewer-1":
    role: code_reviewer
    status: IDLE
human_notes:
- timestamp: 2026-01-01T12:00:00Z
  message: hi # x
"""
EXAMPLE = (ROOT / ".liza.example/state.yaml").read_text()
PIECES = [
    "\u2028",
    "\u2029",
    "\x85",
    "\r",
    "\r\n",
    "\t",
    "\x00",
    "\ufeff",
    "\U0001f600",
    "  ",
    "#",
    " # a\n",
    "---\n",
    "...\n",
    "%YAML 1.2\n---\n",
    "%YAML 1.1\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "!!str ",
    "!x ",
    "? ",
    ": ",
    "- ",
    "  - id: t9\n",
    "{",
    "}",
    "[",
    "]",
    ",",
    '"',
    "'",
    "|\n",
    ">\n",
    "|2-\n",
    "~",
    "null",
    "tasks:\n",
    "x" * 1500 + ": 1\n",
    "12e4567",
    "9" * 5000,
    "\ud800",
    "[" * 200,
    "# \u2028- id: t7\n",
]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A board with lines deleted, doubled, swapped and indented, and odd pieces put in."""
    text = draw(st.sampled_from([BOARD, BOARD, BOARD.replace("\n", "\r\n"), EXAMPLE, *map(_read, CORPUS)]))
    for _ in range(draw(st.integers(0, 4))):
        lines = text.splitlines(keepends=True) or [""]
        i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        act = draw(st.sampled_from(["delete", "double", "swap", "shift", "piece", "piece", "end"]))
        if act == "delete":
            lines[i] = ""
        elif act == "double":
            lines.insert(j, lines[i])
        elif act == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        elif act == "shift":
            lines[i] = " " + lines[i]
        elif act == "end":
            lines[i] = lines[i].rstrip("\r\n") + draw(st.sampled_from(["", "  \n", " # c\n", "\t\n", "\x85", "\r"]))
        else:
            place = draw(st.integers(0, len(lines[i])))
            lines[i] = lines[i][:place] + draw(st.sampled_from(PIECES)) + lines[i][place:]
        text = "".join(lines)
    return text


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="surrogatepass")


def changed(state: State, number: int) -> State:
    """One change of many kinds, chosen by ``number``."""
    dice = random.Random(number)
    tasks = list(state.tasks)
    kind = number % 9 if tasks else 6 + number % 3
    i = dice.randrange(len(tasks)) if tasks else 0
    word = dice.choice(["a word", "two\nlines", "# no comment", "- id: t1", "x: y", "\u2028", "ü \t", "", "12e4567"])
    if kind == 0:
        tasks[i] = replace(tasks[i], status=Status.BLOCKED, blocked_reason=word, blocked_questions=(word,))
    elif kind == 1:
        tasks[i] = replace(tasks[i], description=word, priority=dice.randrange(1, 9))
    elif kind == 2:
        tasks[i] = replace(tasks[i], lease_expires=NOW, depends_on=(), run="coder-1.1")
    elif kind == 3:
        del tasks[i]
    elif kind == 4:
        tasks.insert(i, Task(id="fresh", status=Status.DRAFT, description=word))
    elif kind == 5:
        tasks.reverse()
    elif kind == 6:
        return state.with_agent("coder-1", Agent(role="coder", status="WORKING", runs=dice.randrange(9), heartbeat=NOW))
    elif kind == 7:
        return replace(state, human_notes=(*state.human_notes, HumanNote(timestamp=NOW, message=word)))
    else:
        return replace(state, revision=state.revision + 1, goal=replace(state.goal, description=word))
    return replace(state, tasks=tuple(tasks))


def prove(text: str, number: int) -> None:
    """Reads, changes and splices; any exception but one of Liza's own is a defect."""
    try:
        known = document.read_document(text)
    except LizaError:
        return
    assert "".join(part.text for part in known.parts) == text
    try:
        whole = document.read_whole(text)
    except BoardUnreadable as error:
        raise AssertionError("taken apart it can be read, and as a whole it cannot") from error
    assert known.state == whole.state
    after = changed(known.state, number)
    rounds: list[int] = []
    real = changes.round_trip

    def counted(*words: Any) -> str:
        rounds.append(1)
        return real(*words)

    changes.round_trip = counted
    try:
        made = changes.change_document(known, after)
    except LizaError:
        return
    finally:
        changes.round_trip = real
    wanted = from_plain(to_plain(after), State)
    assert document.read_whole(made.text).state == wanted
    assert document.read_document(made.text).state == wanted
    if not rounds and not known.is_whole:
        _others_stand(known, made)
    back = changes.change_document(made, made.state)
    assert back.text == made.text


def _others_stand(known: Document, made: Document) -> None:
    """Entries that mean the same before and after stand as they were typed."""
    now = {(part.section, part.key): part.value for part in made.parts if part.kind in ("item", "pair")}
    for part in known.parts:
        if part.kind in ("item", "pair") and part.key and now.get((part.section, part.key)) == part.value:
            assert part.text.rstrip("\r\n ") in made.text


PLAIN = settings(max_examples=25, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1500, suppress_health_check=list(HealthCheck))


@PLAIN
@given(texts(), st.integers(0, 10_000))
def test_any_text_and_change_is_spliced_correctly_or_refused(text: str, number: int) -> None:
    prove(text, number)


@pytest.mark.campaign
@LONG
@given(texts(), st.integers(0, 10_000))
def test_any_text_and_any_change_in_the_long_run(text: str, number: int) -> None:
    prove(text, number)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_boards_that_were_found_odd_once_are_spliced_for_ever(path: Path) -> None:
    for number in range(9):
        prove(_read(path), number)


@PLAIN
@given(st.text(max_size=80), st.integers(0, 8))
@example("version: 1\nrevision: 1\ngoal: {id: g}\n", 8)
def test_a_text_that_is_no_board_raises_a_liza_error(text: str, number: int) -> None:
    assume("goal" not in text or len(text) < 60)
    prove(text, number)
