"""The line in which a filter is typed."""

from __future__ import annotations

from enum import Enum

from textual.widgets import Input


class FilterPart(Enum):
    """What is typed: words of statuses and agents, or a text to be searched."""

    WORDS = "statuses and agents, such as: to fix, coder-1 (empty: all)"
    TEXT = "text of a task or agent (empty: all)"


class FilterLine(Input):
    """Takes the place of the footer while a filter is typed."""

    DEFAULT_CSS = """
    FilterLine, FilterLine:focus {
        height: 1; border: none; padding: 0 1; background: ansi_default; color: ansi_default;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="filter", compact=True, select_on_focus=False)
        self.part = FilterPart.WORDS
        self.display = self.can_focus = False

    def ask(self, part: FilterPart, value: str) -> None:
        """Open the line."""
        self.display = self.can_focus = True
        self.part, self.placeholder, self.value = part, part.value, value
        self.cursor_position = len(value)
        self.focus()

    def close(self) -> None:
        """Close the line."""
        self.screen.set_focus(None)
        self.display = self.can_focus = False

    @property
    def is_open(self) -> bool:
        """Whether a filter is being typed."""
        return bool(self.display)
