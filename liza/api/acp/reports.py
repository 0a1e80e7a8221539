"""What the sidecar reports: lines of the run's output, and calls of the surfaces of the worker API.

The output is one JSON object per line, in the same form for every program. Types:
session, prompt, text, thought, tool_call, tool_result, permission, usage, context, turn, failure, notice, exit.
`programs/presets/acp_session.py` says how usage, tool calls and failures are read from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from liza.api.acp.rules import UsageCounts
from liza.api.health import TelemetryAnswer, TelemetryRequest, record_telemetry
from liza.api.lifecycle import LifecycleAnswer, LifecycleRequest, report_lifecycle
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest, GuardsCache, judge_request
from liza.model.value_classes import Value
from liza.programs.rules.lifecycle_rules import LifecycleEvent
from liza.programs.session.run_directory import RunDir, TurnSource
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage
from liza.usage.telemetry_log import TelemetryLog

MAX_TEXT = 4000
"""Characters after which a streamed text is written, also without a line end."""
MAX_OUTPUT = 20_000
"""Maximum length of a tool's result in a line, in characters."""
STDOUT = 1


class OutputLines:
    """Writes lines. Streamed text is joined, because programs send it in pieces of a few characters."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._pending = ""
        self._pending_type = "text"

    @property
    def has_text(self) -> bool:
        """Whether text waits to be written."""
        return bool(self._pending)

    def write(self, kind: str, /, **fields: Any) -> None:
        """Write a line of this type, after the text before it. Raises OSError."""
        self.flush()
        self._put({"type": kind, **fields})

    def add_text(self, text: str, kind: str = "text") -> None:
        """Add streamed text; it is written at the end of a line, or when it is long. Raises OSError."""
        if kind != self._pending_type:
            self.flush()
        self._pending_type = kind
        self._pending += text
        head, newline, rest = self._pending.rpartition("\n")
        if newline and head.strip():
            self._put({"type": kind, "text": head})
            self._pending = rest
        if len(self._pending) > MAX_TEXT:
            self.flush()

    def flush(self) -> None:
        """Write the text that was added. Raises OSError."""
        text, self._pending = self._pending, ""
        if text.strip():
            self._put({"type": self._pending_type, "text": text})

    def _put(self, fields: dict[str, Any]) -> None:
        data = memoryview(msgspec.json.encode(fields) + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]


def shorten_output(value: Any) -> str:
    """Return the result of a tool as text, its end cut off if it is long."""
    texts = [part["content"]["text"] for part in value if _is_text(part)] if isinstance(value, list) else []
    if value is not None and not isinstance(value, str):
        value = "\n".join(texts) if texts else msgspec.json.encode(value).decode()
    text = value or ""
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}…"


def _is_text(part: object) -> bool:
    content = part.get("content") if isinstance(part, dict) else None
    return isinstance(content, dict) and isinstance(content.get("text"), str)


class WorkerSurfaces(Value):
    """The surfaces of one run. Each function may raise LizaError or OSError."""

    report_lifecycle: Callable[[LifecycleRequest], LifecycleAnswer]
    authorize: Callable[[AuthorizeRequest], AuthorizeAnswer]
    record_telemetry: Callable[[TelemetryRequest], TelemetryAnswer]


def connect_surfaces(run_dir: RunDir, directory: str) -> WorkerSurfaces:
    """Return the surfaces of a run whose tools start in ``directory``."""
    log, guards = TelemetryLog(run_dir.path), GuardsCache()
    return WorkerSurfaces(
        report_lifecycle=lambda request: report_lifecycle(run_dir, request, datetime.now(UTC), TurnSource.ACP),
        authorize=lambda request: judge_request(run_dir, request, os.environ, directory, guards),
        record_telemetry=lambda request: record_telemetry(run_dir, request, datetime.now(UTC), log),
    )


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

    def record_turn(self, number: int, calls: Sequence[ReportedCall], used: UsageCounts, context: float | None) -> None:
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
            tools_called=tuple(calls),
            id=f"{self.session_id}/{number}",
            context_usage=context,
        )
        self._try(lambda: self.worker.record_telemetry(TelemetryRequest(run_id=self._run, events=(event,))))

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a report that fails must not end the agent's work
            self._lines.write("notice", text=f"not reported: {error or type(error).__name__}")
