"""Telemetry: a runtime reports what its turns used. Each turn is stored and counted once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime

from liza.api.api_answers import TelemetryAnswer
from liza.api.api_requests import TelemetryRequest
from liza.api.current_run import require_current_run
from liza.programs.rules.lifecycle_rules import check_time
from liza.programs.session.run_directory import RunDir
from liza.usage.telemetry_log import TelemetryLog

MAX_LOGS = 512
"""Maximum number of runs whose log is remembered; the one unused for the longest time is read again when needed."""


class TelemetryLogs:
    """The open logs of a process that records telemetry of many runs. Thread-safe."""

    def __init__(self, limit: int = MAX_LOGS) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._logs: OrderedDict[str, TelemetryLog] = OrderedDict()

    def log_of(self, run_dir: RunDir) -> TelemetryLog:
        """Return the log of a run."""
        key = str(run_dir.path)
        with self._guard:
            log = self._logs.get(key) or TelemetryLog(run_dir.path)
            self._logs[key] = log
            self._logs.move_to_end(key)
            if len(self._logs) > self._limit:
                # A thread that still uses it goes on; both lock the file.
                self._logs.popitem(last=False)
            return log


def record_telemetry(
    run_dir: RunDir,
    request: TelemetryRequest,
    now: datetime,
    logs: TelemetryLogs | None = None,
    *,
    may_wait: bool = True,
) -> TelemetryAnswer:
    """Store the events that are new. ``logs`` spares reading the file again at each request. ``may_wait``: wait for a
    lock that is held.

    Raises UnknownId, RunIsOver, FutureTime (then no event is stored), LockTimeout, LizaError, OSError.
    """
    require_current_run(run_dir)
    for event in request.events:
        check_time(event.timestamp, now)
    log = TelemetryLog(run_dir.path) if logs is None else logs.log_of(run_dir)
    recorded = log.append(request.events, may_wait=may_wait)
    return TelemetryAnswer(recorded=recorded, repeated=len(request.events) - recorded)
