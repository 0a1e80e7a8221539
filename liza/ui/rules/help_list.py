"""The screen of the help: all keys, and the signs."""

from __future__ import annotations

from liza.ui.rules.agent_list import AGENT_SIGNS
from liza.ui.rules.keys import KEYS, SCREEN_KEYS
from liza.ui.rules.lines import EMPTY, Cell, Line, Tone, make_row, make_rule
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Snapshot
from liza.ui.rules.task_lines import TASK_SIGNS

_KEY_CELLS = 11


def draw(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return the lines of the screen."""
    del snapshot
    width = view.list_columns
    digits = [Cell(" ".join(SCREEN_KEYS), _KEY_CELLS, Tone.BOLD), Cell(", ".join(SCREEN_KEYS.values()))]
    lines = [make_rule("KEYS", width), make_row(digits, width)]
    for key in KEYS:
        if not (key.changes and view.is_read_only):
            screens = f" ({', '.join(key.screens)})" if key.screens else ""
            lines.append(make_row((Cell(key.shown, _KEY_CELLS, Tone.BOLD), Cell(f"{key.help}{screens}")), width))
    lines += [EMPTY, make_rule("SIGNS OF TASKS", width)]
    lines += [make_row((Cell(sign, 1, tone), Cell(word)), width) for word, (sign, tone) in TASK_SIGNS.items()]
    lines += [EMPTY, make_rule("SIGNS OF AGENTS", width)]
    lines += [make_row((Cell(sign, 1, tone), Cell(word)), width) for word, (sign, tone) in AGENT_SIGNS.items()]
    return tuple(lines)
