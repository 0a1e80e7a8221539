"""End sessions without a supervisor, once their lease has expired for long enough."""

from __future__ import annotations

from datetime import timedelta

from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.session import session_process
from liza.rules.model import State, Status
from liza.rules.sessions.session_ends import StopReason


def end_orphan_sessions(crew: Crew, state: State, taker: str) -> tuple[str, ...]:
    """End sessions without a supervisor whose lease expired at least ``hung_after`` ago. Return what was done.

    Until then a supervisor may still adopt the session.
    """
    limit = crew.clock.now() - timedelta(seconds=state.config.hung_after)
    ended = []
    for task in state.tasks:
        has_expired = task.lease_expires is not None and task.lease_expires < limit
        if (
            task.status is not Status.CLAIMED
            or task.run is None
            or task.assigned_to in (None, taker)
            or not has_expired
        ):
            continue
        directory = crew.run_dir(task.run)
        if crew.is_supervised(str(task.assigned_to)) or run_state.is_session_over(directory):
            continue
        directory.write_stop(crew.clock.now(), StopReason.ORPHANED)
        session_process.stop(directory.path, task.run, crew.paths.root, grace=float(state.config.grace))
        ended.append(f"{task.id}: the session {task.run} had no supervisor and was ended by {taker}")
    return tuple(ended)
