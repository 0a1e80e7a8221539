"""Draw the picture: a snapshot and a view in, lines out. Each screen is a function in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from liza.model.value_classes import Value
from liza.ui.rules import header, now
from liza.ui.rules.lines import Line, Tone, text_line
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, Unread

ScreenDrawing = Callable[[Snapshot, PictureView], tuple[Line, ...]]
"""The lines of a screen, each at most ``view.list_columns`` wide."""


class Drawing(Value):
    """``side``: what is known of the chosen line, beside the list; empty if the terminal is narrow."""

    header: tuple[Line, ...]
    body: tuple[Line, ...]
    side: tuple[Line, ...]
    footer: Line


SCREENS: Final[Mapping[ScreenName, ScreenDrawing]] = {ScreenName.NOW: now.draw}


def draw(snapshot: Snapshot, view: PictureView) -> Drawing:
    """Return the picture."""
    return Drawing(header.draw(snapshot, view), _body(snapshot, view), (), header.draw_footer(view))


def _body(snapshot: Snapshot, view: PictureView) -> tuple[Line, ...]:
    if isinstance(snapshot.picture, Unread):
        return unknown_lines("the crew", snapshot.picture)
    return SCREENS[view.screen](snapshot, view)


def unknown_lines(subject: str, unknown: Unread) -> tuple[Line, ...]:
    """Return that a part could not be read, and the command for it."""
    return (
        text_line(f"? {subject} cannot be read: {unknown.reason}", Tone.RED),
        text_line(f"    {unknown.next}", Tone.BOLD),
    )
