"""Whether the input line is known to be empty, by the program's row. Pure."""

from __future__ import annotations

import re
from enum import Enum

from liza.programs.presets.preset import Preset
from liza.programs.terminal import screens
from liza.programs.terminal.screens import Screen


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
