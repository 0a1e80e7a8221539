"""Lifecycle: a runtime, or the hooks of a program, report the transitions of their run.

Both are recorded in ``turn.json``, under the lock of that file: each report decides from the state that the other
left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from liza.model.errors import LizaError, LockTimeout, RunIsOver, UnknownId, UsageError
from liza.model.value_classes import AwareDatetime, Label, RunId, WorkerAnswer, WorkerRequest
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_events import HookMeaning, ReceivedEvent
from liza.programs.rules.lifecycle_rules import (
    READY_EVENTS,
    WAITING_STATES,
    LifecycleEvent,
    ReportedState,
    judge_event,
    parse_state,
)
from liza.programs.session.run_directory import RunDir, RunRecord, Turn, TurnSource, list_runs
from liza.system import file_growth, locks
from liza.system.locks import lock_path

READY_BY_REPORT = "{source} {event}"
_WAKING_STATES = WAITING_STATES | {LifecycleEvent.STOPPED}
TURN_LOCK = ".turn.lock"
LOCK_LIMIT = 1.0  # seconds; each holder needs milliseconds, and a program waits for its hook at each tool call


def require_known_run(run_dir: RunDir) -> RunRecord:
    """Return the record of a run. Raises UnknownId if it has none, LizaError if it cannot be read."""
    record = run_dir.read_record()
    if record is None:
        raise UnknownId(f"there is no run {run_dir.run} in this crew", f"liza agents {run_dir.agent}")
    return record


def _newest_run(run_dir: RunDir) -> str:
    """Return the agent's newest run with a record. A directory does not prove a run: any agent can make one."""
    for name in reversed(list_runs(run_dir.paths, run_dir.agent)):
        if name == run_dir.run:
            break
        with suppress(LizaError):
            if RunDir(run_dir.paths, name).read_record() is not None:
                return name
    return run_dir.run


def require_current_run(run_dir: RunDir) -> RunRecord:
    """Return the record of a run whose end is not recorded and that is its agent's newest.

    Raises UnknownId, RunIsOver, LizaError if a file cannot be read.
    """
    record = require_known_run(run_dir)
    if run_dir.is_concluded():
        raise RunIsOver(f"{run_dir.run} is over: its end is recorded", f"liza logs {run_dir.run}")
    newest = _newest_run(run_dir)
    if newest != run_dir.run:
        raise RunIsOver(
            f"{run_dir.run} is over: {run_dir.agent} is at its run {newest}", f"liza agents {run_dir.agent}"
        )
    return record


class LifecycleRequest(WorkerRequest, frozen=True, kw_only=True):
    """``session_id`` is the program's own id of its conversation. ``metadata`` of ``stopped``: ``exit_code``."""

    event: LifecycleEvent
    run_id: RunId
    timestamp: AwareDatetime
    session_id: Label | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class LifecycleAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``applied`` is false for a late or repeated event, which changes nothing; ``state`` is the state after it."""

    applied: bool
    state: str
    reason: str | None = None


def report_lifecycle(
    run_dir: RunDir, request: LifecycleRequest, now: datetime, source: TurnSource = TurnSource.API
) -> LifecycleAnswer:
    """Record the event unless it is late or repeated, and return the state of the run after it.

    Raises UnknownId, RunIsOver, FutureTime, UsageError for a wrong exit code or year, LizaError, OSError.
    """
    exit_code = _exit_code(request)
    require_current_run(run_dir)
    with _lock_turn(run_dir):
        before = run_dir.read_turn()
        reported = _reported_state(before)
        verdict = judge_event(reported, request.event, request.timestamp, now)
        if not verdict.applied:
            return LifecycleAnswer(applied=False, state=reported.state if reported else "", reason=verdict.reason)
        turn = Turn(
            time=request.timestamp.astimezone(UTC),
            phase=request.event,
            tools=before.tools if before else 0,
            session=request.session_id or (before.session if before else None),
            pushes=before.pushes if before else 0,
            source=source,
            exit_code=exit_code,
            turns=_count_turns(before, request.event),
        )
        _record(run_dir, turn, now, request.event if request.event in READY_EVENTS else None)
    if request.event in _WAKING_STATES:
        _wake_supervisor(run_dir)
    return LifecycleAnswer(applied=True, state=request.event)


def report_hook_event(
    run_dir: RunDir, event: ReceivedEvent, name: str, now: datetime, *, is_pushed: bool = False
) -> Turn | None:
    """Record an event of a program's hook, and return the turn after it; None if it is not of the run's conversation.

    ``name`` is that of the event in its program. ``is_pushed``: the reply makes the program continue. What a runtime
    reported outranks a hook: its phase stays. Raises LizaError, OSError.
    """
    with _lock_turn(run_dir):
        turn = hook_events.next_turn(run_dir.read_turn(), event, now, is_pushed=is_pushed)
        if turn is not None:
            _record(run_dir, turn, now, None if event.meaning is HookMeaning.STOPPED else name, TurnSource.HOOK)
    return turn


@contextmanager
def _lock_turn(run_dir: RunDir) -> Iterator[None]:
    """Hold the lock of the turn. Raises LockTimeout with the process that holds it, NotRegularFile, OSError."""
    path = run_dir.path / TURN_LOCK
    with ExitStack() as held:
        try:
            held.enter_context(lock_path(path, LOCK_LIMIT, 0o600, make_parents=False))
        except LockTimeout as error:
            raise _describe_holder(path, error) from error
        yield


def _describe_holder(path: Path, error: LockTimeout) -> LockTimeout:
    """Return the error with the process that holds the lock, and with the command that lets it go on."""
    pid = next(iter(locks.find_holders(path)), None)
    step = f"kill -CONT {pid}"  # of use if it is stopped
    return error if pid is None else LockTimeout(f"{error.message}, {pid}: {step}", step)


def _record(run_dir: RunDir, turn: Turn, now: datetime, event: str | None, by: TurnSource | None = None) -> None:
    """Write the turn, and before it the sentinel if ``event`` shows that the run is ready. The caller has the lock."""
    if event is not None and not (run_dir.path / "ready").exists():
        run_dir.mark_ready(now, READY_BY_REPORT.format(source=by or turn.source, event=event))
    run_dir.write_turn(turn)


def _wake_supervisor(run_dir: RunDir) -> None:
    """Wake the supervisor, which also finds the record at its next look."""
    with suppress(OSError):
        file_growth.wake_watchers(run_dir.paths, run_dir.agent)


def _reported_state(turn: Turn | None) -> ReportedState | None:
    """Return what a runtime reported last; None if only hooks did: their clock and their order are others."""
    state = parse_state(turn.phase) if turn is not None and turn.is_reported else None
    return ReportedState(state, turn.time) if turn is not None and state is not None else None


def _count_turns(before: Turn | None, event: LifecycleEvent) -> int:
    """Return how many turns are over after ``event``. A report of a later turn can follow within milliseconds."""
    if before is None:
        return 0
    return before.turns + (before.phase == LifecycleEvent.BUSY and event == LifecycleEvent.IDLE)


def _exit_code(request: LifecycleRequest) -> int | None:
    code = request.metadata.get("exit_code")
    if code is None:
        return None
    if not isinstance(code, int) or isinstance(code, bool) or not -(1 << 31) <= code < 1 << 31:
        raise UsageError(f"metadata.exit_code is {code!r}, expected a 32-bit integer")
    return code
