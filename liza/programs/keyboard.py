"""Typing into a program's terminal, with proof: never blind, never into a question, and not done before it was taken.

The policy is a generator: it asks for a look, a paste or an Enter, and is given the screen that came of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from liza.programs import screens
from liza.programs.preset import Preset
from liza.programs.screens import Screen

LIMIT = 20.0  # seconds for a program to come so far that one can type into it
APPEARS = 5.0  # seconds for a pasted text to be seen
PERSON = 10.0  # seconds without a key after which a person who is attached is not typing any more
ENTERS = (0.7, 1.0, 2.0, 4.0)  # seconds for each Enter to do something
SURE = 0.7
FIRST_LOOK, LONGEST_LOOK = 0.05, 0.5  # seconds between two looks: a screen tells nobody that it changed
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "ash", "csh", "tcsh", "nu", "pwsh", "busybox"})
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Sent:
    """The program took it, after so many Enters."""

    enters: int


@dataclass(frozen=True)
class NotSent:
    """It did not, and why, for a person. ``later``: it may go at another time, as things stand."""

    reason: str
    later: bool = True


@dataclass(frozen=True)
class Look:
    """Look at the screen, ``after`` seconds."""

    after: float


@dataclass(frozen=True)
class Leave:
    """Leave the mode in which a terminal shows its history."""


@dataclass(frozen=True)
class Paste:
    """Put a text where one types, without sending it."""

    text: str


@dataclass(frozen=True)
class Enter:
    """Send what stands there."""


Act = Look | Leave | Paste | Enter
Policy = Generator[Act, Screen, Sent | NotSent]


class Terminal(Protocol):
    """What can be typed into."""

    @property
    def typing_lock(self) -> Path:
        """The file whose lock the one has who types."""
        ...

    def screen(self, now: float) -> Screen:
        """What is to be seen at ``now``."""
        ...

    def leave_mode(self) -> None:
        """Back from the history to what the program shows."""
        ...

    def paste(self, text: str) -> None:
        """Put a text where one types."""
        ...

    def enter(self) -> None:
        """Press Enter."""
        ...


class Clock(Protocol):
    """A clock that nobody can set."""

    def monotonic(self) -> float:
        """Seconds."""
        ...


def send(pane: Terminal, text: str, preset: Preset, clock: Clock, limit: float = LIMIT) -> Sent | NotSent:
    """Type ``text`` and send it; back when the program took it, or it is known why not. Blocks for ``limit`` seconds
    and those that typing itself may take. Raises LizaError where the terminal is gone."""
    with _alone(pane.typing_lock, clock, limit) as mine:
        if not mine:
            return NotSent("somebody else is typing into it")
        policy = typed(text, preset, limit)
        act = next(policy)
        while True:
            _do(pane, act)
            try:
                act = policy.send(pane.screen(clock.monotonic()))
            except StopIteration as over:
                found: Sent | NotSent = over.value
                return found


def _do(pane: Terminal, act: Act) -> None:
    match act:
        case Look(after):
            time.sleep(after)
        case Leave():
            pane.leave_mode()
        case Paste(text):
            pane.paste(text)
        case Enter():
            pane.enter()


@contextmanager
def _alone(path: Path, clock: Clock, limit: float) -> Iterator[bool]:
    """Whether nobody else types meanwhile; waits ``limit`` seconds for that."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as lock:
        end = clock.monotonic() + limit
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.monotonic() >= end:
                    yield False
                    return
                time.sleep(FIRST_LOOK)
            else:
                yield True
                return


def typed(text: str, preset: Preset, limit: float = LIMIT) -> Policy:
    """Wait until the program can be typed into, paste, see the text stand there, Enter, see it gone; Enter again."""
    text = typable(text)
    if not screens.squeezed(text):
        return NotSent("there is nothing in it to type", later=False)
    screen = yield from _reach(preset, limit)
    if isinstance(screen, NotSent):
        return screen
    if not screens.stands(screen, preset.ready_prompt, text):
        screen = yield from _put(screen, text, preset)
        if isinstance(screen, NotSent):
            return screen
    for number, patience in enumerate(ENTERS, 1):
        before = screen
        screen = yield Enter()
        end = screen.time + patience
        for pause in _pauses():
            if screen.alive and screens.taken(before, screen, preset.ready_prompt, text):
                return Sent(number)
            if screen.time >= end:
                break
            screen = yield Look(pause)
        against = refusal(screen, preset)
        if against is not None:
            return against
        if screen.in_mode:
            screen = yield Leave()
    return NotSent(f"it stands there unsent after {len(ENTERS)} Enters")


def _reach(preset: Preset, limit: float) -> Generator[Act, Screen, Screen | NotSent]:
    """The screen of a program that can be typed into."""
    screen = yield Look(0.0)
    end = screen.time + limit
    for pause in _pauses():
        against = refusal(screen, preset)
        if against is not None:
            return against
        wait = _not_now(screen, preset)
        if wait is None:
            return screen
        if screen.time >= end:
            return NotSent(wait)
        screen = yield Leave() if screen.in_mode else Look(pause)
    raise AssertionError("pauses have no end")


def _put(before: Screen, text: str, preset: Preset) -> Generator[Act, Screen, Screen | NotSent]:
    """Paste it once, and see it stand there: pasting again might double what is only shown late."""
    screen = yield Paste(text)
    end = screen.time + APPEARS
    for pause in _pauses():
        against = refusal(screen, preset)
        if against is not None:
            return against
        if screens.appeared(before, screen, preset.ready_prompt, text):
            return screen
        if screen.time >= end:
            return NotSent("the text was pasted and is not to be seen")
        screen = yield Look(pause)
    raise AssertionError("pauses have no end")


def _pauses() -> Iterator[float]:
    pause = FIRST_LOOK
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_LOOK)


def refusal(screen: Screen, preset: Preset) -> NotSent | None:
    """What forbids to type at all: a dead program, a shell, a question that only a person may answer."""
    if not screen.alive:
        return NotSent("the program is dead", later=False)
    if is_shell(screen.program) and _name(screen.program[0]) not in preset.process_names:
        return NotSent(f"a shell has the terminal: {' '.join(screen.program)[:60]}")
    asks = screens.question(screen, preset.ready_prompt, preset.dialogs)
    return None if asks is None else NotSent(f"the program shows {asks}")


def _not_now(screen: Screen, preset: Preset) -> str | None:
    """Why it is too early to type; None when it is not."""
    if screen.in_mode:
        return "somebody reads its history"
    if screen.person is not None and screen.person < PERSON:
        return "a person is typing into it"
    if screens.shows_prompt(screen, preset.ready_prompt):
        return None
    if screen.waiting > SURE and not screens.is_blank(screen):
        return None
    return f"it does not show its prompt {preset.ready_prompt!r}" if preset.ready_prompt else "it takes no input"


def is_shell(words: tuple[str, ...]) -> bool:
    """Whether this is a shell that carries out what is typed; one that runs a script or a command is none."""
    if not words or _name(words[0]) not in SHELLS:
        return False
    more = words[2:] if _name(words[0]) == "busybox" else words[1:]
    options = [word for word in more if word.startswith(("-", "+"))]
    return len(options) == len(more) and not any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) for word in options)


def _name(word: str) -> str:
    # A login shell has a dash before its name.
    return word.rpartition("/")[2].removeprefix("-")


def typable(text: str) -> str:
    """``text`` without what a terminal would take for keys: a message must not press Escape, or end its own paste."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")).strip()
