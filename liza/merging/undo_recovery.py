"""The record of an undo: finish it once the branch has the revert, or remove what a killed one left.

The order is that of a merge: the tested ref, the record on the board, the branch, the last tip, the status. So a killed
undo is complete after its branch has moved, and has not happened before that.
"""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git import branch_moves, candidates, git_refs, integration_tip
from liza.merging import merge_outcomes, publication, remaking
from liza.merging.rules import undo_rules
from liza.model import targets
from liza.model.errors import GitFailed
from liza.model.model import State, Task
from liza.system import crash_points


def candidate_name(task_id: str) -> str:
    """Return the name of the revert of a task in refs and logs. Ids of tasks have no dots."""
    return f"undo.{task_id}"


def finish_undo(crew: Crew, by: str, task: Task) -> tuple[State, State]:
    """Record that the branch has the revert, and clean up. Can be repeated. Return the board before and after.

    Raises LizaError.
    """
    assert task.undo is not None
    state = crew.board.read()
    branch, commit = targets.work_branch(state, task), task.undo.commit
    if branch == state.config.integration_branch:
        integration_tip.record_last_tip(crew.git, commit)
    else:
        merge_outcomes.record_last_tip(crew.git, branch, commit)
    crash_points.point("undo", "tip")
    with crew.change(merge_outcomes.merge_actor(by), "undo", task.id) as tx:
        tx.state = undo_rules.record_undone(tx.state, task.id, crew.clock.now())
    crash_points.point("undo", "recorded")
    candidates.delete_candidate(crew.git, candidate_name(task.id))
    return tx.before, tx.state


def recover_undos(crew: Crew, by: str) -> None:
    """Complete the undos whose revert is on its branch, and remove the records of all others.

    The caller holds the merge lock. Raises LizaError.
    """
    state = crew.board.read()
    for task in undo_rules.find_unfinished(state):
        if _is_published(crew, state, task):
            finish_undo(crew, by, task)
            continue
        with crew.change(merge_outcomes.merge_actor(by), "undo dropped", task.id) as tx:
            tx.state = undo_rules.drop_undo(tx.state, task.id)
        candidates.delete_candidate(crew.git, candidate_name(task.id))


def _is_published(crew: Crew, state: State, task: Task) -> bool:
    """Return whether the branch has the tested revert of the task. Board and ref must agree: agents can write each."""
    assert task.undo is not None
    git, commit, branch = crew.git, task.undo.commit, targets.work_branch(state, task)
    is_tested_here = git_refs.list_tested(git).get(candidate_name(task.id)) == commit
    is_recorded = is_tested_here or publication.is_published(crew, branch, commit)
    if not is_recorded or branch_moves.branch_tip(git, branch) is None:
        return False
    try:
        makes = remaking.is_generated(state.config)
        is_revert = candidates.is_revert_of(git, commit, task.merge_commit or "", makes)
        return is_revert and branch_moves.contains(git, branch, commit)
    except GitFailed:
        return False  # one of the commits is missing
