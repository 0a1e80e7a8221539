"""Typing into real terminals where it must not be done: shells, questions, passwords, a person's half line."""

from __future__ import annotations

import shutil

import pytest

from liza.programs import keyboard
from liza.programs.keyboard import NotSent, Sent
from tests.conftest import until
from tests.edges.test_tmux import LINES, Clock, Crew, crew

__all__ = ["crew"]
pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")
SOON = 4.0  # seconds within which a program that may be typed into is


def script(crew: Crew, text: str) -> str:
    """A file with this text."""
    path = crew.root / "agent.sh"
    path.write_text(text)
    return str(path)


INTO_SHELLS = [
    "exec bash --rcfile /dev/null -i",
    "exec bash --norc -o vi",
    "exec sh -s x",
    "exec env -i bash --norc --noprofile",
    "exec -a python3 bash --norc -i",
    "bash --norc -i",
    "sh 2>/dev/null",
    "exec bash /dev/stdin",
]


@pytest.mark.parametrize("line", INTO_SHELLS)
def test_an_agent_that_became_a_shell_carries_out_no_message(crew: Crew, line: str) -> None:
    _, pane = crew.start(["bash", script(crew, f"echo here\n{line}\n")])
    until(lambda: "here" in pane.capture(), "it came up")
    found = keyboard.send(pane, f"the fonts are here\ntouch {crew.told.name}", LINES, Clock, limit=SOON)
    assert isinstance(found, NotSent), found
    assert "shell" in found.reason
    assert not crew.told.exists()


def test_a_script_that_asks_for_a_line_is_told_although_a_shell_runs_it(crew: Crew) -> None:
    path = script(crew, f'read -r line; echo "$line" > {crew.told.name}; read -r line\n')
    _, pane = crew.start(["sh", "-eu", path])
    assert keyboard.send(pane, "hello", LINES, Clock) == Sent(1)
    until(crew.heard, "it was read")
    assert crew.heard() == ["hello"]
