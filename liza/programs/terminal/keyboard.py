"""Typing into a program's terminal, with proof: never blind, never into a question, and not done before it was taken.

The policy is a generator: it asks for a look, a paste or an Enter, and is given the screen that came of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from liza.programs.presets.preset import Preset
from liza.programs.terminal import input_line, screens, shells
from liza.programs.terminal.idle_detection import SILENT, SURE
from liza.programs.terminal.input_line import InputLine
from liza.programs.terminal.readiness import STILL
from liza.programs.terminal.screens import Screen

LINE = 4000  # bytes that a line may have which the kernel edits: it drops what is beyond 4095, and says nothing
LIMIT = 20.0  # seconds for a program to come so far that one can type into it
APPEARS = 5.0  # seconds for a pasted text to be seen
DEAF = 10.0  # seconds after which a prompt counts for more than a kernel that shows nobody who waits for keys
PERSON = 10.0  # seconds without a key after which a person who is attached is not typing any more
ENTERS = (0.7, 1.0, 2.0, 4.0)  # seconds for each Enter to do something
FIRST_LOOK, LONGEST_LOOK = 0.05, 0.5  # seconds between two looks at a screen that does not change
REST, MORE_REST, LONGEST_REST = 0.02, 0.002, 0.1  # seconds between two looks at one that does, longer each time
UNSEEN = "it is not known whether a person has begun a line in it"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Sent:
    """The program took it, after so many Enters."""

    enters: int


@dataclass(frozen=True)
class NotSent:
    """It did not, and why, for a person. ``later``: it may go at another time, as things stand. ``tried``: it was
    typed, or there was no moment for it in all that time. ``fits``: it can be typed at all: it is not too long, and the
    line where one types can be known to be empty. ``left``: it stands in that line, unsent."""

    reason: str
    later: bool = True
    tried: bool = True
    fits: bool = True
    left: bool = False


@dataclass(frozen=True)
class LookAtScreen:
    """Look at the screen when it changes, ``after`` seconds at the latest, and not before ``rest`` seconds."""

    after: float
    rest: float = 0.0


@dataclass(frozen=True)
class LeaveHistory:
    """Leave the mode in which a terminal shows its history."""


@dataclass(frozen=True)
class Paste:
    """Put a text where one types, without sending it."""

    text: str


@dataclass(frozen=True)
class Enter:
    """Send what stands there."""


Act = LookAtScreen | LeaveHistory | Paste | Enter
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

    def changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """What waits until something else may be seen, so many seconds at the longest."""
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

    def is_alive(self) -> bool:
        """Whether its program lives, asked of the system alone: it costs nothing."""
        ...


class SteadyClock(Protocol):
    """A clock that nobody can set."""

    def monotonic(self) -> float:
        """Seconds."""
        ...


def send(
    pane: Terminal,
    text: str,
    preset: Preset,
    clock: SteadyClock,
    limit: float = LIMIT,
    *,
    patterns: Sequence[str] = (),
    wanted: Callable[[], bool] = lambda: True,
) -> Sent | NotSent:
    """Type ``text`` and send it; back when the program took it, or it is known why not. Blocks for ``limit`` seconds
    and those that typing itself may take. ``wanted`` is asked right before the first key: somebody else may have
    brought it meanwhile. Raises LizaError where the terminal is gone."""
    with _alone(pane.typing_lock, clock, limit) as mine, pane.changes() as changed:
        if not mine:
            return NotSent("somebody else is typing into it")
        policy = typed(text, preset, limit, patterns)
        act = next(policy)
        begun = False
        while True:
            if not begun and isinstance(act, Paste | Enter):
                if not wanted():
                    return NotSent("it is not for this moment any more", tried=False)
                begun = True
            if isinstance(act, Paste | Enter) and not pane.is_alive():
                # It may have died since the last look.
                return NotSent("the program is dead", later=False, tried=False)
            _do(pane, act, changed)
            try:
                act = policy.send(pane.screen(clock.monotonic()))
            except StopIteration as over:
                found: Sent | NotSent = over.value
                return found


def _do(pane: Terminal, act: Act, changed: Callable[[float], None]) -> None:
    match act:
        case LookAtScreen(after, rest):
            time.sleep(rest)  # what was drawn just now is not all of it, and no event tells when it is
            changed(max(0.0, after - rest))
        case LeaveHistory():
            pane.leave_mode()
        case Paste(text):
            pane.paste(text)
            changed(FIRST_LOOK)
        case Enter():
            pane.enter()
            changed(FIRST_LOOK)


@contextmanager
def _alone(path: Path, clock: SteadyClock, limit: float) -> Iterator[bool]:
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
                time.sleep(FIRST_LOOK)  # flock waits for ever or not at all
            else:
                yield True
                return


def typed(text: str, preset: Preset, limit: float = LIMIT, patterns: Sequence[str] = ()) -> Policy:
    """Wait until the program can be typed into, paste, see the text stand there, Enter, see it gone; Enter again.

    ``patterns`` on the last line of its screen mean that it waits, besides the row's prompt.
    """
    text = typable(text)
    if not screens.squeezed(text):
        return NotSent("there is nothing in it to type", later=False)
    screen = yield from _reach(text, preset, limit, patterns)
    if isinstance(screen, NotSent):
        return screen
    if not screens.stands(screen, preset.ready_prompt, text):
        if screen.by_line and len(text.encode()) > LINE:
            return NotSent(
                f"it has {len(text.encode())} bytes, and a line that the kernel edits {LINE} at most", fits=False
            )
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
            screen = yield LookAtScreen(pause)
        against = refusal(screen, preset, text)
        if against is not None:
            return replace(against, left=True)
        if screen.in_mode and _is_there(screen):
            return NotSent("it stands there unsent: somebody reads its history", left=True)
        if screen.in_mode:
            screen = yield LeaveHistory()
    return NotSent(f"it stands there unsent after {len(ENTERS)} Enters", left=True)


def _reach(
    text: str, preset: Preset, limit: float, patterns: Sequence[str]
) -> Generator[Act, Screen, Screen | NotSent]:
    """The screen of a program that can be typed into."""
    screen = yield LookAtScreen(0.0)
    end = screen.time + limit
    rest, hears, before = REST, None, None
    for pause in _pauses():
        against = refusal(screen, preset)
        if against is not None and (not against.later or _stands(screen)):
            return against
        wait = against.reason if against is not None else _not_now(screen, text, preset, patterns)
        if wait is None:
            hears = hears or screen.time + DEAF
            deaf = screen.deaf and screen.time < min(hears, end)
            # By the kernel alone, it has to say so twice: what was drawn right before it listened is shown later.
            if not deaf and (_shows_prompt(screen, preset) or screen.lines == before):
                return screen
            wait, pause = "it shows its prompt and does not listen" if deaf else "it only begins to listen", FIRST_LOOK
            before = screen.lines
        if screen.time >= end or (wait == UNSEEN and not input_line.is_told(preset)):
            # The row does not say how an empty line looks, or it does not look so: the brief takes the message.
            return NotSent(wait, fits=wait != UNSEEN)
        if screen.still is not None and screen.still < SILENT:
            # That it has been silent so long is a sign that nothing else tells of.
            pause = min(pause, SILENT - screen.still + REST)
        screen = (
            yield LeaveHistory() if screen.in_mode and not _is_there(screen) else LookAtScreen(max(pause, rest), rest)
        )
        rest = min(rest + MORE_REST, LONGEST_REST)
    raise AssertionError("pauses have no end")


def _stands(screen: Screen) -> bool:
    """Whether what speaks against typing stays: some questions flash by while a program comes up."""
    return screen.still is None or screen.still >= STILL


def _put(before: Screen, text: str, preset: Preset) -> Generator[Act, Screen, Screen | NotSent]:
    """Paste it once, and see it stand there: pasting again might double what is only shown late."""
    screen = yield Paste(text)
    end = screen.time + APPEARS
    for pause in _pauses():
        against = refusal(screen, preset, text)
        if against is not None:
            return replace(against, left=True)
        if screens.appeared(before, screen, preset.ready_prompt, text):
            return screen
        if screen.time >= end:
            return NotSent("the text was pasted and is not to be seen")
        screen = yield LookAtScreen(pause)
    raise AssertionError("pauses have no end")


def _pauses() -> Iterator[float]:
    pause = FIRST_LOOK
    while True:
        yield pause
        pause = min(pause * 2, LONGEST_LOOK)


def refusal(screen: Screen, preset: Preset, text: str = "") -> NotSent | None:
    """What forbids to type at all: a dead program, a shell, a question that only a person may answer; a ``text`` that
    was typed asks nothing."""
    if not screen.alive:
        return NotSent("the program is dead", later=False, tried=False)
    if shells.is_shell(screen.program) and shells.name_of(screen.program[0]) not in preset.process_names:
        return NotSent(f"a shell has the terminal: {' '.join(screen.program)[:60]}")
    asks = screens.question(screen, preset.ready_prompt, preset.dialogs, text)
    return None if asks is None else NotSent(f"the program shows {asks}")


def _is_there(screen: Screen) -> bool:
    """Whether a person who is attached is at the keys."""
    return screen.person is not None and screen.person < PERSON


def _not_now(screen: Screen, text: str, preset: Preset, patterns: Sequence[str]) -> str | None:
    """Why it is too early to type; None when it is not."""
    if screen.in_mode:
        return "somebody reads its history"
    if _is_there(screen):
        return "a person is typing into it"
    if screen.visited or screen.person is not None:
        line = input_line.stands(screen, preset, text)
        if line is not InputLine.EMPTY:
            return UNSEEN if line is InputLine.UNKNOWN else "a person has begun a line in it"
    if _shows_prompt(screen, preset):
        return None
    if screen.waiting > SURE and not screens.is_blank(screen):
        return None
    last = next((line for line in reversed(screen.text.splitlines()) if line.strip()), "")
    if any(re.search(pattern, last) for pattern in patterns):
        return None
    return f"it does not show its prompt {preset.ready_prompt!r}" if preset.ready_prompt else "it takes no input"


def _shows_prompt(screen: Screen, preset: Preset) -> bool:
    return screens.shows_prompt(screen, preset.ready_prompt) or input_line.shows(screen, preset)


def typable(text: str) -> str:
    """``text`` without what a terminal would take for keys: a message must not press Escape, or end its own paste."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")).strip()
