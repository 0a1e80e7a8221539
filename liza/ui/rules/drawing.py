"""Draw the picture: a snapshot and a view in, lines out. Most screens are a function in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from liza.model.value_classes import Value
from liza.printing.render_metrics import format_usage
from liza.text.redaction import redact
from liza.ui.rules import (
    agent_list,
    header,
    lanes,
    now,
    past,
    queue_list,
    session_screen,
    side,
    task_screen,
)
from liza.ui.rules.agent_list import AGENT_SIGNS
from liza.ui.rules.keys import KEYS, SCREEN_KEYS
from liza.ui.rules.lines import (
    EMPTY,
    Cell,
    Line,
    Target,
    TargetKind,
    Tone,
    cut_line,
    dim_line,
    make_row,
    make_rule,
    painted_lines,
    text_line,
)
from liza.ui.rules.picture_view import LOW_BELOW, PictureView
from liza.ui.rules.snapshot import SCREEN_PARTS, ScreenName, Snapshot, Unread
from liza.ui.rules.task_lines import TASK_SIGNS, wrap_words
from liza.view.metrics import UsageReport
from liza.view.rules.structs import Picture

ScreenDrawing = Callable[[Snapshot, PictureView], tuple[Line, ...]]
"""The lines of a screen, each at most ``view.list_columns`` wide."""


class Drawing(Value):
    """``side``: what is known of the chosen line, beside the list; empty if the terminal is narrow."""

    header: tuple[Line, ...]
    body: tuple[Line, ...]
    side: tuple[Line, ...]
    footer: Line


_KEY_CELLS = 11


def _draw_costs(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return what the sprint has used of its budget, by task, agent, program, model, account and day."""
    picture, usage = snapshot.picture, snapshot.costs
    assert isinstance(picture, Picture)
    assert isinstance(usage, UsageReport)
    tone = Tone.PLAIN if picture.costs.unreadable is None else Tone.RED
    text = f"? {picture.costs.unreadable}" if picture.costs.unreadable else picture.costs.text
    lines = [*(text_line(part, tone) for part in wrap_words(text, max(1, view.list_columns))), EMPTY]
    targets = {
        **{row.task.id: Target(TargetKind.TASK, row.task.id) for row in picture.tasks},
        **{line.row.id: Target(TargetKind.AGENT, line.row.id) for line in picture.agents},
    }
    for line in painted_lines(format_usage(usage)):
        owner = line.text.split(" ", 1)[0]
        lines.append(Line(line.spans, targets.get(owner)))
    return tuple(cut_line(line, view.list_columns) for line in lines)


def _draw_help(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    """Return all keys, and the signs."""
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


SCREENS: Final[Mapping[ScreenName, ScreenDrawing]] = {
    ScreenName.NOW: now.draw,
    ScreenName.BOARD: lanes.draw,
    ScreenName.AGENTS: agent_list.draw,
    ScreenName.QUEUE: queue_list.draw,
    ScreenName.COSTS: _draw_costs,
    ScreenName.HISTORY: past.draw,
    ScreenName.HELP: _draw_help,
    ScreenName.TASK: task_screen.draw,
    ScreenName.SESSION: session_screen.draw,
}
MIN_COLUMNS, MIN_ROWS = 40, 8
"""The smallest terminal that is drawn on."""


def draw(snapshot: Snapshot, view: PictureView) -> Drawing:
    """Return the picture."""
    if view.columns < MIN_COLUMNS or view.rows < MIN_ROWS:
        return Drawing((header.draw_small(snapshot, view),), (), (), EMPTY)
    head = _draw_part("the header", lambda: _head(snapshot, view))
    body = _draw_part("the screen", lambda: _body(snapshot, view))
    if snapshot.fault is not None and not isinstance(snapshot.picture, Unread):
        body = (*unknown_lines("the crew", snapshot.fault), *map(dim_line, body))
    beside = _draw_part("the chosen line", lambda: side.draw(snapshot, view))
    return Drawing(head, body, beside, header.draw_footer(view))


def _head(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    head = header.draw(snapshot, view)
    if view.screen is ScreenName.SESSION and view.rows >= LOW_BELOW:
        return (*head, *session_screen.draw_head(snapshot, view))
    return head


def _draw_part(subject: str, draw_lines: Callable[[], tuple[Line, ...]]) -> tuple[Line, ...]:
    """Return a part of the picture. A fault in it must not take the rest of the picture away."""
    try:
        return draw_lines()
    except Exception as error:  # noqa: BLE001
        return unknown_lines(subject, Unread(redact(f"{type(error).__name__}: {error}"), "liza bug-report"))


def draw_loading(view: PictureView) -> Drawing:
    """Return the picture before the crew was read for the first time."""
    return Drawing((text_line("..."),), (text_line("the crew is being read", Tone.DIM),), (), header.draw_footer(view))


def _body(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    if isinstance(snapshot.picture, Unread):
        return unknown_lines("the crew", snapshot.picture)
    part = SCREEN_PARTS.get(view.screen)
    if part is not None:
        value = getattr(snapshot, part)
        if isinstance(value, Unread):
            return unknown_lines(f"the {part}", value)
        if value is None or snapshot.wanted != view.wanted:
            return (text_line("…", Tone.DIM),)
    return SCREENS[view.screen](snapshot, view)


def unknown_lines(subject: str, unknown: Unread) -> tuple[Line, ...]:
    """Return that a part could not be read, and the command for it."""
    return (
        text_line(f"? {subject} cannot be read: {unknown.reason}", Tone.RED),
        text_line(unknown.next, Tone.BOLD, indent="    "),
    )
