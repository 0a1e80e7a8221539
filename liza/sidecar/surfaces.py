"""What the sidecar calls of the worker API: lifecycle, authorization, telemetry. Each entry is a function."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from liza.programs.hooks import tool_guards
from liza.programs.session.run_directory import RunDir, TurnSource
from liza.rules.value_classes import Value
from liza.worker.api_answers import AuthorizeAnswer, LifecycleAnswer, TelemetryAnswer
from liza.worker.api_requests import AuthorizeRequest, LifecycleRequest, TelemetryRequest
from liza.worker.lifecycle import report_lifecycle
from liza.worker.telemetry import TelemetryLogs, record_telemetry


class WorkerSurfaces(Value):
    """The surfaces of one run. Each function may raise LizaError or OSError."""

    report_lifecycle: Callable[[LifecycleRequest], LifecycleAnswer]
    authorize: Callable[[AuthorizeRequest], AuthorizeAnswer]
    record_telemetry: Callable[[TelemetryRequest], TelemetryAnswer]


def connect_surfaces(run_dir: RunDir) -> WorkerSurfaces:
    """Return the surfaces of a run."""
    logs = TelemetryLogs()
    return WorkerSurfaces(
        report_lifecycle=lambda request: report_lifecycle(run_dir, request, datetime.now(UTC), TurnSource.ACP),
        authorize=lambda request: _check_end(run_dir, request),
        record_telemetry=lambda request: record_telemetry(run_dir, request, datetime.now(UTC), logs),
    )


def _check_end(run_dir: RunDir, request: AuthorizeRequest) -> AuthorizeAnswer:
    """Refuse every tool of a run that is over."""
    stop = run_dir.read_stop()
    use = tool_guards.ToolUse(run_dir.run, request.tool, run_dir.closing_code(), stop.reason if stop else None)
    refusal = tool_guards.check_tool_use(use)
    return AuthorizeAnswer(allowed=refusal is None, reason=None if refusal is None else refusal.why)
