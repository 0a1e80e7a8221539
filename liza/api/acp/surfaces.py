"""What the sidecar calls of the worker API: lifecycle, authorization, telemetry. Each entry is a function."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime

from liza.api.api_answers import AuthorizeAnswer, LifecycleAnswer, TelemetryAnswer
from liza.api.api_requests import AuthorizeRequest, LifecycleRequest, TelemetryRequest
from liza.api.lifecycle import report_lifecycle
from liza.api.telemetry import TelemetryLogs, record_telemetry
from liza.guards.authorize import GuardsCache, authorize
from liza.model.value_classes import Value
from liza.programs.session.run_directory import RunDir, TurnSource


class WorkerSurfaces(Value):
    """The surfaces of one run. Each function may raise LizaError or OSError."""

    report_lifecycle: Callable[[LifecycleRequest], LifecycleAnswer]
    authorize: Callable[[AuthorizeRequest], AuthorizeAnswer]
    record_telemetry: Callable[[TelemetryRequest], TelemetryAnswer]


def connect_surfaces(run_dir: RunDir, directory: str) -> WorkerSurfaces:
    """Return the surfaces of a run whose tools start in ``directory``."""
    logs, guards = TelemetryLogs(), GuardsCache()
    return WorkerSurfaces(
        report_lifecycle=lambda request: report_lifecycle(run_dir, request, datetime.now(UTC), TurnSource.ACP),
        authorize=lambda request: authorize(run_dir, request, os.environ, directory, guards),
        record_telemetry=lambda request: record_telemetry(run_dir, request, datetime.now(UTC), logs),
    )
