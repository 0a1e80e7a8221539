"""heartbeat: a run is alive; its lease is extended."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from liza.crew.caller import identify_run
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import UsageError
from liza.rules.tasks import claims

MAX_EXTENSION = 4 * 3600


def heartbeat(crew: Crew, extend: int | None = None) -> Result:
    """Extend the lease by a lease_duration, or by ``extend`` seconds before a long step. Raises NotYours, Usage."""
    if extend is not None and not 0 < extend <= MAX_EXTENSION:
        raise UsageError(
            f"a lease can be extended by 1 second to {MAX_EXTENSION // 3600} hours", "liza heartbeat --extend 15m"
        )
    caller = identify_run(crew)
    with crew.board.heartbeat(caller.run) as tx:
        state = claims.renew_lease(tx.state, caller.run, crew.clock.now())
        task = state.task(caller.task) if caller.task else None
        if extend is not None and task is not None and task.run == caller.run:
            state = state.with_task(replace(task, lease_expires=crew.clock.now() + timedelta(seconds=extend)))
        tx.state = state
    return Result("changed", caller.task, None, "go on")
