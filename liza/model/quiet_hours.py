"""Quiet hours: the daily time in which no notice is sent. Pure."""

from __future__ import annotations

import re
from datetime import time

from liza.model.value_classes import Value


class QuietHours(Value):
    """From ``start`` until before ``end``, each day, in local time; past midnight if ``end`` is earlier."""

    start: time
    end: time

    def contains(self, local: time) -> bool:
        """Return whether a local time of day is in the quiet hours."""
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


def parse_quiet_hours(text: str) -> QuietHours | None:
    """Return the hours of a text such as ``22:00-07:00``; None if it is not of this form or has no length."""
    match = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])", text, re.ASCII)
    if match is None:
        return None
    start, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
    return None if start == end else QuietHours(start, end)
