"""What the sidecar calls of the worker API: lifecycle, authorization, telemetry. Each entry is a function."""

from __future__ import annotations

from collections.abc import Callable

from liza.programs.hooks import tool_guards
from liza.programs.hooks.turn_phase import TurnPhase
from liza.programs.session.run_directory import RunDir, Turn
from liza.rules.value_classes import Value
from liza.worker.api_answers import AuthorizeAnswer, LifecycleAnswer, TelemetryAnswer
from liza.worker.api_requests import AuthorizeRequest, LifecycleEvent, LifecycleRequest, TelemetryRequest


class WorkerSurfaces(Value):
    """The surfaces of one run. Each function may raise LizaError or OSError."""

    report_lifecycle: Callable[[LifecycleRequest], LifecycleAnswer]
    authorize: Callable[[AuthorizeRequest], AuthorizeAnswer]
    record_telemetry: Callable[[TelemetryRequest], TelemetryAnswer]


def connect_surfaces(run_dir: RunDir) -> WorkerSurfaces:
    """Return the surfaces of a run."""
    return WorkerSurfaces(
        report_lifecycle=lambda request: _write_turn(run_dir, request),
        authorize=lambda request: _check_end(run_dir, request),
        record_telemetry=lambda request: TelemetryAnswer(recorded=len(request.events), repeated=0),
    )


_PHASES = {
    LifecycleEvent.STARTED: TurnPhase.STARTED,
    LifecycleEvent.READY: TurnPhase.STARTED,
    LifecycleEvent.BUSY: TurnPhase.BUSY,
    LifecycleEvent.IDLE: TurnPhase.IDLE,
    LifecycleEvent.STOPPING: TurnPhase.STOPPED,
    LifecycleEvent.STOPPED: TurnPhase.STOPPED,
}


def _write_turn(run_dir: RunDir, request: LifecycleRequest) -> LifecycleAnswer:
    """Record the state of the turn as hooks do."""
    time = request.timestamp.replace(microsecond=0)
    before = run_dir.read_turn()
    session = request.session_id or (before.session if before else None)
    phase = _PHASES[request.event]
    run_dir.write_turn(Turn(time=time, phase=phase.value, session=session))
    if request.event is LifecycleEvent.READY:
        run_dir.mark_ready(time, f"acp {request.event}")
    return LifecycleAnswer(applied=True, state=phase.value)


def _check_end(run_dir: RunDir, request: AuthorizeRequest) -> AuthorizeAnswer:
    """Refuse every tool of a run that is over."""
    stop = run_dir.read_stop()
    use = tool_guards.ToolUse(run_dir.run, request.tool, run_dir.closing_code(), stop.reason if stop else None)
    refusal = tool_guards.check_tool_use(use)
    return AuthorizeAnswer(allowed=refusal is None, reason=None if refusal is None else refusal.why)
