"""What a terminal's screen shows: where one types, whether a question stands there, whether a text does. Pure.

Programs frame, wrap and indent what they show, so texts are compared without blanks, frames and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from liza.programs.presets.preset import Dialog
from liza.programs.terminal import screen_questions

MAX_LINES_BELOW_PROMPT = 12  # lines with something in them that may stand below the line where one types
MARK_LENGTH = 20  # characters of a text's end by which it is known
CURSOR_SLACK = 3  # characters that a program may put before the cursor in a line that goes on
_BLANKS = re.compile("[\\s\u00a0\u200b|\u2500-\u259f]+")
_PASTE_NOTE = re.compile(r"\[[^\[\]]{0,40}paste[^\[\]]{0,60}\]", re.IGNORECASE)
_CHOICE = re.compile(r"(\d{1,2}[.)]|\(?[yn]\)|(yes|no)\b)", re.IGNORECASE)
_MARKED_OPTION = re.compile("[\\s|\u2500-\u259f]*[●◉❯›>▶→✔*•]\\s*(?P<option>(?P<number>\\d{1,2})[.)]\\s+\\S.*)")
_OPTION_DISTANCE = 4  # lines between two options of a menu, at most


@dataclass(frozen=True)
class Screen:
    """What is to be seen of a terminal at one moment. ``row`` and ``column`` are the cursor's, from 0.

    ``time`` is the steady clock's, in seconds. ``by_line``: the kernel edits the line, and Enter hands it over;
    None where that cannot be seen. ``program`` are the words of what has the terminal. ``waiting`` is how sure it is,
    from 0 to 1, that this waits for input. ``person`` is how many seconds ago a person who is attached pressed a key,
    ``still`` how many seconds ago it changed; None where nobody did, or that is not known. ``deaf``: the kernel says
    that nothing waits for keys. ``hidden``: the kernel edits the line and shows nothing of it, as for a password.
    ``width`` in characters, 0 where it is not known. ``visited``: a person may have typed into it, now or before.
    """

    lines: tuple[str, ...]
    cursor_row: int = 0
    cursor_column: int = 0
    time: float = 0.0
    is_alive: bool = True
    in_copy_mode: bool = False
    line_mode: bool | None = None
    foreground_argv: tuple[str, ...] = ()
    idle_confidence: float = 0.0
    seconds_since_key: float | None = None
    seconds_since_change: float | None = None
    is_busy: bool = False
    is_echo_off: bool = False
    width: int = 0
    was_visited: bool = False

    @property
    def text(self) -> str:
        """All of it, without the empty rest."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def is_blank(screen: Screen) -> bool:
    """Whether a program that draws its screen itself has not begun to."""
    return not screen.line_mode and not squeeze(screen.text)


def squeeze(text: str) -> str:
    """``text`` without blanks, line ends and frames."""
    return _BLANKS.sub("", text)


def find_prompt_row(screen: Screen, ready_prompt: str) -> int | None:
    """The lowest line that begins with the prompt; None where there is none, or none is known."""
    sign = squeeze(ready_prompt)
    if not sign:
        return None
    return next((at for at in _rows_upwards(screen) if squeeze(screen.lines[at]).startswith(sign)), None)


def has_prompt(screen: Screen, ready_prompt: str) -> bool:
    """Whether the line where one types is there, and low enough to be no memory of an earlier one."""
    row = find_prompt_row(screen, ready_prompt)
    if row is None or sum(1 for line in screen.lines[row + 1 :] if squeeze(line)) > MAX_LINES_BELOW_PROMPT:
        return False
    return _prompt_choice(screen, row, ready_prompt) is None


def find_question(screen: Screen, ready_prompt: str, dialogs: Sequence[Dialog], text: str = "") -> str | None:
    """What on the screen waits for a person's decision, in words; None where nothing does.

    A dialog's text with the prompt below it is something that was said, and no dialog any more; ``text`` was typed.
    """
    row = find_prompt_row(screen, ready_prompt)
    choice = None if row is None else _prompt_choice(screen, row, ready_prompt)
    typing = row is not None and choice is None
    for dialog in dialogs:
        at = _find_lowest(screen, squeeze(dialog.match))
        if at is not None and not (typing and row is not None and row > at):
            return f"its {dialog.kind} dialog: {dialog.match!r}"
    if choice is None and not typing:
        choice = _menu_choice(screen)
    if choice is not None:
        return f"a menu: {choice!r}"
    if screen.is_echo_off:
        return "a line that is not to be seen, as for a password"
    # What stands behind the prompt is somebody's words.
    return None if typing and row == screen.cursor_row else _line_question(screen, text)


def _line_question(screen: Screen, text: str) -> str | None:
    """What the line with the cursor asks, without a ``text`` that was typed there. One who ends a question's line and
    then waits for another asks by the line above."""
    whole = _strip_typed(_text_before_cursor(screen), text)
    above, _, line = whole.rpartition("\n")
    upper = above.rpartition("\n")[2]
    if screen.width and len(upper) >= screen.width - 1:
        line = upper + line
    asks = screen_questions.is_question(line, screen.line_mode)
    if not asks and screen.line_mode and not line.strip():
        line, asks = upper, screen_questions.is_explicit_question(upper, by_line=True)
    return f"a question: {line.strip()[-60:]!r}" if asks else None


def _text_before_cursor(screen: Screen) -> str:
    """All that stands before the cursor."""
    return "\n".join(
        (
            *screen.lines[: screen.cursor_row],
            "".join(screen.lines[screen.cursor_row : screen.cursor_row + 1])[: screen.cursor_column],
        )
    )


def _strip_typed(whole: str, text: str) -> str:
    """What stands before a ``text`` with which the screen ends, wrapped and framed as it may be; all where it does not
    end with it. A text that began above the screen leaves nothing."""
    left = squeeze(text)
    known, at = len(left), len(whole)
    while known and at:
        at -= 1
        if one := squeeze(whole[at]):
            known -= 1
            if one != left[known]:
                return whole
    return whole[:at]


def _prompt_choice(screen: Screen, row: int, ready_prompt: str) -> str | None:
    """The chosen line of a menu, whose mark is often the prompt's."""
    line = screen.lines[row].replace("\u00a0", " ")
    behind = line.partition(ready_prompt.strip())[2].strip()
    return behind if _CHOICE.match(behind) else None


def _menu_choice(screen: Screen) -> str | None:
    """The chosen one of numbered options that stand under each other, whatever it is marked with."""
    for at in _rows_upwards(screen):
        found = _MARKED_OPTION.match(screen.lines[at])
        if found is None:
            continue
        column, number = found.start("number"), int(found["number"])
        near = (*screen.lines[max(0, at - _OPTION_DISTANCE) : at], *screen.lines[at + 1 : at + 1 + _OPTION_DISTANCE])
        others = (re.match(r"(\d{1,2})[.)]\s", line[column:]) for line in near if not squeeze(line[:column]))
        if any(other is not None and abs(int(other[1]) - number) == 1 for other in others):
            return re.split("\\s{2,}|[\u2500-\u259f]", found["option"])[0].strip()[:60]
    return None


def _find_lowest(screen: Screen, wanted: str) -> int | None:
    """The line in which the lowest occurrence of a squeezed text begins."""
    if not wanted:
        return None
    below = ""
    for at in _rows_upwards(screen):
        below = squeeze(screen.lines[at]) + below
        if wanted in below:
            return at
    return None


def _rows_upwards(screen: Screen) -> range:
    return range(len(screen.lines) - 1, -1, -1)


@dataclass(frozen=True)
class TextOnScreen:
    """Where a text that was typed is to be seen: in the ``composer``, the lines from the prompt on, how often; right
    before the ``cursor``; how often on the whole ``screen``, and how many lines above its end. ``folded``: how many
    notes such as "[Pasted text #1 +12 lines]" stand in the composer."""

    composer: int | None
    cursor: bool
    screen: int
    above_end: int | None
    folded: int


def locate_text(screen: Screen, ready_prompt: str, text: str) -> TextOnScreen:
    """How ``text`` stands on the screen, known by its end."""
    mark = squeeze(text)[-MARK_LENGTH:]
    row = find_prompt_row(screen, ready_prompt)
    low = screen.lines if row is None else screen.lines[row:]
    composer = squeeze("\n".join(low))
    at = _find_lowest(screen, mark)
    return TextOnScreen(
        composer=None if row is None else _count(mark, composer),
        cursor=_ends_at_cursor(screen, mark, 0 if row is None or screen.line_mode else CURSOR_SLACK),
        screen=_count(mark, squeeze("\n".join(screen.lines))),
        above_end=None if at is None else len(screen.text.splitlines()) - at,
        folded=len(_PASTE_NOTE.findall(" ".join(low))),
    )


def _count(mark: str, text: str) -> int:
    # The end of the mark is enough: a line that goes on may begin with a sign of its own in the middle of it.
    return max(text.count(mark), text.count(mark[-MARK_LENGTH // 2 :])) if mark else 0


def _ends_at_cursor(screen: Screen, mark: str, slack: int) -> bool:
    if screen.line_mode and not screen.cursor_column:
        return False
    ahead = squeeze(_text_before_cursor(screen))
    end = mark[-MARK_LENGTH // 2 :]
    return bool(end) and end in ahead[-len(end) - slack :]


def has_begun_line(screen: Screen, ready_prompt: str, text: str) -> bool:
    """Whether somebody has begun a line: something other than ``text`` stands between the prompt and the cursor.

    What a program shows behind the cursor, to say what one may type, is nobody's.
    """
    row = find_prompt_row(screen, ready_prompt)
    if row is None or screen.cursor_row < row:
        return False
    # A cursor below belongs to the same line only where that is wrapped; else it is parked somewhere.
    upper = screen.lines[row : screen.cursor_row]
    if any(len(line) < screen.width - CURSOR_SLACK or not squeeze(line) or not screen.width for line in upper):
        return False
    if not squeeze(screen.lines[screen.cursor_row][: screen.cursor_column]):
        return False
    low = squeeze(_text_before_cursor(screen).split("\n", row)[-1])
    return low.removeprefix(squeeze(ready_prompt)) not in ("", squeeze(text))


def has_appeared(before: Screen, now: Screen, ready_prompt: str, text: str) -> bool:
    """Whether a text that was typed after ``before`` stands there, unsent."""
    old, new = locate_text(before, ready_prompt, text), locate_text(now, ready_prompt, text)
    if now.line_mode:
        return new.cursor
    if new.composer is not None and new.composer > (old.composer or 0):
        return True
    if new.folded > old.folded or (new.cursor and not old.cursor):
        return True
    return new.composer is None and new.screen > old.screen


def is_unsent(screen: Screen, ready_prompt: str, text: str) -> bool:
    """Whether a text stands there unsent, from an earlier try: where one types, and nowhere else."""
    found = locate_text(screen, ready_prompt, text)
    return bool(found.composer) if found.composer is not None else found.cursor


def is_taken(before: Screen, now: Screen, ready_prompt: str, text: str) -> bool:
    """Whether a text that stood there at ``before`` has been taken: the line where one types holds it no more."""
    old, new = locate_text(before, ready_prompt, text), locate_text(now, ready_prompt, text)
    if now.line_mode:
        return not new.cursor
    if old.folded and not old.composer:
        return new.folded < old.folded
    if old.cursor and not new.cursor:
        return True
    if old.composer:
        return not new.composer
    return not old.cursor and (new.above_end != old.above_end or new.screen < old.screen)
