"""Health: of a run, as its supervisor and its own runtime see it, and of the server."""

from __future__ import annotations

from datetime import UTC, datetime

import liza
from liza.api.api_answers import RunHealth, ServerHealth
from liza.api.api_requests import HealthReport
from liza.api.current_run import require_current_run, require_known_run
from liza.api.telemetry import TelemetryLogs
from liza.crew.crew import Crew
from liza.model.session_ends import SilenceKind
from liza.programs import run_state
from liza.programs.rules.health_rules import HealthStatus, RunFacts, judge_run, worker_state
from liza.programs.rules.lifecycle_rules import check_time, parse_state
from liza.programs.rules.model_silence import describe_failure, describe_silence
from liza.programs.session.reported_health import ReportedHealth, read_reported_health, write_reported_health
from liza.programs.session.run_directory import ModelNote, RunDir, Turn
from liza.usage.rules.telemetry_rules import TelemetrySums
from liza.usage.telemetry_log import find_context_usage
from liza.view.activity import OBSERVED, REPORTED


def report_health(run_dir: RunDir, report: HealthReport, now: datetime) -> None:
    """Record what a runtime says of itself. Raises UnknownId, RunIsOver, FutureTime, LizaError, OSError."""
    require_current_run(run_dir)
    check_time(report.last_activity, now)
    write_reported_health(
        run_dir,
        ReportedHealth(
            time=now,
            status=report.status,
            state=report.current_state,
            last_activity=report.last_activity,
            context_usage=report.context_usage,
            error=report.error,
            question=report.question,
        ),
    )


def run_health(crew: Crew, run_dir: RunDir, unanswered: float = 0.0, logs: TelemetryLogs | None = None) -> RunHealth:
    """Return the health of a run. ``unanswered``: seconds since the oldest question that its runtime has not answered.

    ``logs`` spares reading its telemetry again at each call. Raises UnknownId, LizaError, OSError.
    """
    record, now = require_known_run(run_dir), crew.clock.now()
    turn, gauge, reported = run_dir.read_turn(), run_dir.read_gauge(), read_reported_health(run_dir)
    sums = (logs or TelemetryLogs()).log_of(run_dir).read()
    is_over = run_dir.is_concluded() or run_state.is_session_over(run_dir)
    note = run_dir.read_model_note()
    usage = find_context_usage(sums, reported)
    if usage is None and gauge is not None:
        usage = gauge.context_usage  # by the log of its program
    health = judge_run(
        RunFacts(
            over=_end_text(run_dir) if is_over else None,
            silence=note.kind if note else None,
            silence_text=_silence_text(note, now) if note else "",
            stuck=gauge.stuck if gauge else None,
            unmeasured=gauge.unmeasured if gauge else None,
            question=run_dir.read_question(),
            context_usage=usage,
            handoff_at=crew.board.read().config.context_handoff,
            unanswered=0.0 if is_over else unanswered,
            reported=reported.status if reported else HealthStatus.HEALTHY,
            reported_error=reported.error if reported else None,
        )
    )
    return RunHealth(
        status=health.status,
        run_id=run_dir.run,
        uptime_seconds=max(0.0, (now - record.started).total_seconds()),
        current_state=worker_state(parse_state(turn.phase) if turn else None, is_over=is_over),
        source=REPORTED if turn is not None else OBSERVED,
        last_activity=_last_activity(run_dir, turn, sums, reported),
        context_usage=usage,
        error=health.error,
    )


def server_health(uptime_seconds: float, runs: int, error: str | None = None) -> ServerHealth:
    """Return the health of the server. ``runs``: runs with an open stream; ``error``: what limits it."""
    return ServerHealth(
        status=HealthStatus.HEALTHY if error is None else HealthStatus.DEGRADED,
        version=liza.__version__,
        uptime_seconds=uptime_seconds,
        runs=runs,
        error=error,
    )


def _silence_text(note: ModelNote, now: datetime) -> str:
    if note.kind is SilenceKind.SILENT:
        return describe_silence((now - note.since).total_seconds())
    return describe_failure(note.kind, note.words)


def _end_text(run_dir: RunDir) -> str:
    stop = run_dir.read_stop()
    return "its session is over" if stop is None else f"its session is over: {stop.reason}"


def _last_activity(
    run_dir: RunDir, turn: Turn | None, sums: TelemetrySums | None, reported: ReportedHealth | None
) -> datetime | None:
    """Return the newest time at which something shows that the run works."""
    output = run_dir.last_output_time()
    times = [
        turn.time if turn else None,
        sums.last if sums else None,
        reported.last_activity if reported else None,
        datetime.fromtimestamp(output, UTC).replace(microsecond=0) if output is not None else None,
    ]
    return max((time for time in times if time is not None), default=None)
