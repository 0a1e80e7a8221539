"""Repair what dead processes left: reservations, worktrees, reviews, merges, files.

Every supervisor starts with it, and `liza doctor --fix` runs it. Each step is idempotent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from liza.briefs import checkout_brief
from liza.crew.crew import Crew
from liza.crew.recorder import record_history
from liza.git import branch_moves, git_refs, integration_tip, leftovers, slots_directory
from liza.git.rules.note_commits import NOTES_REF
from liza.merging import statement_writer
from liza.merging.merge_recovery import recover_dead_merger
from liza.model.errors import LizaError, Refused, RemoteUnavailable
from liza.model.model import FINAL_STATUSES, Status, Task
from liza.model.paths import BOXES, TASK_LINKS, agent_of
from liza.programs.session import run_archive
from liza.recovery import run_cleanup
from liza.system import file_growth
from liza.system.locks import Lock
from liza.tasks import bound_claim, returned_work, shared_code, task_branches
from liza.tasks.claim import Repair, lock_task, release_orphan_slot, remove_orphan_links, undo_dead_reservations
from liza.text.formats import count_noun


def recover_crew(crew: Crew, by: str) -> tuple[Repair, ...]:
    """Run all repairs. Return what was repaired.

    Raises Missing if integration is gone, which every step needs, and LizaError for damage that can be neither repaired
    nor ignored.
    """
    with crew.change(by, "recover"):
        # Opening a transaction repairs what a crashed writer left behind. The board itself is not changed.
        pass
    if branch_moves.branch_tip(crew.git, crew.board.read().config.integration_branch) is None:
        # An unfinished merge may have recorded its commit.
        _recover_merges(crew, by)
        integration_tip.require_integration(crew.git, crew.board.read())
    if crew.moved_reason is None:
        error = slots_directory.foreign_error(crew.paths, slots_directory.find_common_dir(crew.paths.root))
        if error is not None:
            raise error
    _import_left_commits(crew, by)
    repairs = [
        *undo_dead_reservations(crew),
        *(
            Repair(f"{task}: the program in {path} ended without a hand-off; the crew goes on with its work")
            for task, path in bound_claim.leave_dead(crew)
        ),
        *repair_worktrees(crew, by),
        *_repair_reviews(crew, by),
        *_repair_review_refs(crew),
        *_recover_merges(crew, by),
        *_write_statements(crew),
        *_remove_leftovers(crew),
        *_push_saved(crew),
        *(
            Repair(f"{run}: its usage is in the ledger; its supervisor died")
            for run in run_cleanup.record_left_usage(crew, by)
        ),
        *_archive_runs(crew, by),
        *_remove_checkout_briefs(crew),
    ]
    record_history(crew, packed=True)
    # Processes that wait for this agent must be told. A full disk must not prevent the start.
    with suppress(OSError):
        file_growth.wake_watchers(crew.paths, by)
    return tuple(repairs)


def _import_left_commits(crew: Crew, by: str) -> None:
    """Import what sessions committed whose supervisor has died, and remove what killed imports left."""
    crew.worktrees.remove_incoming()
    for slot in crew.worktrees.recorded_slots():
        run = crew.worktrees.run_of_git(slot)
        if run is not None and (agent_of(run) == by or not crew.is_supervised_here(agent_of(run))):
            task_branches.try_import(crew, slot, run)


def repair_worktrees(crew: Crew, by: str) -> list[Repair]:
    """Recreate the worktrees of claimed tasks that have none.

    Tasks of an agent with another living supervisor are left to that supervisor.
    """
    repairs = []
    for candidate in _find_claims_to_repair(crew, by):
        with lock_task(crew, candidate.id) as locked_crew:
            # Read again: the claim may have changed while this process waited for the lock.
            task = None if locked_crew is None else locked_crew.board.read().task(candidate.id)
            if locked_crew is not None and task is not None and _needs_worktree(locked_crew, task, by):
                leftovers.remove_locks(locked_crew.paths, locked_crew.git)
                repairs.append(_recreate_worktree(locked_crew, task))
    return repairs


def claims_without_worktree(crew: Crew, by: str) -> list[Task]:
    """Return claimed tasks without a worktree that no process is working on now. Raises LizaError."""
    tasks = []
    for candidate in _find_claims_to_repair(crew, by):
        with lock_task(crew, candidate.id, patience=0) as locked_crew:
            task = None if locked_crew is None else locked_crew.board.read().task(candidate.id)
            if locked_crew is not None and task is not None and _needs_worktree(locked_crew, task, by):
                tasks.append(task)
    return tasks


def reviews_without_worktree(crew: Crew, by: str) -> list[Task]:
    """Return reviews whose commit is not checked out in the reviewer's worktree. Raises LizaError."""
    tasks, state = [], crew.board.read()
    for task in state.tasks:
        reviewer, run = task.reviewing_by, task.review_run
        if reviewer is None or run is None or reviewer == by or crew.is_supervised(reviewer):
            continue
        if reviewer in state.agents and state.agents[reviewer].host != crew.host:
            continue
        if task.review_commit and not crew.worktrees.is_finished(reviewer, reviewer, run):
            tasks.append(task)
    return tasks


def _find_claims_to_repair(crew: Crew, by: str) -> list[Task]:
    return [task for task in crew.board.read().tasks if _needs_worktree(crew, task, by)]


def _needs_worktree(crew: Crew, task: Task, by: str) -> bool:
    if task.status is not Status.CLAIMED or task.reservation is not None or not task.worktree or not task.run:
        return False
    if not crew.is_here(task):
        return False
    is_supervised = task.assigned_to not in (None, by) and crew.is_supervised(str(task.assigned_to))
    return not is_supervised and not _has_worktree(crew, task)


def _recreate_worktree(crew: Crew, task: Task) -> Repair:
    assert task.worktree is not None
    assert task.run is not None
    task_branches.worktrees_for(crew, task).prepare(task.worktree, task.id, task.run, salvage_as=task.run)
    crew.worktrees.finish(task.worktree, task.id, task.run)
    return Repair(f"{task.id}: its worktree {task.worktree} was created again")


def _repair_reviews(crew: Crew, by: str) -> list[Repair]:
    repairs = []
    for task in reviews_without_worktree(crew, by):
        reviewer, run = str(task.reviewing_by), str(task.review_run)
        shared_code.fetch_reviewed(crew, task)
        if crew.worktrees.detach_once(reviewer, shared_code.choose_review_checkout(crew, task), run):
            repairs.append(Repair(f"{task.id}: its commit was checked out for the review {run}"))
    return repairs


def _remove_leftovers(crew: Crew) -> list[Repair]:
    """Remove or repair what no agent owns: slots and links of closed tasks, half-made slots, stale locks and files."""
    lines = [
        f"a link was in the place of the worktree {slot}; removed, not followed" for slot in _remove_slot_links(crew)
    ]
    lines += [
        f"the records of the worktree {slot} were missing or corrupt; they were recreated"
        for slot in _repair_slots(crew)
    ]
    released = [(slot, release_orphan_slot(crew, slot)) for slot in crew.worktrees.recorded_slots()]
    lines += [f"{task} does not need {slot} any more: saved and released" for slot, task in released if task]
    lines += [f"the link {link} pointed to another task's worktree; removed" for link in remove_orphan_links(crew)]
    lines += [
        f"the half-made worktree {slot} was removed" for slot in leftovers.remove_half_made_slots(crew.paths, crew.git)
    ]
    lines += [f"{lock} was left by a killed git; removed" for lock in leftovers.remove_locks(crew.paths, crew.git)]
    leftovers.remove_temporary_files(crew.paths, crew.git)
    return [Repair(line) for line in lines]


def _archive_runs(crew: Crew, by: str) -> Iterator[Repair]:
    """Archive old run directories of this agent and of agents without a supervisor."""
    for agent in crew.board.read().agents:
        if agent != by and crew.is_supervised_here(agent):
            continue
        # A full disk or a foreign file must not stop the recovery.
        with suppress(LizaError, OSError):
            archived = run_cleanup.archive_old_runs(crew, agent)
            if archived:
                archive = run_archive.archive_path(crew.paths, archived[0]).parent
                yield Repair(f"{agent}: {len(archived)} old run directories went to {archive}")


def _remove_checkout_briefs(crew: Crew) -> Iterator[Repair]:
    """Remove from the person's checkout what a killed ``liza run`` left there."""
    # An unwritable file of the person must not stop the recovery of the crew.
    with suppress(LizaError, OSError):
        for name in checkout_brief.remove_abandoned(crew):
            yield Repair(f"the context of {name}, which has ended, was removed from your checkout")


def _remove_slot_links(crew: Crew) -> list[str]:
    """Remove links in the place of slots, except slots of open tasks. The next user of such a slot creates it again."""
    of_tasks = {task.worktree for task in crew.board.read().tasks if task.status not in FINAL_STATUSES}
    names = [
        name for name in crew.worktrees.recorded_slots() if crew.paths.slot(name).is_symlink() and name not in of_tasks
    ]
    return [name for name in names if leftovers.clear_slot_path(crew.paths.slot(name))]


def _repair_slots(crew: Crew) -> list[str]:
    """Repair damaged slots that no agent has used since, so that their content can be saved."""
    directory = crew.paths.slots
    existing = (
        {path.name for path in directory.iterdir() if path.is_dir() and not path.is_symlink()}
        if directory.is_dir()
        else set()
    )
    existing = {name for name in existing if name not in (TASK_LINKS, BOXES)}
    names = sorted({*existing, *crew.worktrees.recorded_slots()})
    tip = integration_tip.require_integration(crew.git, crew.board.read())
    return [name for name in names if crew.worktrees.repair(name, tip)]


def _has_worktree(crew: Crew, task: Task) -> bool:
    assert task.worktree is not None
    slot = crew.paths.slot(task.worktree)
    if not slot.is_dir() or not crew.paths.task_link(task.id).is_symlink():
        return False
    try:
        return crew.worktrees.is_finished(task.worktree, task.id, task.run or "")
    except LizaError:
        return False


def _repair_review_refs(crew: Crew) -> list[Repair]:
    """Create missing review refs of open tasks, and delete those of closed tasks."""
    review_refs, repairs = git_refs.list_reviewed(crew.git), []
    for task in crew.board.read().tasks:
        commit = None if task.status in FINAL_STATUSES else task.review_commit
        if task.id in review_refs and task.status in FINAL_STATUSES:
            git_refs.delete_review_ref(crew.git, task.id)
        elif commit and review_refs.get(task.id) != commit and git_refs.has_commit(crew.git, commit):
            git_refs.write_review_ref(crew.git, task.id, commit)
            repairs.append(Repair(f"{task.id}: its commit {commit[:12]} is kept for the review by a ref"))
    return repairs


def _push_saved(crew: Crew) -> list[Repair]:
    """Push the work of replaced runs that could not be pushed when it was saved."""
    try:
        return [Repair(f"{ref} was pushed: work of a run that was replaced") for ref in returned_work.push_saved(crew)]
    except (RemoteUnavailable, Refused) as error:
        return [Repair(f"work of a run that was replaced is not pushed yet: {error.message}")]


def is_merge_unfinished(task: Task) -> bool:
    """Return whether a merge was begun and its candidate is not recorded as tested. A tested candidate is merged by the
    next merge.
    """
    return task.merging is not None and task.merging.tested is None and not task.merging.waiting


def _write_statements(crew: Crew) -> list[Repair]:
    """Write what a killed merger, or a key that was locked, left unwritten about landed commits."""
    count = statement_writer.complete_quietly(crew)
    return [Repair(f"{count_noun(count, 'landed commit')} had no statement; written to {NOTES_REF}")] if count else []


def _recover_merges(crew: Crew, by: str) -> list[Repair]:
    open_merges = [task.id for task in crew.board.read().tasks if is_merge_unfinished(task)]
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return []
    try:
        recover_dead_merger(crew.with_lock(lock), by)
    except Refused as error:
        # A person's git is running in the checkout that must be repaired: the next merge repairs it.
        return [Repair(error.message)]
    finally:
        lock.release()
    return [Repair(f"{task}: its merger died; recovered from the state of integration") for task in open_merges]
