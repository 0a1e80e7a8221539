"""Settling what a merger left that died: published, offered again, or tested anew."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.merging import merge_outcomes
from liza.crew.project import commands
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import GitFailed
from liza.rules.merging import merge_rules
from liza.rules.merging.merge_rules import MergeFailure, MergeFailureKind
from liza.rules.model import FINAL_STATUSES, MergeInProgress, State, Status, Task


def recover_dead_merger(crew: Crew, by: str) -> None:
    """Settle every merge that was begun and not ended.

    A candidate in integration is merged only if its green result was recorded, on the board and as a ref, before the
    branch moved. Otherwise integration goes back, and the task is tested again. The merge lock is held by the caller,
    and ``crew`` by ``holding``: whoever began those merges is gone, and so are its gits. Raises Refused, GitFailed.
    """
    commands.kill_orphan_commands(crew.paths.root)
    branch = crew.board.read().config.integration_branch
    merges.recover_merges(crew.git, branch)
    _restore_integration(crew)
    state = crew.board.read()
    for task in state.tasks:
        if task.merging is not None:
            _recover_merge(crew, by, task, task.merging)
    _delete_unused_candidates(crew, by)


def _restore_integration(crew: Crew) -> None:
    """Have integration again where the tests of a merge under way deleted it, before they ended their merger.

    Raises Missing where it is gone for another reason.
    """
    state = crew.board.read()
    if merges.branch_tip(crew.git, state.config.integration_branch) is None:
        begun = {
            task.merging.expected
            for task in state.tasks
            if task.merging and _is_genuine_candidate(crew, state, task, task.merging)
        }
        if len(begun) == 1 and drift.is_last_tip(crew, *begun):
            crew.append_alert_log(
                [f"integration_deleted  {merge_outcomes.restore_integration(crew, *begun)}. Next: liza status"]
            )
    drift.require_integration(crew, state)


def _recover_merge(crew: Crew, by: str, task: Task, made: MergeInProgress) -> None:
    state = crew.board.read()
    branch = state.config.integration_branch
    ours = _is_genuine_candidate(crew, state, task, made)
    if ours and _is_recorded_tested(crew, task, made):
        if merges.contains(crew.git, branch, made.candidate):
            merge_outcomes.finish_merge(crew, by, task, made)
        return
    if ours and not made.waiting:
        told = merge_outcomes.undo_untested_move(crew, task, made)
        words = f"its merger died before the tests of {made.candidate[:10]} had passed" + (f"; {told}" if told else "")
        merge_outcomes.record_failure(crew, by, task, MergeFailure(MergeFailureKind.DIED, words))
    with crew.change(merge_outcomes.merge_actor(by), "candidate dropped", task.id) as tx:
        tx.state = merge_rules.drop_candidate(tx.state, task.id)


def _is_genuine_candidate(crew: Crew, state: State, task: Task, made: MergeInProgress) -> bool:
    """Whether the candidate is what was approved, merged, and nothing else: everybody can write onto the board."""
    if task.status is not Status.APPROVED or merge_rules.merge_obstacle(state, task) or task.review_commit is None:
        return False
    try:
        return merges.is_merge_of(crew.git, made.candidate, made.expected, task.review_commit)
    except GitFailed:
        # A commit of the three is gone: whatever was begun is begun again, and fails for its own reason.
        return False


def _is_recorded_tested(crew: Crew, task: Task, made: MergeInProgress) -> bool:
    """Whether the candidate was recorded as fit to be published: neither the board nor a ref alone says so."""
    return made.tested is not None and merge_refs.list_tested(crew.git).get(task.id) == made.candidate


def _delete_unused_candidates(crew: Crew, by: str) -> None:
    """The candidates that nothing waits for: their ref is what a merger takes away last."""
    state = crew.board.read()
    for name in merges.list_candidates(crew.git):
        task = state.task(name)
        if task is not None and task.merging is not None:
            continue
        if task is not None and task.status is Status.MERGED:
            for slot in crew.worktrees.slot_names():
                owner = crew.worktrees.owner(slot)
                if owner is not None and owner[0] == name:
                    crew.worktrees.release(slot, name, task.run or by)
        merges.delete_candidate(crew.git, name, closed=task is None or task.status in FINAL_STATUSES)
