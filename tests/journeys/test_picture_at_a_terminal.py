"""`liza ui` at terminals: what ends it, what it leaves behind, slow lines, terminals that can do little."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import variant
from tests.journeys.crews import BIN, Crew
from tests.terminal_stand_in import TerminalStandIn

pytest.importorskip("textual")


@contextmanager
def picture_of(crew: Crew, size: tuple[int, int] = (80, 24), **options: object) -> Iterator[TerminalStandIn]:
    """`liza ui`, from when it shows the crew."""
    with TerminalStandIn([BIN / "liza", "ui"], crew.root, size, **options) as terminal:  # type: ignore[arg-type]
        terminal.wait_for_text("t1")
        yield terminal


@pytest.mark.parametrize("number", [signal.SIGTERM, variant(signal.SIGHUP)])
def test_a_signal_ends_the_picture_and_restores_the_terminal(crew: Crew, number: signal.Signals) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.process.send_signal(number)
        assert terminal.process.wait(60) == 128 + number
        terminal.wait_for(lambda: terminal.is_restored)


def test_leaving_the_picture_restores_the_terminal(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.type("q")
        assert terminal.process.wait(60) == 0
        terminal.wait_for(lambda: terminal.is_restored)


def test_a_picture_that_was_stopped_from_outside_restores_the_terminal(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        crew.add("t2")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for_text("t2")
        terminal.type("q")
        assert terminal.process.wait(60) == 0
        terminal.wait_for(lambda: terminal.is_restored)


def test_a_cut_line_ends_the_picture(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.cut_line()
        assert terminal.process.wait(60) == 128 + signal.SIGHUP


def test_a_suspended_picture_gives_the_terminal_back_and_returns(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.wait_for(lambda: terminal.is_restored)
        crew.add("t2")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for_text("t2")
        terminal.wait_for_text("q leave")


def test_ctrl_z_suspends_the_picture_and_ctrl_c_names_q(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.type("\x03")
        terminal.wait_for_text("q leaves")
        terminal.type("\x1a")
        terminal.wait_for(lambda: terminal.is_restored)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for_text("q leave")
        terminal.wait_for_text("t1")


def test_the_shell_brings_a_suspended_picture_back_whole(crew: Crew) -> None:
    crew.add("t1")
    with TerminalStandIn(["bash", "--norc", "--noprofile", "-i"], crew.root) as terminal:
        terminal.type(f"{BIN / 'liza'} ui\n")
        terminal.wait_for_text("q leave")
        terminal.type("\x1a")
        terminal.wait_for_text("Stopped")
        terminal.type("fg\n")
        terminal.wait_for_text("q leave")
        terminal.wait_for_text("t1")
        terminal.type("q")
        terminal.wait_for(lambda: not terminal.screen.modes["1049"])


def test_the_picture_follows_changes_on_a_terminal_that_answers_nothing(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew, answers=False) as terminal:
        for task in ("t2", "t3", "t4"):
            crew.add(task)
            terminal.wait_for_text(task)


def test_the_picture_is_readable_on_a_terminal_without_utf_8(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew, env={"PYTHONIOENCODING": "latin-1"}) as terminal:
        assert "-----" in terminal.text
        terminal.type(b"\xe9")
        terminal.wait_for(lambda: terminal.type("q") or terminal.process.poll() is not None)
        assert terminal.process.returncode == 0


def test_the_picture_is_refused_where_no_cursor_moves(crew: Crew) -> None:
    assert "liza status" in crew.liza("ui", code=2)
    with TerminalStandIn([BIN / "liza", "ui"], crew.root, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for_text("liza status")
        assert terminal.process.wait(60) == 2


@pytest.mark.parametrize(
    ("key", "opened"), [("x", "esc close"), variant("?", "KEYS"), variant("/", "text of a task or agent")]
)
def test_the_picture_takes_any_size_also_in_a_dialog(crew: Crew, key: str, opened: str) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        terminal.wait_for_text("q leave")
        terminal.type(key)
        terminal.wait_for_text(opened)
        for size in ((20, 5), (300, 100), (39, 8), (80, 24)):
            before = terminal.count
            terminal.resize(*size)
            terminal.wait_for(lambda before=before: terminal.count > before)
        terminal.type("\x1b")
        terminal.wait_for_text("t1")
        # Read at once, both keys would be Alt+q.
        terminal.wait_for(lambda: "q leave" in terminal.text and opened not in terminal.text)
        terminal.type("q")
        assert terminal.process.wait(60) == 0
