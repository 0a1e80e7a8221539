"""Lifecycle: a runtime reports the transitions of its run, which are recorded where hooks record theirs."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from liza.board import wake_up
from liza.programs.session.run_directory import RunDir, Turn, TurnSource
from liza.rules.errors import UsageError
from liza.rules.worker_api.lifecycle_rules import (
    READY_EVENTS,
    WAITING_STATES,
    LifecycleEvent,
    ReportedState,
    judge_event,
    parse_state,
)
from liza.system.flock import lock_path
from liza.worker.api_answers import LifecycleAnswer
from liza.worker.api_requests import LifecycleRequest
from liza.worker.current_run import require_current_run

READY_BY_REPORT = "{source} {event}"
_WAKING_STATES = WAITING_STATES | {LifecycleEvent.STOPPED}
LOCK_LIMIT = 5.0  # seconds; each holder needs milliseconds


def report_lifecycle(
    run_dir: RunDir, request: LifecycleRequest, now: datetime, source: TurnSource = TurnSource.API
) -> LifecycleAnswer:
    """Record the event unless it is late or repeated, and return the state of the run after it.

    Raises UnknownId, RunIsOver, FutureTime, UsageError for a wrong exit code, LizaError, OSError.
    """
    exit_code = _exit_code(request)
    require_current_run(run_dir)
    # Two requests of one run at the same time: each decides from the state that the other left.
    with lock_path(run_dir.path / ".turn.lock", LOCK_LIMIT, 0o600, make_parents=False):
        before = run_dir.read_turn()
        reported = _reported_state(before)
        verdict = judge_event(reported, request.event, request.timestamp, now)
        if not verdict.applied:
            return LifecycleAnswer(applied=False, state=reported.state if reported else "", reason=verdict.reason)
        if request.event in READY_EVENTS and not run_dir.is_ready():
            run_dir.mark_ready(now, READY_BY_REPORT.format(source=source, event=request.event))
        run_dir.write_turn(
            Turn(
                time=request.timestamp.astimezone(UTC),
                phase=request.event,
                tools=before.tools if before else 0,
                session=request.session_id or (before.session if before else None),
                pushes=before.pushes if before else 0,
                source=source,
                exit_code=exit_code,
            )
        )
    if request.event in _WAKING_STATES:
        # The supervisor also finds the record at its next look.
        with suppress(OSError):
            wake_up.wake_watchers(run_dir.paths, run_dir.agent)
    return LifecycleAnswer(applied=True, state=request.event)


def _reported_state(turn: Turn | None) -> ReportedState | None:
    """Return what a runtime reported last; None if only hooks did: their clock and their order are others."""
    state = parse_state(turn.phase) if turn is not None and turn.is_reported else None
    return ReportedState(state, turn.time) if turn is not None and state is not None else None


def _exit_code(request: LifecycleRequest) -> int | None:
    code = request.metadata.get("exit_code")
    if code is None:
        return None
    if not isinstance(code, int) or isinstance(code, bool) or not -(1 << 31) <= code < 1 << 31:
        raise UsageError(f"metadata.exit_code is {code!r}, expected a 32-bit integer")
    return code
