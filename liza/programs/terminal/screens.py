"""What a terminal's screen shows: the prompt's row, a question, a typed text. Pure.

Programs frame, wrap and indent their output, so texts are compared without blanks, frames and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from liza.model.value_classes import Value
from liza.programs.presets.preset import Dialog

MAX_LINES_BELOW_PROMPT = 12  # maximum non-empty lines below the prompt's row
MARK_LENGTH = 20  # characters at the end of a text by which it is recognised
CURSOR_SLACK = 3  # characters that a program may put before the cursor in a wrapped line
_BLANKS = re.compile("[\\s\u00a0\u200b|\u2500-\u259f]+")
_PASTE_NOTE = re.compile(r"\[[^\[\]]{0,40}paste[^\[\]]{0,60}\]", re.IGNORECASE)
_CHOICE = re.compile(r"(\d{1,2}[.)]|\(?[yn]\)|(yes|no)\b)", re.IGNORECASE)
_MARKED_OPTION = re.compile("[\\s|\u2500-\u259f]*[●◉❯›>▶→✔*•]\\s*(?P<option>(?P<number>\\d{1,2})[.)]\\s+\\S.*)")
_OPTION_DISTANCE = 4  # maximum lines between two options of a menu
_MAX_QUESTION = 400  # characters at a line's end that are examined
_ASKS = re.compile(r"[?:]\s*$")
_LABEL = re.compile(r":\s*$")
_CHOICES = re.compile(  # "Overwrite? (Y/n/a)", "Go on [y/N] "
    r"([?:]\s*[\[({<][^\])}>]{1,60}|[\[({<]\s*(y|n|yes|no)\s*([/|,][^\])}>]{0,60})?)[\])}>]+[\s?:>.!]*$", re.IGNORECASE
)
_KEY_OR_PAGER = re.compile(
    r"\b(press|hit)\W.{0,20}\b(enter|return|key|space)\b(?!\W*to (send|submit))"
    r"|\(END\)\s*$|--\s*more\s*--.{0,20}$|^lines \d",
    re.IGNORECASE,
)


class Screen(Value):
    """A terminal's screen at one moment.

    ``cursor_row`` and ``cursor_column`` count from 0. ``time`` is seconds of the monotonic clock. ``line_mode``: the
    kernel edits the line, and Enter passes it on; None if unknown. ``foreground_argv`` is the argv of the process that
    has the terminal. ``idle_confidence`` is from 0 to 1: how certain it is that this process waits for input.
    ``seconds_since_key`` is the time since an attached person pressed a key, ``seconds_since_change`` since the screen
    changed; None if neither happened, or it is unknown. ``is_busy``: by the kernel, no process waits for keys.
    ``is_echo_off``: the kernel edits the line and hides it, as for a password. ``width`` is in characters, 0 if
    unknown. ``was_visited``: a person may have typed into the terminal, now or before.
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
        """The whole screen as text, without trailing blanks."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip()


def is_blank(screen: Screen) -> bool:
    """Return whether a program that draws its own screen has not begun to."""
    return not screen.line_mode and not squeeze(screen.text)


def squeeze(text: str) -> str:
    """Return ``text`` without blanks, line ends and frames."""
    return _BLANKS.sub("", text)


def find_prompt_row(screen: Screen, ready_prompt: str) -> int | None:
    """Return the lowest row that begins with the prompt; None if no row does, or the prompt is unknown."""
    prompt = squeeze(ready_prompt)
    if not prompt:
        return None
    return next((row for row in _rows_upwards(screen) if squeeze(screen.lines[row]).startswith(prompt)), None)


def has_prompt(screen: Screen, ready_prompt: str) -> bool:
    """Return whether the prompt is visible, and low enough not to be an earlier one that scrolled up."""
    row = find_prompt_row(screen, ready_prompt)
    if row is None or sum(1 for line in screen.lines[row + 1 :] if squeeze(line)) > MAX_LINES_BELOW_PROMPT:
        return False
    return _prompt_choice(screen, row, ready_prompt) is None


def find_question(screen: Screen, ready_prompt: str, dialogs: Sequence[Dialog], text: str = "") -> str | None:
    """Describe the question, menu or dialog on the screen that waits for a person; None if none is there.

    A dialog's text above the prompt is earlier output and no dialog. ``text`` is what was typed; it is no question.
    """
    row = find_prompt_row(screen, ready_prompt)
    choice = None if row is None else _prompt_choice(screen, row, ready_prompt)
    at_prompt = row is not None and choice is None
    for dialog in dialogs:
        dialog_row = _find_lowest(screen, squeeze(dialog.match))
        if dialog_row is not None and not (at_prompt and row is not None and row > dialog_row):
            return f"its {dialog.kind} dialog: {dialog.match!r}"
    if choice is None and not at_prompt:
        choice = _menu_choice(screen)
    if choice is not None:
        return f"a menu: {choice!r}"
    if screen.is_echo_off:
        return "an input line without echo, as for a password"
    # The text after the prompt is input, not output of the program.
    return None if at_prompt and row == screen.cursor_row else _line_question(screen, text)


def _line_question(screen: Screen, text: str) -> str | None:
    """Return the question in the cursor's line, without a typed ``text`` at its end.

    If the kernel edits the line and it is empty, the line above counts: a program may end the line of its question.
    """
    before = _strip_typed(_text_before_cursor(screen), text)
    above, _, line = before.rpartition("\n")
    upper = above.rpartition("\n")[2]
    if screen.width and len(upper) >= screen.width - 1:
        line = upper + line
    # A person's text in a frame with lines below asks for nothing, nor does "Loading:" of a program that reads no keys.
    # A busy program may read keys all the same, if it has a connection open, so its "?" counts.
    is_last = not squeeze("".join(screen.lines[screen.cursor_row + 1 :]))
    can_ask = is_last and not (screen.is_busy and _LABEL.search(line))
    has_asked = is_question(line) if can_ask else is_explicit_question(line)
    if not has_asked and screen.line_mode and not line.strip():
        line, has_asked = upper, is_explicit_question(upper)
    return f"a question: {line.strip()[-60:]!r}" if has_asked else None


def is_question(line: str) -> bool:
    """Return whether a line, with the cursor after it, asks for something: it ends with ``?`` or ``:``, or is explicit.

    A text typed there is taken as the answer. The row of a program whose prompt looks so names it as ``ready_prompt``.
    """
    return _ASKS.search(line) is not None or is_explicit_question(line)


def is_explicit_question(line: str) -> bool:
    """Return whether a line ends with choices in brackets, names a key to press, or is a pager's."""
    line = line[-_MAX_QUESTION:]
    return _CHOICES.search(line) is not None or _KEY_OR_PAGER.search(line) is not None


def _text_before_cursor(screen: Screen) -> str:
    """Return everything before the cursor."""
    return "\n".join(
        (
            *screen.lines[: screen.cursor_row],
            "".join(screen.lines[screen.cursor_row : screen.cursor_row + 1])[: screen.cursor_column],
        )
    )


def _strip_typed(screen_text: str, text: str) -> str:
    """Return what is before a ``text`` at the end of the screen, which may be wrapped and framed.

    Return everything if the screen does not end with the text, and nothing if only the text's end is visible: it began
    above the screen, or its program shows a part of it.
    """
    squeezed = squeeze(text)
    remaining, at = len(squeezed), len(screen_text)
    while remaining and at:
        at -= 1
        if character := squeeze(screen_text[at]):
            remaining -= 1
            if character != squeezed[remaining]:
                return "" if len(squeezed) - remaining > MARK_LENGTH else screen_text
    return screen_text[:at]


def _prompt_choice(screen: Screen, row: int, ready_prompt: str) -> str | None:
    """Return the chosen option of a menu whose mark is the same character as the prompt."""
    line = screen.lines[row].replace("\u00a0", " ")
    option = line.partition(ready_prompt.strip())[2].strip()
    return option if _CHOICE.match(option) else None


def _menu_choice(screen: Screen) -> str | None:
    """Return the chosen option of a numbered menu, with any mark."""
    for row in _rows_upwards(screen):
        match = _MARKED_OPTION.match(screen.lines[row])
        if match is None:
            continue
        column, number = match.start("number"), int(match["number"])
        near = (
            *screen.lines[max(0, row - _OPTION_DISTANCE) : row],
            *screen.lines[row + 1 : row + 1 + _OPTION_DISTANCE],
        )
        others = (re.match(r"(\d{1,2})[.)]\s", line[column:]) for line in near if not squeeze(line[:column]))
        if any(other is not None and abs(int(other[1]) - number) == 1 for other in others):
            return re.split("\\s{2,}|[\u2500-\u259f]", match["option"])[0].strip()[:60]
    return None


def _find_lowest(screen: Screen, wanted: str) -> int | None:
    """Return the row in which the lowest occurrence of a squeezed text begins."""
    if not wanted:
        return None
    below = ""
    for row in _rows_upwards(screen):
        below = squeeze(screen.lines[row]) + below
        if wanted in below:
            return row
    return None


def _rows_upwards(screen: Screen) -> range:
    return range(len(screen.lines) - 1, -1, -1)


class TextOnScreen(Value):
    """Where a typed text is visible.

    ``composer``: how often in the lines from the prompt on; ``cursor``: right before the cursor; ``screen``: how often
    on the whole screen; ``above_end``: how many lines above its end. ``folded``: number of notes such as "[Pasted text
    #1 +12 lines]" in the composer.
    """

    composer: int | None
    cursor: bool
    screen: int
    above_end: int | None
    folded: int


def locate_text(screen: Screen, ready_prompt: str, text: str) -> TextOnScreen:
    """Find ``text`` on the screen, by its last MARK_LENGTH characters."""
    mark = squeeze(text)[-MARK_LENGTH:]
    row = find_prompt_row(screen, ready_prompt)
    from_prompt = screen.lines if row is None else screen.lines[row:]
    composer = squeeze("\n".join(from_prompt))
    row_of_text = _find_lowest(screen, mark)
    return TextOnScreen(
        composer=None if row is None else _count(mark, composer),
        cursor=_ends_at_cursor(screen, mark, 0 if row is None or screen.line_mode else CURSOR_SLACK),
        screen=_count(mark, squeeze("\n".join(screen.lines))),
        above_end=None if row_of_text is None else len(screen.text.splitlines()) - row_of_text,
        folded=len(_PASTE_NOTE.findall(" ".join(from_prompt))),
    )


def _count(mark: str, text: str) -> int:
    # Half of the mark suffices: a wrapped line may begin with a continuation sign in the middle of the mark.
    return max(text.count(mark), text.count(mark[-MARK_LENGTH // 2 :])) if mark else 0


def _ends_at_cursor(screen: Screen, mark: str, slack: int) -> bool:
    if screen.line_mode and not screen.cursor_column:
        return False
    text_before = squeeze(_text_before_cursor(screen))
    end = mark[-MARK_LENGTH // 2 :]
    return bool(end) and end in text_before[-len(end) - slack :]


def has_begun_line(screen: Screen, ready_prompt: str, text: str) -> bool:
    """Return whether a person has begun a line: there is something other than ``text`` between prompt and cursor.

    A program may show a hint after the cursor; it does not count.
    """
    row = find_prompt_row(screen, ready_prompt)
    if row is None or screen.cursor_row < row:
        return False
    # A cursor below belongs to the same line only if that line is wrapped; otherwise it is elsewhere on the screen.
    rows_between = screen.lines[row : screen.cursor_row]
    if any(len(line) < screen.width - CURSOR_SLACK or not squeeze(line) or not screen.width for line in rows_between):
        return False
    if not squeeze(screen.lines[screen.cursor_row][: screen.cursor_column]):
        return False
    typed = squeeze(_text_before_cursor(screen).split("\n", row)[-1])
    return typed.removeprefix(squeeze(ready_prompt)) not in ("", squeeze(text))


def has_appeared(before: Screen, now: Screen, ready_prompt: str, text: str) -> bool:
    """Return whether a text that was typed after ``before`` is visible, unsent."""
    old, new = locate_text(before, ready_prompt, text), locate_text(now, ready_prompt, text)
    if now.line_mode:
        return new.cursor
    if new.composer is not None and new.composer > (old.composer or 0):
        return True
    if new.folded > old.folded or (new.cursor and not old.cursor):
        return True
    return new.composer is None and new.screen > old.screen


def is_unsent(screen: Screen, ready_prompt: str, text: str) -> bool:
    """Return whether a text from an earlier try is in the input line, unsent."""
    location = locate_text(screen, ready_prompt, text)
    return bool(location.composer) if location.composer is not None else location.cursor


def is_taken(before: Screen, now: Screen, ready_prompt: str, text: str) -> bool:
    """Return whether a text that was visible in ``before`` was accepted: the input line no longer has it."""
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
