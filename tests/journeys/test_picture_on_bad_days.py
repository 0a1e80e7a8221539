"""`liza ui` while something is wrong with the crew: it says what is not known, and goes on when it is mended."""

from __future__ import annotations

import os
import signal

import pytest

from liza.system import locks
from tests.conftest import variant
from tests.journeys.crews import Crew
from tests.journeys.test_picture_at_a_terminal import picture_of

NOT_READABLE = "not readable"


def test_the_picture_names_a_stopped_supervisor_and_its_return(crew: Crew) -> None:
    crew.prepare("task", "add", "--id", "t1", "--draft", "--desc", "Write t1")
    crew.agent("coder-1", crew.script("coder", "true\n"))
    crew.wait_supervised("coder-1")
    with picture_of(crew) as terminal:
        terminal.wait_for_text(".coder-1")
        pid = locks.find_holder(crew.paths.supervisor_lock("coder-1"))
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        terminal.wait_for_text("the supervisor of coder-1")
        os.kill(pid, signal.SIGCONT)
        terminal.wait_for(lambda: "the supervisor of coder-1" not in terminal.text)


@pytest.mark.parametrize("damage", ["half written", variant("removed")])
def test_the_last_good_picture_stays_while_the_board_is_unreadable(crew: Crew, damage: str) -> None:
    crew.add("t1")
    text = crew.paths.state.read_bytes()
    with picture_of(crew) as terminal:
        if damage == "removed":
            crew.paths.liza.rename(crew.root / "elsewhere")
        else:
            replace_board(crew, text[: len(text) // 2] + b"\n - [")
        terminal.wait_for_text(NOT_READABLE)
        assert "t1" in terminal.text
        assert "liza restore --last-good" in terminal.text
        if damage == "removed":
            assert not crew.paths.liza.exists()
            (crew.root / "elsewhere").rename(crew.paths.liza)
        else:
            replace_board(crew, text)
        terminal.wait_for(lambda: NOT_READABLE not in terminal.text)
        crew.add("t2")
        terminal.wait_for_text("t2")


def replace_board(crew: Crew, text: bytes) -> None:
    """Replace the board as an editor does, without Liza."""
    written = crew.paths.liza / "written"
    written.write_bytes(text)
    written.replace(crew.paths.state)


def test_a_broken_ledger_hides_only_the_costs(crew: Crew) -> None:
    crew.add("t1")
    with picture_of(crew) as terminal:
        crew.paths.usage.write_text('{"nonsense\n')
        crew.add("t2")
        terminal.wait_for_text("t2")
        assert "nothing spent" not in terminal.text
        assert NOT_READABLE not in terminal.text
