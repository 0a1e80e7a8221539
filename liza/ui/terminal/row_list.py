"""A list of lines with a cursor, drawn line by line: only rows of the terminal that have changed are drawn again.

The one widget of Liza's own. It scrolls by itself: a table of textual, and its own scrolling, draw each row of a change
anew, which takes 2 KB at 80x24.
"""

from __future__ import annotations

from itertools import zip_longest

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from liza.printing.columns import COLOURS
from liza.ui.rules.lines import EMPTY, Line, Target, Tone

STYLES = {
    Tone.PLAIN: Style(),
    Tone.BOLD: Style(bold=True),
    **{Tone(name): Style(color=f"color({number})") for name, number in COLOURS.items()},
}
"""Style of each tone: the colours of `liza status`, which can be read on a light and on a dark terminal."""
WHEEL_LINES = 3
_CURSOR = Style(reverse=True)


class RowList(Widget, can_focus=False):
    """Shows lines. With ``has_cursor``, one line with a target is chosen; it stays chosen when the lines change.

    ``top``: number of the line that is shown first. ``version``: what the lines were made of, if that matters.
    """

    def __init__(self, name: str, *, has_cursor: bool = False) -> None:
        super().__init__(id=name)
        self._has_cursor = has_cursor
        self._lines: tuple[Line, ...] = ()
        self._cursor = 0
        self.top = 0
        self.version: object = None
        self._shown: tuple[tuple[Line, bool], ...] = ()
        self._painted: dict[int, Line] = {}

    @property
    def chosen(self) -> Target | None:
        """Target of the line under the cursor; None if no line has one."""
        return self._lines[self._cursor].target if self._cursor < len(self._lines) else None

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that are shown."""
        return self._lines

    @property
    def length(self) -> int:
        """Number of lines."""
        return len(self._lines)

    @property
    def painted(self) -> tuple[Line, ...]:
        """The lines of this version that textual has drawn, each in its row."""
        return tuple(line for y, line in self._painted.items() if y < self.size.height)

    def show_lines(self, lines: tuple[Line, ...], version: object = None) -> None:
        """Show other lines. Rows that are as before are not drawn again, except for another version."""
        if version != self.version:
            self.version, self._shown = version, ()
            self._painted.clear()
            self.refresh()
        elif lines == self._lines:
            return
        chosen, cursor = self.chosen, self._cursor
        self._lines = lines
        self._cursor = self._find(chosen, cursor)
        if self._cursor != cursor:
            self._reveal_cursor()
        self._refresh_changed()

    def move(self, steps: int) -> None:
        """Move the cursor by so many lines with a target; beyond the first or the last of them, scroll."""
        if not self._has_cursor or self.chosen is None:
            self.scroll_lines(steps)
            return
        rows = [row for row, line in enumerate(self._lines) if line.target is not None]
        number = rows.index(self._cursor) + steps
        self.choose_row(rows[max(0, min(number, len(rows) - 1))])
        if not 0 <= number < len(rows):
            self.scroll_lines(steps)

    def choose_row(self, row: int) -> None:
        """Move the cursor to a row, and show it."""
        self._cursor = row
        self._reveal_cursor()
        self._refresh_changed()

    @property
    def is_at_end(self) -> bool:
        """Whether the last line is on the screen."""
        return self.top + self.size.height >= self.length

    def scroll_to_last(self) -> None:
        """Show the last line."""
        self.scroll_lines(self.length)

    def turn_page(self, direction: int) -> None:
        """Scroll by a page, with a line of the page before, and take the cursor along. No line is passed over."""
        before = self.top
        self.scroll_lines(direction * (self.size.height - 1))
        if not self._has_cursor or self.chosen is None:
            return
        if self.top == before:
            self.move(direction * self.size.height)
            return
        near = self._cursor + self.top - before
        shown = range(self.top, min(self.top + self.size.height, self.length))
        targets = [row for row in shown if self._lines[row].target is not None]
        self._cursor = min(targets, key=lambda row: abs(row - near), default=self._cursor)
        self._refresh_changed()

    def choose(self, target: Target, *, at_top: bool = False) -> None:
        """Move the cursor to the first line with this target, if there is one. ``at_top``: show it as the first row."""
        row = self._find(target, self._cursor)
        if self._lines[row : row + 1] and self._lines[row].target == target:
            self.choose_row(row)
            if at_top:
                self.scroll_lines(row - self.top)

    def scroll_lines(self, steps: int) -> None:
        """Scroll by lines, without the cursor."""
        self.top += steps
        self._refresh_changed()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        event.stop()
        self.scroll_lines(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self.scroll_lines(-WHEEL_LINES)

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._reveal_cursor()
        self._refresh_changed()

    def _find(self, target: Target | None, near: int) -> int:
        """Return the row of a target; if it is gone, that of the next target."""
        targets = [(row, line.target) for row, line in enumerate(self._lines) if line.target is not None]
        same = [row for row, other in targets if other == target]
        if same:
            return min(same, key=lambda row: abs(row - near))
        later = [row for row, _ in targets if row >= near]
        return later[0] if later else targets[-1][0] if targets else 0

    def _reveal_cursor(self) -> None:
        """Scroll by half a page if the cursor has left the screen: to scroll by a line draws as many rows."""
        if not self._has_cursor or self.chosen is None:
            return
        if not any(line.target for line in self._lines[: self._cursor]):
            self.top = min(self.top, max(0, self._cursor + 1 - self.size.height))
        if not self.top <= self._cursor < self.top + self.size.height:
            self.top = self._cursor - self.size.height // 2

    def _refresh_changed(self) -> None:
        """Draw the rows of the terminal again that show something else than before."""
        self.top = max(0, min(self.top, self.length - self.size.height))
        before = self._shown
        rows = range(self.top, min(self.top + self.size.height, self.length))
        self._shown = tuple((self._lines[row], self._has_cursor and row == self._cursor) for row in rows)
        changed = [y for y, (new, old) in enumerate(zip_longest(self._shown, before)) if new != old]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return a row of the widget."""
        line, is_under_cursor = self._shown[y] if y < len(self._shown) else (EMPTY, False)
        self._painted[y] = line
        segments = [Segment(span.text, STYLES[span.tone]) for span in line.spans] or [Segment("", Style())]
        strip = Strip(segments).adjust_cell_length(self.size.width, Style())
        return strip.apply_style(_CURSOR) if is_under_cursor and line.target is not None else strip
