"""Health: of a run, as its supervisor and its own runtime see it, what its turns have used, and of the server."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec

from liza.api.lifecycle import require_current_run, require_known_run
from liza.crew.crew import Crew
from liza.model.agent_states import AgentState
from liza.model.session_ends import SilenceKind
from liza.model.value_classes import AwareDatetime, Label, RunId, WorkerAnswer, WorkerRequest
from liza.programs import liveness
from liza.programs.rules.lifecycle_rules import (
    OBSERVED,
    REPORTED,
    HealthStatus,
    RunFacts,
    WorkerState,
    check_time,
    judge_run,
    parse_state,
    worker_state,
)
from liza.programs.rules.model_silence import describe_failure, describe_silence
from liza.programs.session.run_directory import (
    ModelNote,
    ReportedHealth,
    RunDir,
    Turn,
    read_reported_health,
    write_reported_health,
)
from liza.usage.rules.telemetry_rules import TelemetryEvent, TelemetrySums
from liza.usage.telemetry_log import TelemetryLog, find_context_usage

MAX_EVENTS: Final = 1_000
"""Maximum number of telemetry events in a request."""


class TelemetryRequest(WorkerRequest, frozen=True, kw_only=True):
    """What a run has used since its last report."""

    run_id: RunId
    events: Annotated[tuple[TelemetryEvent, ...], msgspec.Meta(min_length=1, max_length=MAX_EVENTS)]


class TelemetryAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """How many events were counted, and how many had been counted before."""

    recorded: int
    repeated: int


class HealthReport(WorkerRequest, frozen=True, kw_only=True):
    """A worker's answer to a question for its health on its stream. ``question`` is the id of that question."""

    run_id: RunId
    status: HealthStatus
    current_state: WorkerState
    last_activity: AwareDatetime
    question: Label | None = None
    uptime_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    context_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    error: Annotated[str, msgspec.Meta(max_length=4000)] | None = None


class RunHealth(WorkerAnswer, frozen=True, kw_only=True):
    """The health of a run. ``source`` of the state: ``reported`` by its runtime, or ``observed`` by its supervisor."""

    status: HealthStatus
    run_id: str
    uptime_seconds: float
    current_state: WorkerState
    source: str
    last_activity: AwareDatetime | None = None
    context_usage: float | None = None
    error: str | None = None


class ServerHealth(WorkerAnswer, frozen=True, kw_only=True):
    """The health of the server. ``runs``: how many runs have an open stream."""

    status: HealthStatus
    version: str
    uptime_seconds: float
    runs: int


class ReportAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``recorded``: the report of the health is stored."""

    recorded: bool


class ListedAgent(WorkerAnswer, frozen=True, kw_only=True):
    """An agent with its operating state, the evidence for it, and since when. ``run_id`` is its newest run, ``task_id``
    the task that it holds. ``error``: why the state is unknown; then the state is null."""

    id: str
    role: str
    state: AgentState | None = None
    evidence: str | None = None
    state_since: AwareDatetime | None = None
    run_id: str | None = None
    task_id: str | None = None
    error: str | None = None


class AgentsAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """All agents of the crew, as `liza agents --json` shows them: planners, coders, reviewers, each by number."""

    agents: tuple[ListedAgent, ...]


def report_health(run_dir: RunDir, report: HealthReport, now: datetime) -> ReportAnswer:
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
    return ReportAnswer(recorded=True)


def run_health(
    crew: Crew,
    run_dir: RunDir,
    unanswered: float = 0.0,
    telemetry: Callable[[Path], TelemetryLog] = TelemetryLog,
) -> RunHealth:
    """Return the health of a run. ``unanswered``: seconds since the oldest question that its runtime has not answered.

    ``telemetry`` returns the log in a directory of a run. Raises UnknownId, LizaError, OSError.
    """
    record, now = require_known_run(run_dir), crew.clock.now()
    turn, gauge, reported = run_dir.read_turn(), run_dir.read_gauge(), read_reported_health(run_dir)
    sums = telemetry(run_dir.path).read()
    is_over = run_dir.is_concluded() or liveness.is_session_over(run_dir)
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


def record_telemetry(
    run_dir: RunDir, request: TelemetryRequest, now: datetime, log: TelemetryLog | None = None, *, may_wait: bool = True
) -> TelemetryAnswer:
    """Store the events that are new, each once. ``log`` of the run spares reading its file again at each request.
    ``may_wait``: wait for a lock that is held.

    Raises UnknownId, RunIsOver, FutureTime (then no event is stored), LockTimeout, LizaError, OSError.
    """
    require_current_run(run_dir)
    for event in request.events:
        check_time(event.timestamp, now)
    recorded = (log or TelemetryLog(run_dir.path)).append(request.events, may_wait=may_wait)
    return TelemetryAnswer(recorded=recorded, repeated=len(request.events) - recorded)
