"""What the sidecar remembers of a running turn."""

from __future__ import annotations

from liza.api.rules.tool_requests import ToolBook
from liza.api.rules.turn_results import TurnContent
from liza.api.rules.usage_counts import UsageCounts
from liza.model.value_classes import Mutable, field
from liza.usage.rules.telemetry_rules import ReportedCall

MAX_LAST_TEXT = 20_000
"""Characters of the text after the last tool call that are kept, to search it for a failure."""


class RunningTurn(Mutable):
    """One turn, by the id of its session/prompt. Times are seconds of the monotonic clock.

    ``spared``: processes below the program that ran before the turn. ``refused``: number of refused tool calls;
    ``begun_calls``: when each tool call began. ``messages``: the ids of the messages in its prompt; ``text``: the part
    of the prompt that is no message, and stored nowhere.
    """

    request: int
    book: ToolBook
    number: int
    last_update: float
    spared: frozenset[int] = frozenset()
    messages: tuple[str, ...] = ()
    text: str = ""
    cancelled_at: float | None = None
    last_text: str = ""
    is_empty: bool = True
    is_acknowledged: bool = False
    refused: int = 0
    used: UsageCounts = UsageCounts()
    begun_calls: dict[str, float] = field(default_factory=dict)
    calls: list[ReportedCall] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Add text of the model."""
        self.is_empty = self.is_empty and not text.strip()
        self.last_text = (self.last_text + text)[-MAX_LAST_TEXT:]

    def add_tool(self) -> None:
        """Record a tool call: the text before it is not the last of the turn."""
        self.is_empty, self.last_text = False, ""

    def content(self) -> TurnContent:
        """Return what the turn has shown."""
        return TurnContent(self.last_text, self.is_empty, self.cancelled_at is not None)
