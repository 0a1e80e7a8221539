"""Calls of the worker API that report what happened. A failing report never ends a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from liza.api.acp.output_lines import OutputLines
from liza.api.acp.surfaces import WorkerSurfaces
from liza.api.acp.turn_state import RunningTurn
from liza.api.api_requests import LifecycleRequest, TelemetryRequest
from liza.api.rules.usage_counts import UsageCounts
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.usage.rules.telemetry_rules import TelemetryEvent, TurnUsage


class SurfaceCalls:
    """Reports of one run. ``session_id`` is the program's id of the conversation, once it is known."""

    def __init__(self, run: str, worker: WorkerSurfaces, lines: OutputLines) -> None:
        self.worker = worker
        self.session_id: str | None = None
        self._run, self._lines = run, lines

    def report(self, event: LifecycleEvent, metadata: Mapping[str, Any] | None = None) -> None:
        """Report a transition."""
        request = LifecycleRequest(
            event=event,
            run_id=self._run,
            timestamp=datetime.now(UTC),
            session_id=self.session_id,
            metadata=dict(metadata or {}),
        )
        self._try(lambda: self.worker.report_lifecycle(request))

    def record_turn(self, turn: RunningTurn, used: UsageCounts, context: float | None) -> None:
        """Report a complete turn with its usage and its tool calls."""
        usage = TurnUsage(
            input_tokens=max(0, used.input - used.cached),
            output_tokens=used.output,
            cache_read_tokens=used.cached,
            cost_usd=used.cost,
        )
        event = TelemetryEvent(
            timestamp=datetime.now(UTC),
            usage=usage,
            tools_called=tuple(turn.calls),
            id=f"{self.session_id}/{turn.number}",
            context_usage=context,
        )
        self._try(lambda: self.worker.record_telemetry(TelemetryRequest(run_id=self._run, events=(event,))))

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a report that fails must not end the agent's work
            self._lines.write("notice", text=f"not reported: {error or type(error).__name__}")
