"""heartbeat: renew the lease of a run."""

from __future__ import annotations

from datetime import timedelta

from liza.crew.caller import identify_run
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import UsageError
from liza.rules.tasks import claims
from liza.rules.value_classes import replace

MAX_EXTENSION = 4 * 3600  # seconds


def heartbeat(crew: Crew, extend: int | None = None) -> Result:
    """Renew the lease for lease_duration, or for ``extend`` seconds before a long step. Raises NotOwner, UsageError."""
    if extend is not None and not 0 < extend <= MAX_EXTENSION:
        raise UsageError(
            f"--extend is {extend} s; it must be 1 s to {MAX_EXTENSION // 3600} h", "liza heartbeat --extend 15m"
        )
    caller = identify_run(crew)
    with crew.board.heartbeat(caller.run) as tx:
        state = claims.renew_lease(tx.state, caller.run, crew.clock.now())
        task = state.task(caller.task) if caller.task else None
        if extend is not None and task is not None and task.run == caller.run:
            state = state.with_task(replace(task, lease_expires=crew.clock.now() + timedelta(seconds=extend)))
        tx.state = state
    return Result("changed", caller.task, None, "go on")
