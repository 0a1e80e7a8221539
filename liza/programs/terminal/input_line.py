"""Whether the line where one types is known to be empty: by what the program's row says of that line. Pure."""

from __future__ import annotations

import re
from enum import Enum

from liza.programs.presets.preset import Preset
from liza.programs.terminal import screens
from liza.programs.terminal.screens import Screen


class InputLine(Enum):
    """What stands in the line where one types."""

    EMPTY = "nothing, or what the program itself shows there"
    BEGUN = "somebody's words"
    UNKNOWN = "not known"


def classify_line(screen: Screen, preset: Preset, text: str = "") -> InputLine:
    """What stands in the line where one types; a ``text`` of Liza's own that was left there counts as nothing."""
    if preset.input_line:
        return _by_expression(screen, preset, text)
    if screens.find_prompt_row(screen, preset.ready_prompt) is not None:
        return InputLine.BEGUN if screens.has_begun_line(screen, preset.ready_prompt, text) else InputLine.EMPTY
    return InputLine.UNKNOWN


def is_described(preset: Preset) -> bool:
    """Whether the row says how the line looks."""
    return bool(preset.input_line or preset.ready_prompt)


def is_line_empty(screen: Screen, preset: Preset) -> bool:
    """Whether the line is there by the row's expression, and nothing stands in it."""
    return bool(preset.input_line) and _by_expression(screen, preset, "") is InputLine.EMPTY


def _by_expression(screen: Screen, preset: Preset, text: str) -> InputLine:
    typed = _find_typed(screen, preset.input_line)
    if typed is None:
        return InputLine.UNKNOWN
    shown = preset.input_empty
    if re.fullmatch(shown, typed.strip()) if shown else not screens.squeeze(typed):
        return InputLine.EMPTY
    return InputLine.EMPTY if text and screens.squeeze(typed) == screens.squeeze(text) else InputLine.BEGUN


def _find_typed(screen: Screen, expression: str) -> str | None:
    """The group ``typed`` of the lowest place that the expression fits, begun at the beginning of a line."""
    pattern = re.compile(expression, re.MULTILINE)
    lines = [line.replace("\u00a0", " ").rstrip() + "\n" for line in screen.lines]
    text, end = "".join(lines), sum(map(len, lines))
    for line in reversed(lines):
        end -= len(line)
        if found := pattern.match(text, end):
            return found["typed"]
    return None
