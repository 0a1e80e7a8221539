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
from liza.programs.terminal.idle_detection import IDLE_THRESHOLD, SILENT_SECONDS
from liza.programs.terminal.input_line import InputLine
from liza.programs.terminal.readiness import STEADY_SECONDS
from liza.programs.terminal.screens import Screen

MAX_LINE_BYTES = (
    4000  # bytes that a line may have which the kernel edits: it drops what is beyond 4095, and says nothing
)
TYPABLE_LIMIT = 20.0  # seconds for a program to come so far that one can type into it
PASTE_LIMIT = 5.0  # seconds for a pasted text to be seen
PROMPT_OVERRIDE = (
    10.0  # seconds after which a prompt counts for more than a kernel that shows nobody who waits for keys
)
PERSON_IDLE_AFTER = 10.0  # seconds without a key after which a person who is attached is not typing any more
ENTER_WAITS = (0.7, 1.0, 2.0, 4.0)  # seconds for each Enter to do something
FIRST_INTERVAL, MAX_INTERVAL = 0.05, 0.5  # seconds between two looks at a screen that does not change
MIN_REST, REST_STEP, MAX_REST = 0.02, 0.002, 0.1  # seconds between two looks at one that does, longer each time
LINE_UNKNOWN = "it is not known whether a person has begun a line in it"
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
    is_retryable: bool = True
    counts_as_try: bool = True
    can_be_typed: bool = True
    is_left_unsent: bool = False


@dataclass(frozen=True)
class LookAtScreen:
    """Look at the screen when it changes, ``after`` seconds at the latest, and not before ``rest`` seconds."""

    timeout: float
    min_wait: float = 0.0


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


KeyboardAction = LookAtScreen | LeaveHistory | Paste | Enter
TypingPolicy = Generator[KeyboardAction, Screen, Sent | NotSent]


class Terminal(Protocol):
    """What can be typed into."""

    @property
    def typing_lock(self) -> Path:
        """The file whose lock the one has who types."""
        ...

    def screen(self, now: float) -> Screen:
        """What is to be seen at ``now``."""
        ...

    def watch_changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """What waits until something else may be seen, so many seconds at the longest."""
        ...

    def leave_copy_mode(self) -> None:
        """Back from the history to what the program shows."""
        ...

    def paste(self, text: str) -> None:
        """Put a text where one types."""
        ...

    def press_enter(self) -> None:
        """Press Enter."""
        ...

    def is_program_alive(self) -> bool:
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
    limit: float = TYPABLE_LIMIT,
    *,
    patterns: Sequence[str] = (),
    wanted: Callable[[], bool] = lambda: True,
) -> Sent | NotSent:
    """Type ``text`` and send it; back when the program took it, or it is known why not. Blocks for ``limit`` seconds
    and those that typing itself may take. ``wanted`` is asked right before the first key: somebody else may have
    brought it meanwhile. Raises LizaError where the terminal is gone."""
    with _lock_typing(pane.typing_lock, clock, limit) as mine, pane.watch_changes() as changed:
        if not mine:
            return NotSent("somebody else is typing into it")
        policy = plan_typing(text, preset, limit, patterns)
        act = next(policy)
        begun = False
        while True:
            if not begun and isinstance(act, Paste | Enter):
                if not wanted():
                    return NotSent("it is not for this moment any more", counts_as_try=False)
                begun = True
            if isinstance(act, Paste | Enter) and not pane.is_program_alive():
                # It may have died since the last look.
                return NotSent("the program is dead", is_retryable=False, counts_as_try=False)
            _perform(pane, act, changed)
            try:
                act = policy.send(pane.screen(clock.monotonic()))
            except StopIteration as over:
                found: Sent | NotSent = over.value
                return found


def _perform(pane: Terminal, act: KeyboardAction, changed: Callable[[float], None]) -> None:
    match act:
        case LookAtScreen(after, rest):
            time.sleep(rest)  # what was drawn just now is not all of it, and no event tells when it is
            changed(max(0.0, after - rest))
        case LeaveHistory():
            pane.leave_copy_mode()
        case Paste(text):
            pane.paste(text)
            changed(FIRST_INTERVAL)
        case Enter():
            pane.press_enter()
            changed(FIRST_INTERVAL)


@contextmanager
def _lock_typing(path: Path, clock: SteadyClock, limit: float) -> Iterator[bool]:
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
                time.sleep(FIRST_INTERVAL)  # flock waits for ever or not at all
            else:
                yield True
                return


def plan_typing(text: str, preset: Preset, limit: float = TYPABLE_LIMIT, patterns: Sequence[str] = ()) -> TypingPolicy:
    """Wait until the program can be typed into, paste, see the text stand there, Enter, see it gone; Enter again.

    ``patterns`` on the last line of its screen mean that it waits, besides the row's prompt.
    """
    text = strip_keys(text)
    if not screens.squeeze(text):
        return NotSent("there is nothing in it to type", is_retryable=False)
    screen = yield from _wait_until_typable(text, preset, limit, patterns)
    if isinstance(screen, NotSent):
        return screen
    if not screens.is_unsent(screen, preset.ready_prompt, text):
        if screen.line_mode and len(text.encode()) > MAX_LINE_BYTES:
            return NotSent(
                f"it has {len(text.encode())} bytes, and a line that the kernel edits {MAX_LINE_BYTES} at most",
                can_be_typed=False,
            )
        screen = yield from _paste_once(screen, text, preset)
        if isinstance(screen, NotSent):
            return screen
    for number, patience in enumerate(ENTER_WAITS, 1):
        before = screen
        screen = yield Enter()
        end = screen.time + patience
        for pause in _pauses():
            if screen.is_alive and screens.is_taken(before, screen, preset.ready_prompt, text):
                return Sent(number)
            if screen.time >= end:
                break
            screen = yield LookAtScreen(pause)
        against = find_refusal(screen, preset, text)
        if against is not None:
            return replace(against, is_left_unsent=True)
        if screen.in_copy_mode and _is_person_typing(screen):
            return NotSent("it stands there unsent: somebody reads its history", is_left_unsent=True)
        if screen.in_copy_mode:
            screen = yield LeaveHistory()
    return NotSent(f"it stands there unsent after {len(ENTER_WAITS)} Enters", is_left_unsent=True)


def _wait_until_typable(
    text: str, preset: Preset, limit: float, patterns: Sequence[str]
) -> Generator[KeyboardAction, Screen, Screen | NotSent]:
    """The screen of a program that can be typed into."""
    screen = yield LookAtScreen(0.0)
    end = screen.time + limit
    rest, hears, before = MIN_REST, None, None
    for pause in _pauses():
        against = find_refusal(screen, preset)
        if against is not None and (not against.is_retryable or _is_steady(screen)):
            return against
        wait = against.reason if against is not None else _reason_to_wait(screen, text, preset, patterns)
        if wait is None:
            hears = hears or screen.time + PROMPT_OVERRIDE
            deaf = screen.is_busy and screen.time < min(hears, end)
            # By the kernel alone, it has to say so twice: what was drawn right before it listened is shown later.
            if not deaf and (_has_prompt(screen, preset) or screen.lines == before):
                return screen
            wait, pause = (
                "it shows its prompt and does not listen" if deaf else "it only begins to listen",
                FIRST_INTERVAL,
            )
            before = screen.lines
        if screen.time >= end or (wait == LINE_UNKNOWN and not input_line.is_described(preset)):
            # The row does not say how an empty line looks, or it does not look so: the brief takes the message.
            return NotSent(wait, can_be_typed=wait != LINE_UNKNOWN)
        if screen.seconds_since_change is not None and screen.seconds_since_change < SILENT_SECONDS:
            # That it has been silent so long is a sign that nothing else tells of.
            pause = min(pause, SILENT_SECONDS - screen.seconds_since_change + MIN_REST)
        screen = (
            yield LeaveHistory()
            if screen.in_copy_mode and not _is_person_typing(screen)
            else LookAtScreen(max(pause, rest), rest)
        )
        rest = min(rest + REST_STEP, MAX_REST)
    raise AssertionError("pauses have no end")


def _is_steady(screen: Screen) -> bool:
    """Whether what speaks against typing stays: some questions flash by while a program comes up."""
    return screen.seconds_since_change is None or screen.seconds_since_change >= STEADY_SECONDS


def _paste_once(before: Screen, text: str, preset: Preset) -> Generator[KeyboardAction, Screen, Screen | NotSent]:
    """Paste it once, and see it stand there: pasting again might double what is only shown late."""
    screen = yield Paste(text)
    end = screen.time + PASTE_LIMIT
    for pause in _pauses():
        against = find_refusal(screen, preset, text)
        if against is not None:
            return replace(against, is_left_unsent=True)
        if screens.has_appeared(before, screen, preset.ready_prompt, text):
            return screen
        if screen.time >= end:
            return NotSent("the text was pasted and is not to be seen")
        screen = yield LookAtScreen(pause)
    raise AssertionError("pauses have no end")


def _pauses() -> Iterator[float]:
    pause = FIRST_INTERVAL
    while True:
        yield pause
        pause = min(pause * 2, MAX_INTERVAL)


def find_refusal(screen: Screen, preset: Preset, text: str = "") -> NotSent | None:
    """What forbids to type at all: a dead program, a shell, a question that only a person may answer; a ``text`` that
    was typed asks nothing."""
    if not screen.is_alive:
        return NotSent("the program is dead", is_retryable=False, counts_as_try=False)
    if (
        shells.is_shell(screen.foreground_argv)
        and shells.program_name(screen.foreground_argv[0]) not in preset.process_names
    ):
        return NotSent(f"a shell has the terminal: {' '.join(screen.foreground_argv)[:60]}")
    asks = screens.find_question(screen, preset.ready_prompt, preset.dialogs, text)
    return None if asks is None else NotSent(f"the program shows {asks}")


def _is_person_typing(screen: Screen) -> bool:
    """Whether a person who is attached is at the keys."""
    return screen.seconds_since_key is not None and screen.seconds_since_key < PERSON_IDLE_AFTER


def _reason_to_wait(screen: Screen, text: str, preset: Preset, patterns: Sequence[str]) -> str | None:
    """Why it is too early to type; None when it is not."""
    if screen.in_copy_mode:
        return "somebody reads its history"
    if _is_person_typing(screen):
        return "a person is typing into it"
    if screen.was_visited or screen.seconds_since_key is not None:
        line = input_line.classify_line(screen, preset, text)
        if line is not InputLine.EMPTY:
            return LINE_UNKNOWN if line is InputLine.UNKNOWN else "a person has begun a line in it"
    if _has_prompt(screen, preset):
        return None
    if screen.idle_confidence > IDLE_THRESHOLD and not screens.is_blank(screen):
        return None
    last = next((line for line in reversed(screen.text.splitlines()) if line.strip()), "")
    if any(re.search(pattern, last) for pattern in patterns):
        return None
    return f"it does not show its prompt {preset.ready_prompt!r}" if preset.ready_prompt else "it takes no input"


def _has_prompt(screen: Screen, preset: Preset) -> bool:
    return screens.has_prompt(screen, preset.ready_prompt) or input_line.is_line_empty(screen, preset)


def strip_keys(text: str) -> str:
    """``text`` without what a terminal would take for keys: a message must not press Escape, or end its own paste."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")).strip()
