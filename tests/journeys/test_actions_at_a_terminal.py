"""What a person does in `liza ui` at a terminal: a question is answered, a command and the editor take the terminal."""

from __future__ import annotations

import fcntl
import time

import pytest

from tests.conftest import worktree_of
from tests.journeys.crews import BIN, Crew
from tests.terminal_stand_in import TerminalStandIn

pytest.importorskip("textual")


def type_slowly(terminal: TerminalStandIn, text: str) -> None:
    """Type as a person does: keys that come all at once count as pasted text."""
    for letter in text:
        terminal.type(letter)
        time.sleep(0.07)


def send(terminal: TerminalStandIn, text: str) -> None:
    """Type a text, and press Enter when it is shown: a picture that stood still would take both as pasted."""
    type_slowly(terminal, text)
    terminal.wait_for_text(text)
    type_slowly(terminal, "\r")


def asks(crew: Crew) -> None:
    crew.add("mail")
    crew.liza("claim", "mail", "--agent", "coder-1")
    crew.liza("block", "no document says it", "--ask", "Which address?", cwd=worktree_of(crew.root, "mail"))


def test_a_person_answers_a_question_in_the_picture(crew: Crew) -> None:
    asks(crew)
    with TerminalStandIn([BIN / "liza", "ui"], crew.root) as terminal:
        terminal.wait_for_text("1 waits for you")
        type_slowly(terminal, "a")
        terminal.wait_for_text("Which address?")
        terminal.wait_for_text("enter sends")
        type_slowly(terminal, "billing@shop")
        # As a terminal sends pasted text: line breaks and all.
        terminal.type("\x1b[200~.example\rand nobody else\x1b[201~")
        terminal.wait_for_text("and nobody else")
        terminal.type("\r")
        terminal.wait_for_text("0 wait for you")
        terminal.wait_for_text("answered")
        terminal.type("q")
        assert terminal.process.wait(20) == 0
    (answer,) = crew.task("mail").answers
    assert answer.answer.split() == ["billing@shop.example", "and", "nobody", "else"]
    assert crew.status("mail") == "UNCLAIMED"


def test_commands_and_the_editor_take_the_terminal_and_give_it_back(crew: Crew) -> None:
    asks(crew)
    editor = crew.notes / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/priority: 3/priority: 1/" "$1"\necho edited\n')
    editor.chmod(0o700)
    with TerminalStandIn([BIN / "liza", "ui"], crew.root, env={"EDITOR": str(editor), "VISUAL": ""}) as terminal:
        terminal.wait_for_text("1 waits for you")
        type_slowly(terminal, ":")
        terminal.wait_for_text("command of liza")
        send(terminal, "liza note 'from the picture'")
        terminal.wait_for_text("a key comes back")
        terminal.type(" ")
        terminal.wait_for_text("back from liza note")
        type_slowly(terminal, "e")
        terminal.wait_for_text("edited")
        terminal.wait_for(lambda: terminal.text.count("a key comes back") == 2)
        terminal.type(" ")
        terminal.wait_for_text("back from liza edit")
        terminal.type("q")
        assert terminal.process.wait(20) == 0
    assert "from the picture" in crew.liza("edit", "--print")


def test_text_pasted_into_the_list_does_nothing(crew: Crew) -> None:
    asks(crew)
    with TerminalStandIn([BIN / "liza", "ui"], crew.root) as terminal:
        terminal.wait_for_text("1 waits for you")
        terminal.type("\x1b[200~" + "axp:q\r" * 800 + "\x1b[201~")
        terminal.type("axp:axp:axp:")
        terminal.wait_for_text("looked like pasted text")
        time.sleep(0.1)
        terminal.type("q")
        assert terminal.process.wait(20) == 0
    assert crew.status("mail") == "BLOCKED"


def test_the_outcome_of_a_note_is_printed_after_leaving(crew: Crew) -> None:
    asks(crew)
    with TerminalStandIn([BIN / "liza", "ui"], crew.root) as terminal:
        terminal.wait_for_text("1 waits for you")
        type_slowly(terminal, "w")
        terminal.wait_for_text("enter sends")
        with (crew.root / ".liza" / "state.yaml.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            send(terminal, "hello")
            terminal.wait_for(lambda: "enter sends" not in terminal.text)
            type_slowly(terminal, "q")
            terminal.wait_for_text("q again leaves")
            type_slowly(terminal, "q")
        assert terminal.process.wait(20) == 0
        terminal.wait_for(lambda: "note" in terminal.text.rpartition("q again leaves")[2])
    assert "hello" in crew.liza("edit", "--print")
