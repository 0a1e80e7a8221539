"""What a person looks at: the screen, the size, the folds, the filter."""

from __future__ import annotations

from liza.model.value_classes import Value
from liza.ui.rules.lines import Target
from liza.ui.rules.snapshot import ScreenName, Wanted

SIDE_FROM = 120
"""Columns from which the chosen task or agent is shown beside the list."""
SIDE_SHARE = 3
"""The side has a third of the columns."""


class Filter(Value):
    """Which tasks and agents are listed: those with one of these words, of this agent, with this text. Empty: all.

    It never hides what waits for a person.
    """

    words: tuple[str, ...] = ()
    agent: str = ""
    text: str = ""


class DraftComment(Value):
    """A comment on a line of a diff that is not sent yet. ``location``: ``FILE:LINE`` at ``commit``."""

    task: str
    commit: str
    location: str
    text: str


class PictureView(Value, kw_only=True):
    """``columns`` and ``rows``: size of the terminal. ``chosen``: the line under the cursor. ``age``: seconds since the
    snapshot was read. ``marked``: lines of the diff that a comment is for. ``comments``: those that are not sent yet.
    """

    columns: int
    rows: int
    wanted: Wanted = Wanted()
    chosen: Target | None = None
    filter: Filter = Filter()
    shows_merged: bool = False
    shows_given_up: bool = False
    marked: frozenset[int] = frozenset()
    comments: tuple[DraftComment, ...] = ()
    is_read_only: bool = False
    age: float = 0.0

    @property
    def screen(self) -> ScreenName:
        """The screen that is shown."""
        return self.wanted.screen

    @property
    def side_columns(self) -> int:
        """Columns of the side; 0 without a side."""
        return self.columns // SIDE_SHARE if self.columns >= SIDE_FROM else 0

    @property
    def list_columns(self) -> int:
        """Columns of the list."""
        return self.columns - self.side_columns - bool(self.side_columns)
