"""The used part of the context window, from what the runtime of a run reports."""

from __future__ import annotations

from liza.programs.session.reported_health import ReportedHealth
from liza.rules.worker_api.telemetry_rules import TelemetrySums


def find_context_usage(sums: TelemetrySums | None, reported: ReportedHealth | None) -> float | None:
    """Return the newest report, 0 to 1: of a turn, or of the runtime's health; None without one."""
    if reported is None or reported.context_usage is None:
        return sums.context_usage if sums is not None else None
    if sums is None or sums.context_usage is None or sums.last is None or sums.last < reported.time:
        return reported.context_usage
    return sums.context_usage
