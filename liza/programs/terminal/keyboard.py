"""Typing into a program's terminal with a check of the effect: only at its prompt, never into a question.

``plan_typing`` decides and touches no terminal. It is a generator: it yields an action (look at the screen, paste,
Enter), and receives the screen after it. It ends when the screen shows that the text was accepted, or the reason why
not.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from enum import Enum
from pathlib import Path
from typing import Protocol

from liza.model.errors import LockTimeout
from liza.model.model import Clock
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import Preset
from liza.programs.terminal import readiness, screens
from liza.programs.terminal.readiness import IDLE_THRESHOLD, SILENT_SECONDS, STEADY_SECONDS
from liza.programs.terminal.screens import Screen
from liza.system.locks import lock_path

MAX_LINE_BYTES = 4000  # bytes of a line that the kernel edits: it drops input beyond 4095 bytes without an error
TYPABLE_LIMIT = 20.0  # seconds for a program to accept input
PASTE_LIMIT = 5.0  # seconds for a pasted text to appear
PROMPT_OVERRIDE = 10.0  # seconds after which a visible prompt outranks a process state that shows no read of keys
PERSON_IDLE_AFTER = 10.0  # seconds without a key after which an attached person is no longer typing
ENTER_WAITS = (0.7, 1.0, 2.0, 4.0)  # seconds for each Enter to have an effect
FIRST_INTERVAL, MAX_INTERVAL = 0.05, 0.5  # seconds between two reads of a screen that does not change
MIN_REST, REST_STEP, MAX_REST = 0.02, 0.002, 0.1  # seconds between two reads of a changing screen, growing by a step
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Sent(Value):
    """The program accepted the text, after ``enters`` presses of Enter."""

    enters: int


class NotSent(Value):
    """The program did not accept the text; ``reason`` is for a person.

    ``is_retryable``: a later try may succeed. ``counts_as_try``: the text was typed, or no chance came within the
    limit. ``can_be_typed``: it is short enough, and the row describes how an empty line looks. ``is_left_unsent``: the
    text is in the input line, unsent.
    """

    reason: str
    is_retryable: bool = True
    counts_as_try: bool = True
    can_be_typed: bool = True
    is_left_unsent: bool = False


LINE_UNKNOWN = NotSent("it is not known whether a person has begun a line in it", can_be_typed=False)
"""The row does not describe an empty line, or the line looks different: the next brief delivers the message."""


class LookAtScreen(Value):
    """Read the screen when it changes, after ``timeout`` seconds at the latest, and not before ``min_wait`` seconds."""

    timeout: float
    min_wait: float = 0.0


class LeaveHistory(Value):
    """Leave copy mode, in which a terminal shows its history."""


class Paste(Value):
    """Paste a text into the input line, without sending it."""

    text: str


class Enter(Value):
    """Send the input line."""


KeyboardAction = LookAtScreen | LeaveHistory | Paste | Enter
TypingPolicy = Generator[KeyboardAction, Screen, Sent | NotSent]


class Terminal(Protocol):
    """A terminal that can be typed into."""

    @property
    def typing_lock(self) -> Path:
        """Path of the lock file for typing."""
        ...

    def screen(self, now: float) -> Screen:
        """Return the screen at ``now``."""
        ...

    def watch_changes(self) -> AbstractContextManager[Callable[[float], None]]:
        """Return a context whose function waits for a change, at most the given seconds."""
        ...

    def leave_copy_mode(self) -> None:
        """Leave the history, and show the program's screen again."""
        ...

    def paste(self, text: str) -> None:
        """Paste a text into the input line."""
        ...

    def press_enter(self) -> None:
        """Press Enter."""
        ...

    def is_program_alive(self) -> bool:
        """Return whether its program is running, from the process table: this is cheap."""
        ...


def send(
    pane: Terminal,
    text: str,
    preset: Preset,
    clock: Clock,
    limit: float = TYPABLE_LIMIT,
    *,
    patterns: Sequence[str] = (),
    wanted: Callable[[], bool] = lambda: True,
) -> Sent | NotSent:
    """Type ``text`` and send it. Return once the program accepted it, or it is known why not.

    Blocks for ``limit`` seconds, plus the seconds that typing itself may take. ``wanted`` is called right before the
    first key, because another process may have delivered the text meanwhile. Raises LizaError if the terminal is gone.
    """
    with ExitStack() as stack:
        try:
            # Of a repository that was moved, no directory reappears at the old path.
            stack.enter_context(lock_path(pane.typing_lock, limit, 0o600, make_parents=False))
        except LockTimeout:
            return NotSent("another process is typing into it")
        wait_for_change = stack.enter_context(pane.watch_changes())
        policy = plan_typing(text, preset, limit, patterns)
        action = next(policy)
        has_typed = False
        while True:
            if not has_typed and isinstance(action, Paste | Enter):
                if not wanted():
                    return NotSent("the message is no longer to be typed", counts_as_try=False)
                has_typed = True
            if isinstance(action, Paste | Enter) and not pane.is_program_alive():
                # It may have died since the screen was read.
                return NotSent("the program is dead", is_retryable=False, counts_as_try=False)
            _perform(pane, action, wait_for_change)
            try:
                action = policy.send(pane.screen(clock.monotonic()))
            except StopIteration as over:
                result: Sent | NotSent = over.value
                return result


def _perform(pane: Terminal, action: KeyboardAction, wait_for_change: Callable[[float], None]) -> None:
    match action:
        case LookAtScreen(timeout, min_wait):
            time.sleep(min_wait)  # a drawing in progress is incomplete, and no event tells its end
            wait_for_change(max(0.0, timeout - min_wait))
        case LeaveHistory():
            pane.leave_copy_mode()
        case Paste(text):
            pane.paste(text)
            wait_for_change(FIRST_INTERVAL)
        case Enter():
            pane.press_enter()
            wait_for_change(FIRST_INTERVAL)


def plan_typing(text: str, preset: Preset, limit: float = TYPABLE_LIMIT, patterns: Sequence[str] = ()) -> TypingPolicy:
    """Wait until the program accepts input, paste, check that the text is visible, press Enter, check that it is gone.

    Enter is pressed again if it had no effect. A last line of the screen that matches one of ``patterns`` counts as a
    prompt, in addition to the row's.
    """
    text = strip_keys(text)
    if not screens.squeeze(text):
        return NotSent("it has no text to type", is_retryable=False)
    screen = yield from _wait_until_typable(text, preset, limit, patterns)
    if isinstance(screen, NotSent):
        return screen
    if not screens.is_unsent(screen, preset.ready_prompt, text):
        if screen.line_mode and len(text.encode()) > MAX_LINE_BYTES:
            return NotSent(
                f"it has {len(text.encode())} bytes; a line that the kernel edits has at most {MAX_LINE_BYTES}",
                can_be_typed=False,
            )
        screen = yield from _paste_once(screen, text, preset)
        if isinstance(screen, NotSent):
            return screen
    for number, seconds in enumerate(ENTER_WAITS, 1):
        before = screen
        screen = yield Enter()
        end = screen.time + seconds
        for pause in _pauses():
            if screen.is_alive and screens.is_taken(before, screen, preset.ready_prompt, text):
                return Sent(number)
            if screen.time >= end:
                break
            screen = yield LookAtScreen(pause)
        refusal = find_refusal(screen, preset, text)
        if refusal is not None:
            return replace(refusal, is_left_unsent=True)
        if screen.in_copy_mode and _is_person_typing(screen):
            return NotSent("it was typed but not sent: a person reads the history", is_left_unsent=True)
        if screen.in_copy_mode:
            screen = yield LeaveHistory()
    return NotSent(f"it was typed but not sent, after {len(ENTER_WAITS)} Enters", is_left_unsent=True)


def _wait_until_typable(
    text: str, preset: Preset, limit: float, patterns: Sequence[str]
) -> Generator[KeyboardAction, Screen, Screen | NotSent]:
    """Wait for a screen of a program that accepts input, and return it, or why there is none."""
    screen = yield LookAtScreen(0.0)
    end = screen.time + limit
    min_wait, prompt_wins_at, lines_before = MIN_REST, None, None
    for timeout in _pauses():
        refusal = find_refusal(screen, preset)
        if refusal is not None and (not refusal.is_retryable or _is_steady(screen)):
            return refusal
        wait = refusal or _reason_to_wait(screen, text, preset, patterns)
        if wait is None:
            prompt_wins_at = prompt_wins_at or screen.time + PROMPT_OVERRIDE
            is_busy = screen.is_busy and screen.time < min(prompt_wins_at, end)
            # Without a prompt the same screen is required twice: output drawn just before the read may appear later.
            if not is_busy and (_has_prompt(screen, preset) or screen.lines == lines_before):
                # If the busy sign is not trusted any more, the program may read an answer.
                return find_refusal(replace(screen, is_busy=False), preset) or screen
            wait, timeout = (
                NotSent(
                    "it shows its prompt and does not read input" if is_busy else "it has only begun to read input"
                ),
                FIRST_INTERVAL,
            )
            lines_before = screen.lines
        if screen.time >= end or (wait is LINE_UNKNOWN and not is_described(preset)):
            return wait
        if screen.seconds_since_change is not None and screen.seconds_since_change < SILENT_SECONDS:
            # SILENT_SECONDS without output are a sign of their own, and no event reports them.
            timeout = min(timeout, SILENT_SECONDS - screen.seconds_since_change + MIN_REST)
        screen = (
            yield LeaveHistory()
            if screen.in_copy_mode and not _is_person_typing(screen)
            else LookAtScreen(max(timeout, min_wait), min_wait)
        )
        min_wait = min(min_wait + REST_STEP, MAX_REST)
    raise AssertionError("pauses have no end")


def _is_steady(screen: Screen) -> bool:
    """Return whether the reason against typing is stable: some questions appear only briefly while a program starts."""
    return screen.seconds_since_change is None or screen.seconds_since_change >= STEADY_SECONDS


def _paste_once(before: Screen, text: str, preset: Preset) -> Generator[KeyboardAction, Screen, Screen | NotSent]:
    """Paste once, and wait for the text to appear. No second paste: a late display would then show it twice."""
    screen = yield Paste(text)
    end = screen.time + PASTE_LIMIT
    for timeout in _pauses():
        refusal = find_refusal(screen, preset, text)
        if refusal is not None:
            return replace(refusal, is_left_unsent=True)
        if screens.has_appeared(before, screen, preset.ready_prompt, text):
            return screen
        if screen.time >= end:
            return NotSent("the text was pasted and did not appear")
        screen = yield LookAtScreen(timeout)
    raise AssertionError("pauses have no end")


def _pauses() -> Iterator[float]:
    pause = FIRST_INTERVAL
    while True:
        yield pause
        pause = min(pause * 2, MAX_INTERVAL)


def find_refusal(screen: Screen, preset: Preset, text: str = "") -> NotSent | None:
    """Return why typing is forbidden, or None: a dead program, a shell, a question for a person.

    ``text`` is what was typed; it is not taken for a question.
    """
    if not screen.is_alive:
        return NotSent("the program is dead", is_retryable=False, counts_as_try=False)
    if (
        readiness.is_shell(screen.foreground_argv)
        and readiness.program_name(screen.foreground_argv[0]) not in preset.process_names
    ):
        return NotSent(f"a shell has the terminal: {' '.join(screen.foreground_argv)[:60]}")
    question = screens.find_question(screen, preset.ready_prompt, preset.dialogs, text)
    return None if question is None else NotSent(f"the program shows {question}")


def _is_person_typing(screen: Screen) -> bool:
    """Return whether an attached person is typing."""
    return screen.seconds_since_key is not None and screen.seconds_since_key < PERSON_IDLE_AFTER


def _reason_to_wait(screen: Screen, text: str, preset: Preset, patterns: Sequence[str]) -> NotSent | None:
    """Return why it is too early to type; None if it is not."""
    if screen.in_copy_mode:
        return NotSent("a person reads its history")
    if _is_person_typing(screen):
        return NotSent("a person is typing into it")
    if screen.was_visited or screen.seconds_since_key is not None:
        line = classify_line(screen, preset, text)
        if line is not InputLine.EMPTY:
            return LINE_UNKNOWN if line is InputLine.UNKNOWN else NotSent("a person has begun a line in it")
    if _has_prompt(screen, preset):
        return None
    if screen.idle_confidence > IDLE_THRESHOLD and not screens.is_blank(screen):
        return None
    last = next((line for line in reversed(screen.text.splitlines()) if line.strip()), "")
    if any(re.search(pattern, last) for pattern in patterns):
        return None
    prompt = preset.ready_prompt
    return NotSent(f"it does not show its prompt {prompt!r}" if prompt else "it takes no input")


def _has_prompt(screen: Screen, preset: Preset) -> bool:
    return screens.has_prompt(screen, preset.ready_prompt) or is_line_empty(screen, preset)


def strip_keys(text: str) -> str:
    """Remove control characters: a message must not press Escape, or end its own paste."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")).strip()


class InputLine(Enum):
    """Contents of the input line."""

    EMPTY = "nothing, or the program's own hint"
    BEGUN = "text of a person"
    UNKNOWN = "not known"


def classify_line(screen: Screen, preset: Preset, text: str = "") -> InputLine:
    """Classify the input line; a ``text`` of Liza's own that was left there counts as empty."""
    if preset.input_line:
        return _by_expression(screen, preset, text)
    if screens.find_prompt_row(screen, preset.ready_prompt) is not None:
        return InputLine.BEGUN if screens.has_begun_line(screen, preset.ready_prompt, text) else InputLine.EMPTY
    return InputLine.UNKNOWN


def is_described(preset: Preset) -> bool:
    """Return whether the row describes the line."""
    return bool(preset.input_line or preset.ready_prompt)


def is_line_empty(screen: Screen, preset: Preset) -> bool:
    """Return whether the row's expression finds the line, and the line is empty."""
    return bool(preset.input_line) and _by_expression(screen, preset, "") is InputLine.EMPTY


def _by_expression(screen: Screen, preset: Preset, text: str) -> InputLine:
    typed = _find_typed(screen, preset.input_line)
    if typed is None:
        return InputLine.UNKNOWN
    hint = preset.input_empty
    if re.fullmatch(hint, typed.strip()) if hint else not screens.squeeze(typed):
        return InputLine.EMPTY
    return InputLine.EMPTY if text and screens.squeeze(typed) == screens.squeeze(text) else InputLine.BEGUN


def _find_typed(screen: Screen, expression: str) -> str | None:
    """Return the group ``typed`` of the lowest match of the expression that begins at the start of a line."""
    pattern = re.compile(expression, re.MULTILINE)
    lines = [line.replace("\u00a0", " ").rstrip() + "\n" for line in screen.lines]
    text, end = "".join(lines), sum(map(len, lines))
    for line in reversed(lines):
        end -= len(line)
        if match := pattern.match(text, end):
            return match["typed"]
    return None
