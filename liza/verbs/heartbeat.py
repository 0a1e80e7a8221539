"""heartbeat: a run is alive; its lease is extended."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from liza.crew.caller import run_caller
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import Usage
from liza.rules.tasks import claims

LONGEST = 4 * 3600


def heartbeat(crew: Crew, extend: int | None = None) -> Result:
    """Extend the lease by a lease_duration, or by ``extend`` seconds before a long step. Raises NotYours, Usage."""
    if extend is not None and not 0 < extend <= LONGEST:
        raise Usage(f"a lease can be extended by 1 second to {LONGEST // 3600} hours", "liza heartbeat --extend 15m")
    caller = run_caller(crew)
    with crew.board.renewal(caller.run) as tx:
        state = claims.renew(tx.state, caller.run, crew.clock.now())
        task = state.task(caller.task) if caller.task else None
        if extend is not None and task is not None and task.run == caller.run:
            state = state.with_task(replace(task, lease_expires=crew.clock.now() + timedelta(seconds=extend)))
        tx.state = state
    return Result("changed", caller.task, None, "go on")
