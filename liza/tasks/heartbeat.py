"""heartbeat: renew the lease of a run, or extend it before a long step."""

from __future__ import annotations

from typing import Annotated

import msgspec

from liza.crew.caller import identify_run
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.errors import UsageError
from liza.model.request_types import WorkerRequest
from liza.tasks.rules import claims


class HeartbeatRequest(WorkerRequest, frozen=True, kw_only=True):
    """Renew the lease of the run. ``extend_seconds``: extend it for a long step, which needs a ``reason``."""

    extend_seconds: Annotated[int, msgspec.Meta(ge=1, le=claims.MAX_EXTENSION)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=claims.MAX_REASON)] = ""


def heartbeat(crew: Crew, request: HeartbeatRequest) -> Result:
    """Renew the lease for lease_duration, or extend it and record why.

    Raises NotOwner, UsageError, Refused.
    """
    if request.extend_seconds is not None:
        return _extend(crew, claims.Extension(request.extend_seconds, request.reason))
    if request.reason.strip():
        raise UsageError("--reason is for an extension: --extend TIME is missing", claims.EXTENSION_EXAMPLE)
    caller = identify_run(crew)
    with crew.board.heartbeat(caller.run) as tx:
        tx.state = claims.renew_lease(tx.state, caller.run, crew.clock.now())
    return Result("changed", caller.task, None, "go on")


def _extend(crew: Crew, extension: claims.Extension) -> Result:
    extension.check()
    caller = identify_run(crew)
    # A revision, unlike a heartbeat: the history of the task gets a line.
    with crew.change(caller.run, "extend lease", caller.task) as tx:
        tx.state = claims.extend_lease(tx.state, caller.run, extension, crew.clock.now())
    return make_result(tx.before, tx.state, caller.task, "go on")
