"""push: push the branches of tasks to origin, as a backup."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.landing import accepted_origin, branch_backup
from liza.model.errors import Refused
from liza.system.locks import Lock
from liza.tasks.rules import claims
from liza.text.counts import count_noun

LOCK_TIMEOUT = 5.0  # seconds to wait for another push


def push_tasks(crew: Crew, tasks: Sequence[str] = (), origin: str | None = None) -> Result:
    """Push the branches of these tasks, by default of all that have commits which were not pushed.

    ``origin``: the URL of origin that the person accepts; None: the one that was accepted. No branch is overwritten
    that others pushed. Raises Refused if any branch could not be pushed, LockTimeout while another push runs,
    UsageError, UnknownId, Missing, GitFailed.
    """
    require_person(crew, planner=False)
    if origin is not None:
        accepted_origin.accept_origin(crew, origin)
    state = crew.board.read()
    chosen = tuple(claims.get_task(state, task).id for task in tasks)
    with Lock(crew.paths.push_lock).acquire(LOCK_TIMEOUT):
        chosen = chosen or branch_backup.find_unpushed_tasks(crew, state)
        if not chosen:
            message = "no branch of an open task has commits that are not at origin"
            return Result("unchanged", None, None, "liza status", {"pushed": []}, message)
        outcome = branch_backup.push_tasks(crew, chosen)
    if outcome.failed:
        error = next(iter(outcome.failed.values()))
        others = f" (and {len(outcome.failed) - 1} more)" if len(outcome.failed) > 1 else ""
        raise Refused(f"{error.message}{others}", error.hint)
    details = {"pushed": list(outcome.saved), "remote": outcome.address}
    message = f"{count_noun(len(outcome.saved), 'branch', 'branches')} at {outcome.address}: {', '.join(outcome.saved)}"
    return Result("changed", None, None, "liza status", details, message)
