"""Save what a replaced run left on a host that was cut off: the other hosts get it from the remote.

Another run has the task by then, so nothing of this is restored by itself: a person or an agent takes it from the ref.
"""

from __future__ import annotations

from contextlib import suppress

from liza.crew.crew import Crew
from liza.git import git_refs, salvage
from liza.git.salvage import SALVAGE_PREFIX
from liza.git.shared_remote import FETCHED_PREFIX, SharedRemote
from liza.model import targets
from liza.model.errors import LizaError, RemoteUnavailable
from liza.model.history_events import HistoryEvent
from liza.model.paths import branch_of
from liza.model.transitions import Invocation, add_event
from liza.tasks import shared_code

_UNSENT = "refs/liza/unsent/"
"""Prefix of the salvages that the remote has to get, with a task and a name for each."""


def save_if_replaced(crew: Crew, slot: str, run: str) -> tuple[str, ...]:
    """Save what a run left in its slot, and push it to the remote, if another run has its task.

    Nothing is done on a crew on one host, and for what the remote has already. Return the refs of the remote. Raises
    RemoteUnavailable: then the refs of this clone have it, and the next supervisor pushes them; GitFailed.
    """
    remote = shared_code.find_remote(crew)
    if remote is None or not crew.worktrees.exists(slot):
        return ()
    owner = crew.worktrees.owner(slot)
    if owner is None or owner[1] != run or owner[0] == slot:
        return ()
    task = crew.board.read().task(owner[0])
    if task is not None and task.run in (None, run):
        return ()  # without an owner, the next claim here restores what is unfinished
    refs = _save(crew, remote, slot, owner)
    # Until the push succeeded a second ref says that it is due.
    lines = (f"update {_UNSENT}{ref.removeprefix(SALVAGE_PREFIX)} {ref}\n" for ref in refs)
    crew.git.out("update-ref", "--stdin", stdin="".join(lines))
    push_saved(crew)
    return refs


def _save(crew: Crew, remote: SharedRemote, slot: str, owner: tuple[str, str]) -> tuple[str, ...]:
    """Save the content of a slot unless the remote has it. Return the refs of all that was saved of the run."""
    task_id, run = owner
    state = crew.board.read()
    task = state.task(task_id)
    target = state.config.integration_branch if task is None else targets.target_branch(state, task)
    with suppress(RemoteUnavailable):
        remote.fetch(branch_of(task_id), target, state.config.integration_branch)
    kept = [FETCHED_PREFIX + branch for branch in (branch_of(task_id), target) if remote.fetched(branch) is not None]
    with crew.worktrees.lock_slot(slot):
        crew.worktrees.salvage(slot, task_id, run, tuple(kept))
    unrestored = salvage.find_unrestored(crew.git, task_id)
    if unrestored is not None:
        salvage.mark_restored(crew.git, task_id, unrestored)
    names = git_refs.refs_below(crew.git, f"{SALVAGE_PREFIX}{task_id}/")
    return tuple(salvage.salvage_ref(task_id, name) for name in names if _is_of_run(name, run))


def _is_of_run(name: str, run: str) -> bool:
    return name == run or name.startswith((f"{run}+", f"{run}-"))


def _record(crew: Crew, remote: SharedRemote, owner: tuple[str, str], ref: str) -> None:
    """Write to the history of the task where the work is."""
    task_id, run = owner
    where = f"{ref} of {remote.name}"
    with crew.change(run.rpartition(".")[0], HistoryEvent.SAVED, task_id) as tx:
        task = tx.state.task(task_id)
        if task is not None:
            invocation = Invocation(now=crew.clock.now(), by=run.rpartition(".")[0], run=run, detail=where)
            tx.state = tx.state.with_task(add_event(task, HistoryEvent.SAVED, invocation))
    crew.append_alert_log(
        [f"work_saved  {run} lost {task_id}; its work is at {where}. Next: git fetch {remote.name} {ref}"]
    )


def try_save(crew: Crew, slot: str, run: str) -> None:
    """Save as ``save_if_replaced`` does; a failure is in the alert log."""
    if not crew.remote_name:
        return
    try:
        save_if_replaced(crew, slot, run)
    except (LizaError, OSError) as error:
        message = error.message if isinstance(error, LizaError) else str(error)
        hint = getattr(error, "hint", "") or "liza doctor --fix"
        crew.append_alert_log([f"work_saved  what {run} left is saved here, and not pushed: {message}. Next: {hint}"])


def push_saved(crew: Crew) -> tuple[str, ...]:
    """Push what was saved and could not be pushed before; nothing on a crew on one host. Return the refs.

    Raises RemoteUnavailable, Missing, Refused, GitFailed.
    """
    unsent = git_refs.refs_below(crew.git, _UNSENT) if crew.remote_name else {}
    remote = shared_code.find_remote(crew) if unsent else None
    if remote is None:
        return ()
    refs = tuple(SALVAGE_PREFIX + name for name in unsent)
    remote.push_refs(refs)
    for name in unsent:
        task_id, _, run = name.partition("/")
        _record(crew, remote, (task_id, run.partition("+")[0].removesuffix(salvage.REFS_SUFFIX)), SALVAGE_PREFIX + name)
        crew.git.out("update-ref", "-d", _UNSENT + name)
    return refs
