"""Recover merges whose merger died: complete those that were tested, undo the others."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git import branch_moves, candidates, git_refs, integration_tip
from liza.git.runner import Git
from liza.merging import epics, merge_outcomes, publication, remaking, undo_recovery
from liza.merging.rules import merge_queue, merge_rules
from liza.merging.rules.merge_queue import Batch
from liza.merging.rules.merge_rules import MergeFailure, MergeFailureKind
from liza.model import targets
from liza.model.errors import GitFailed
from liza.model.model import FINAL_STATUSES, MergeInProgress, State, Status, Task
from liza.project import commands
from liza.system.locks import Lock


def recover_if_dead(crew: Crew, by: str, task_id: str) -> None:
    """Recover the merge of a task if its merger has died: a person need not wait for a merge that no process continues.

    Does nothing while a merger runs. Raises Refused, GitFailed.
    """
    task = crew.board.read().task(task_id)
    if task is None or task.merging is None or task.merging.waiting:
        return
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        return
    try:
        recover_dead_merger(crew.with_lock(lock), by)
    finally:
        lock.release()


def recover_dead_merger(crew: Crew, by: str) -> None:
    """Recover every merge that was begun and not ended.

    A candidate in integration counts as merged only if its passed tests were recorded, on the board and as a ref,
    before the branch moved. Otherwise integration goes back and the task is tested again. The caller holds the merge
    lock (``crew`` comes from ``with_lock``), so those mergers and their gits have ended. Raises Refused, GitFailed.
    """
    commands.kill_orphan_commands(crew.paths.root)
    state = crew.board.read()
    candidates = branch_moves.recover_merges(crew.git, targets.target_branches(state))
    _restore_integration(crew)
    for batch in merge_queue.find_batches(crew.board.read()):
        try:
            _recover_batch(crew, by, batch)
        except Exception as error:
            # Nothing may be merged onto a candidate that no test has passed.
            if _is_untested_published(crew, batch) or not merge_outcomes.record_errors(crew, by, batch.tasks, error):
                raise
    if state.epics:
        epics.recover_epics(crew, by)
    undo_recovery.recover_undos(crew, by)
    if candidates:
        _delete_unused_candidates(crew, by)


def _restore_integration(crew: Crew) -> None:
    """Restore integration if the tests of an unfinished merge deleted it.

    Raises Missing if it is gone for another reason.
    """
    state = crew.board.read()
    branch = state.config.integration_branch
    if branch_moves.branch_tip(crew.git, branch) is not None:
        return
    expected_tips = {
        batch.expected
        for batch in merge_queue.find_batches(state)
        if batch.branch == branch and _is_genuine(crew.git, state, batch)
    }
    if len(expected_tips) == 1 and integration_tip.is_last_tip(crew.git, *expected_tips):
        restored = merge_outcomes.restore_branch(crew.git, branch, *expected_tips)
        crew.append_alert_log([f"integration_deleted  {restored}. Next: liza status"])
    integration_tip.require_integration(crew.git, state)


def _recover_batch(crew: Crew, by: str, batch: Batch) -> None:
    state = crew.board.read()
    is_waiting = any(member.merging.waiting for member in batch.members)
    is_genuine = _is_genuine(crew.git, state, batch)
    if is_genuine and _is_recorded_tested(crew, batch):
        if _has_branch(crew.git, batch) and branch_moves.contains(crew.git, batch.branch, batch.tip):
            merge_outcomes.finish_batch(crew, by, batch)
        return
    if is_genuine and not is_waiting and _has_branch(crew.git, batch):
        outcome = merge_outcomes.undo_untested_move(crew, batch)
        message = f"its merger died before the tests of {batch.tip[:10]} had passed" + (
            f"; {outcome}" if outcome else ""
        )
        for task in batch.tasks:
            merge_outcomes.record_failure(crew, by, task, MergeFailure(MergeFailureKind.DIED, message))
    with crew.change(merge_outcomes.merge_actor(by), "candidate dropped", batch.ids[0]) as tx:
        tx.state = merge_queue.drop_candidates(tx.state, batch.ids)


def _is_untested_published(crew: Crew, batch: Batch) -> bool:
    """Return whether the branch has a candidate of a batch that is not recorded as tested."""
    return (
        _has_branch(crew.git, batch)
        and not _is_recorded_tested(crew, batch)
        and branch_moves.contains(crew.git, batch.branch, batch.members[0].merging.candidate)
    )


def _has_branch(git: Git, batch: Batch) -> bool:
    """Return whether the branch of the batch exists. A branch of an epic may have been deleted by hand."""
    return branch_moves.branch_tip(git, batch.branch) is not None


def _is_genuine(git: Git, state: State, batch: Batch) -> bool:
    """Return whether each candidate of the batch is genuine. A tip that is not its last candidate is forged."""
    return batch.members[-1].merging.candidate == batch.tip and all(
        _is_genuine_candidate(git, state, member.task, member.merging) for member in batch.members
    )


def _is_genuine_candidate(git: Git, state: State, task: Task, merging: MergeInProgress) -> bool:
    """Return whether the candidate is exactly the merge of the approved commit: agents can write to the board."""
    if task.status is not Status.APPROVED or merge_rules.merge_obstacle(state, task) or task.review_commit is None:
        return False
    try:
        makes = remaking.is_generated(state.config)
        return candidates.is_merge_of(git, merging.candidate, merging.expected, task.review_commit, makes)
    except GitFailed:
        # One of the three commits is missing: the merge is repeated and fails with its own error.
        return False


def _is_recorded_tested(crew: Crew, batch: Batch) -> bool:
    """Return whether the batch is recorded as tested. Board and refs must agree: agents can write each.

    The refs are of the host that tested it. For other hosts the publication counts, which no agent can write.
    """
    if any(member.merging.tested is None for member in batch.members):
        return False
    refs = git_refs.list_tested(crew.git)
    is_here = all(refs.get(task_id) == batch.tip for task_id in batch.ids)
    return is_here or publication.is_published(crew, batch.branch, batch.tip)


def _delete_unused_candidates(crew: Crew, by: str) -> None:
    """Delete candidates that no merge needs. A merger deletes this ref last."""
    state = crew.board.read()
    for name in candidates.list_candidates(crew.git):
        task = state.task(name)
        if task is not None and task.merging is not None:
            continue
        if task is not None and task.status is Status.MERGED:
            _release_slots(crew, by, task)
        candidates.delete_candidate(crew.git, name, closed=task is None or task.status in FINAL_STATUSES)


def _release_slots(crew: Crew, by: str, task: Task) -> None:
    """Release the worktrees of a merged task. A failure is reported, and stops no other merge."""
    try:
        for slot in crew.worktrees.slot_names():
            owner = crew.worktrees.owner(slot)
            if owner is not None and owner[0] == task.id:
                crew.worktrees.release(slot, task.id, task.run or by)
    except Exception as error:
        if not merge_outcomes.is_task_error(crew, error):
            raise
        merge_outcomes.report_after_merge(crew, task.id, error)
