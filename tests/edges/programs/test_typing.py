"""Typing into real terminals where it must not be done: shells, questions, passwords, a person's half line."""

from __future__ import annotations

import sys

import pytest

from liza.programs.terminal import keyboard
from liza.programs.terminal.keyboard import NotSent, Sent
from liza.system.locks import lock_path
from tests.conftest import until, variant
from tests.edges.programs.test_tmux import LINES, PROGRAM, TUI, Clock, Crew, crew, seated

__all__ = ["crew"]
pytestmark = pytest.mark.needs("tmux")
SOON = 4.0  # seconds within which a program that may be typed into is


def script(crew: Crew, text: str) -> str:
    """A file with this text, by its name in the directory of the session: a path in /dev may be the terminal itself."""
    path = crew.root / "agent.sh"
    path.write_text(text)
    return path.name


def test_only_one_process_types_into_a_terminal_at_once(
    crew: Crew,
) -> None:
    _, pane = crew.python("while True: print('got', input('> '), flush=True)")
    with lock_path(pane.typing_lock):
        found = keyboard.send(pane, "hello", LINES, Clock, limit=0.1)
    assert found == NotSent("another process is typing into it")
    assert keyboard.send(pane, "hello", LINES, Clock) == Sent(1)
    pane.path = crew.root / "moved" / pane.run
    with pytest.raises(FileNotFoundError):
        keyboard.send(pane, "hello", LINES, Clock)
    assert not pane.path.parent.exists()


INTO_SHELLS = [
    "exec bash --rcfile /dev/null -i",
    "exec bash --norc -o vi",
    "exec sh -s x",
    "exec env -i bash --norc --noprofile",
    *map(variant, ["exec -a python3 bash --norc -i", "bash --norc -i", "sh 2>/dev/null", "exec bash /dev/stdin"]),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("line", INTO_SHELLS)
def test_an_agent_that_became_a_shell_carries_out_no_message(crew: Crew, line: str) -> None:
    _, pane = crew.start(["bash", script(crew, f"echo here\n{line}\n")])
    until(lambda: "here" in pane.capture(), "it came up")
    found = keyboard.send(pane, f"the fonts are here\ntouch {crew.told.name}", LINES, Clock, limit=SOON)
    assert isinstance(found, NotSent), found
    assert "shell" in found.reason
    assert not crew.told.exists()


ASKS = [
    'read -r -p "Are you sure you want to continue connecting (yes/no/[fingerprint])? " a',
    'read -r -p "Stage this hunk [y,n,q,a,d,e,?]? " a',
    variant('read -r -p "Ok to proceed? (y) " a'),
    'read -e -r -p "Do you want to continue? " a',
    variant('read -r -n 1 -p "Press Enter to continue" a'),
    variant('echo "Overwrite? [y/N]"; read -r a'),
    'read -r -s -p "> " a',
    "stty -echo; read -r a",
    'read -r -p "$(printf %0195d 0) Overwrite (yes/no)? " a',
    pytest.param("seq 200 > many; LESS= less many", marks=pytest.mark.needs("less")),
    pytest.param("seq 200 > many; more many", marks=pytest.mark.needs("more")),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("line", ASKS)
def test_an_agent_asking_a_person_gets_no_message_as_answer(crew: Crew, line: str) -> None:
    told = f'trap "echo ended >> {crew.told.name}" EXIT\n{line}\necho "got $a" >> {crew.told.name}\n'
    _, pane = crew.start(["bash", script(crew, told)], TERM="screen")
    until(lambda: pane.screen(0.0).idle_confidence > 0.5, "it waits")
    found = keyboard.send(pane, "yes\nplease", LINES, Clock, limit=SOON)
    assert isinstance(found, NotSent), found
    assert "the program shows" in found.reason
    assert crew.heard() == []


def test_script_run_by_a_shell_may_ask_for_a_line(crew: Crew) -> None:
    path = script(crew, f'read -r line; echo "$line" > {crew.told.name}; read -r line\n')
    _, pane = crew.start(["sh", "-eu", path])
    assert keyboard.send(pane, "hello", LINES, Clock) == Sent(1)
    until(crew.heard, "it was read")
    assert crew.heard() == ["hello"]


def test_a_line_longer_than_the_kernel_holds_is_not_sent(crew: Crew) -> None:
    _, pane = crew.python(f"open({str(crew.told)!r}, 'w').write(input('> ') + '\\n'); input()")
    found = keyboard.send(pane, "a word of many " * 300, LINES, Clock)
    assert isinstance(found, NotSent), found
    assert not found.can_be_typed
    most = "a word or so " * 300
    assert keyboard.send(pane, most, LINES, Clock) == Sent(1)
    until(crew.heard, "it was read")
    assert crew.heard() == [most.strip()]


@pytest.mark.campaign
def test_a_persons_half_line_is_not_sent_with_a_message(crew: Crew) -> None:
    # With its cursor where one types.
    program = PROGRAM.replace('draft[-400:] + "\\r\\n? for shortcuts"', "draft[-400:]")
    assert program != PROGRAM
    _, pane = crew.start([sys.executable, "-c", program, str(crew.told), "0", "1", "none"])
    until(lambda: "❯" in pane.capture(), "it came up")
    seat = seated(pane)
    seat.type("rm -rf all? NO, WAIT - ")
    until(lambda: "WAIT" in pane.capture(), "it was typed")
    until(lambda: (pane.screen(0.0).seconds_since_key or 0.0) > keyboard.PERSON_IDLE_AFTER, "the keys have rested")
    assert keyboard.send(pane, "hello", TUI, Clock, limit=1.0) == NotSent("a person has begun a line in it")
    assert crew.heard() == []
    seat.leave()
    until(lambda: pane.screen(0.0).seconds_since_key is None, "the person has left")
    assert keyboard.send(pane, "hello", TUI, Clock, limit=1.0) == NotSent("a person has begun a line in it")
    assert crew.heard() == []
    seat = seated(pane)
    seat.type("\r")
    until(crew.heard, "it was sent")
    assert keyboard.send(pane, "hello", TUI, Clock, limit=3 * keyboard.PERSON_IDLE_AFTER) == Sent(1)
    assert crew.heard() == ["rm -rf all? NO, WAIT - ", "hello"]
    seat.leave()


def test_after_a_person_unknown_empty_lines_are_not_typed_into(crew: Crew) -> None:
    _, pane = crew.python("while True: print('got', input('> '), flush=True)")
    assert keyboard.send(pane, "hello", LINES, Clock) == Sent(1)
    seat = seated(pane)
    seat.type("half of")
    until(lambda: "half of" in pane.capture(), "it was typed")
    seat.leave()
    until(lambda: pane.screen(0.0).seconds_since_key is None, "the person has left")
    assert keyboard.send(pane, "hello", LINES, Clock) == keyboard.LINE_UNKNOWN
    assert "half ofhello" not in pane.capture()
