"""A list of lines with a cursor, drawn line by line: only rows that have changed are drawn again.

The one widget of Liza's own. It uses ``ScrollView`` with ``render_line``, because a table of textual draws each row of
a change anew.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from liza.printing.columns import COLOURS
from liza.ui.rules.lines import Line, Target, Tone

STYLES = {
    Tone.PLAIN: Style(),
    Tone.BOLD: Style(bold=True),
    **{Tone(name): Style(color=f"color({number})") for name, number in COLOURS.items()},
}
"""Style of each tone: the colours of `liza status`, which can be read on a light and on a dark terminal."""
_CURSOR = Style(reverse=True)


class RowList(ScrollView, can_focus=False):
    """Shows lines. With ``has_cursor``, one line with a target is chosen; it stays chosen when the lines change."""

    DEFAULT_CSS = "RowList { scrollbar-size: 0 0; }"

    def __init__(self, name: str, *, has_cursor: bool = False) -> None:
        super().__init__(id=name)
        self._has_cursor = has_cursor
        self._lines: tuple[Line, ...] = ()
        self._cursor = 0

    @property
    def chosen(self) -> Target | None:
        """Target of the line under the cursor; None if no line has one."""
        return self._lines[self._cursor].target if self._cursor < len(self._lines) else None

    @property
    def length(self) -> int:
        """Number of lines."""
        return len(self._lines)

    def show_lines(self, lines: tuple[Line, ...]) -> None:
        """Show other lines. Rows that are as before are not drawn again."""
        before, chosen, cursor = self._lines, self.chosen, self._cursor
        self._lines = lines
        self._cursor = self._find(chosen, cursor)
        if len(lines) != len(before):
            self.virtual_size = Size(self.size.width, len(lines))
        changed = {row for row in range(max(len(lines), len(before))) if lines[row : row + 1] != before[row : row + 1]}
        self._refresh_rows(changed | ({cursor, self._cursor} if cursor != self._cursor else set()))

    def move(self, steps: int) -> None:
        """Move the cursor by so many lines with a target; without a target in that direction, scroll."""
        if not self._has_cursor or self.chosen is None:
            self.scroll_relative(y=steps, animate=False)
            return
        rows = [row for row, line in enumerate(self._lines) if line.target is not None]
        number = rows.index(self._cursor) + steps
        self.choose_row(rows[max(0, min(number, len(rows) - 1))])

    def choose_row(self, row: int) -> None:
        """Move the cursor to a row, and show it."""
        before, self._cursor = self._cursor, row
        self._refresh_rows({before, row})
        self.scroll_to_region(Region(0, row, 1, 1), animate=False)

    def choose(self, target: Target, *, at_top: bool = False) -> None:
        """Move the cursor to the first line with this target, if there is one. ``at_top``: show it as the first row."""
        row = self._find(target, self._cursor)
        if self._lines[row : row + 1] and self._lines[row].target == target:
            self.choose_row(row)
            if at_top:
                self.scroll_to(y=row, animate=False)

    def _find(self, target: Target | None, near: int) -> int:
        """Return the row of a target; if it is gone, that of the next target."""
        targets = [(row, line.target) for row, line in enumerate(self._lines) if line.target is not None]
        same = [row for row, other in targets if other == target]
        if same:
            return min(same, key=lambda row: abs(row - near))
        later = [row for row, _ in targets if row >= near]
        return later[0] if later else targets[-1][0] if targets else 0

    def _refresh_rows(self, rows: set[int]) -> None:
        top = self.scroll_offset.y
        for row in rows:
            if top <= row < top + self.size.height:
                self.refresh(Region(0, row - top, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Return a row of the widget."""
        row = y + self.scroll_offset.y
        width = self.size.width
        if row >= len(self._lines):
            return Strip.blank(width, Style())
        line = self._lines[row]
        segments = [Segment(span.text, STYLES[span.tone]) for span in line.spans] or [Segment("", Style())]
        strip = Strip(segments).adjust_cell_length(width, Style())
        is_chosen = self._has_cursor and row == self._cursor and line.target is not None
        return strip.apply_style(_CURSOR) if is_chosen else strip
