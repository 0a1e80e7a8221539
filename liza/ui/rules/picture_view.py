"""What a person looks at: the screen, the size, the folds, the filter."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from liza.model.value_classes import Value
from liza.ui.rules.lines import Target
from liza.ui.rules.snapshot import ScreenName, Wanted

SIDE_FROM = 120
"""Columns from which the chosen task or agent is shown beside the list."""
LOW_BELOW = 12
"""Rows below which the header has one line."""
WITH_SIDE = tuple(ScreenName)[:6]
"""Screens that are lists of tasks or agents."""
FILTERED = (ScreenName.NOW, ScreenName.BOARD, ScreenName.AGENTS, ScreenName.QUEUE)
"""Screens with a filter."""
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


class Fold(StrEnum):
    """A group whose rows are shown only on request."""

    NEWS = "news"
    MERGED = "merged"
    GIVEN_UP = "given up"


class PictureView(Value, kw_only=True):
    """``columns`` and ``rows``: size of the terminal. ``chosen``: the line under the cursor. ``age``: seconds since the
    snapshot was read. ``marked``: lines of the diff that a comment is for. ``comments``: those that are not sent yet.
    ``seen``: when the person looked last, on an earlier visit.
    """

    columns: int
    rows: int
    wanted: Wanted = Wanted()
    chosen: Target | None = None
    filter: Filter = Filter()
    unfolded: frozenset[Fold] = frozenset()
    marked: frozenset[int] = frozenset()
    comments: tuple[DraftComment, ...] = ()
    is_read_only: bool = False
    age: float = 0.0
    seen: datetime | None = None

    @property
    def screen(self) -> ScreenName:
        """The screen that is shown."""
        return self.wanted.screen

    @property
    def side_columns(self) -> int:
        """Columns of the side; 0 without a side."""
        has_side = self.columns >= SIDE_FROM and self.screen in WITH_SIDE
        return self.columns // SIDE_SHARE if has_side else 0

    @property
    def list_columns(self) -> int:
        """Columns of the list."""
        return self.columns - self.side_columns - bool(self.side_columns)

    @property
    def header_rows(self) -> int:
        """Rows of the header: on a low terminal one; one more while a filter is set."""
        return (1 if self.rows < LOW_BELOW else 3) + self.is_filtered

    @property
    def body_rows(self) -> int:
        """Rows of the list."""
        return max(0, self.rows - self.header_rows - 1)

    @property
    def is_filtered(self) -> bool:
        """Whether some rows of this screen may be hidden."""
        return self.filter != Filter() and self.screen in FILTERED
