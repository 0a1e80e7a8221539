"""The usage of each turn and of the context, from the places where the program reports them."""

from __future__ import annotations

from typing import Any

from liza.programs.presets.acp_settings import AcpUsage
from liza.programs.presets.preset import UsageFormat
from liza.programs.usage import usage_report
from liza.rules.acp.usage_counts import UsageCounts, UsageScope, add_counts, share_of_turn
from liza.sidecar.turn_state import RunningTurn

IN_ANSWER, IN_UPDATES = "answer", "updates"


class UsageUpdates:
    """Reads the usage of one conversation. ``context``: used part of the context window, 0 to 1; None: unknown."""

    def __init__(self, settings: AcpUsage) -> None:
        self._settings = settings
        self._form = UsageFormat(input=settings.input, cached=settings.cached, output=settings.output)
        self._earlier = UsageCounts()
        self._cost: float | None = None
        self._earlier_cost = 0.0
        self.context: float | None = None

    def read_update(self, turn: RunningTurn | None, update: dict[str, Any]) -> bool:
        """Take over what an update of the session reports. Return whether the context's usage has changed."""
        if turn is not None and self._settings.source == IN_UPDATES:
            turn.used = add_counts(turn.used, self._counts(update))
        cost = usage_report.value_at(update, self._settings.cost) if self._settings.cost else None
        if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
            self._cost = float(cost)
        used, size = update.get("used"), update.get("size")
        if not isinstance(used, int) or not isinstance(size, int) or size <= 0 or used < 0:
            return False
        before, self.context = self.context, min(1.0, used / size)
        return self.context != before

    def end_turn(self, turn: RunningTurn, answer: Any) -> UsageCounts:
        """Return what the turn used; ``answer`` is the program's answer to the prompt."""
        reported = turn.used
        if self._settings.source == IN_ANSWER and isinstance(answer, dict):
            total = self._counts(answer)
            reported = share_of_turn(total, self._earlier, UsageScope(self._settings.counts))
            self._earlier = total if not total.is_empty else self._earlier
        if self._cost is not None:
            cost = max(0.0, self._cost - self._earlier_cost)
            self._earlier_cost = self._cost
            reported = UsageCounts(reported.input, reported.cached, reported.output, cost)
        return reported

    def _counts(self, event: dict[str, Any]) -> UsageCounts:
        used = usage_report.usage_of_object(self._form, event)
        return UsageCounts() if used is None else UsageCounts(used.input, used.cached, used.output)
