"""undo: take back what a merged task brought to its branch, by a revert that passes the gates. Only people call this.

The revert is computed like a merge, without a checkout: the tip, and the tree before the task's merge, with that merge
as the common ancestor. So a batch, an epic and a later change of the same files need no rules of their own.
"""

from __future__ import annotations

import shlex
from contextlib import suppress

from liza.board.rules import archiving
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import branch_moves, candidates, git_refs, integration_tip
from liza.git.checkout_moves import MoveOutcome
from liza.git.runner import Git
from liza.merging import (
    batches,
    drift,
    merge_outcomes,
    persons_candidate,
    proof_runner,
    publication,
    statement_writer,
    undo_recovery,
)
from liza.merging.merge_lock import hold_merge_lock
from liza.merging.merge_recovery import recover_dead_merger
from liza.merging.persons_candidate import PersonsCandidate
from liza.merging.remaking import Remaking
from liza.merging.rules import merge_rules, undo_rules
from liza.merging.rules.undo_rules import Dependents
from liza.model import targets
from liza.model.errors import MergeConflict, Refused
from liza.model.history_events import describe_undo
from liza.model.model import MergeInProgress, State, Task, Undo
from liza.model.paths import branch_of, check_task_id
from liza.model.value_classes import Value, replace
from liza.system import crash_points
from liza.tasks import archive
from liza.tasks.rules import claims
from liza.text.undecoded import list_names

_MAX_TITLE = 72  # characters


class _Request(Value):
    """What a person asked for: to undo ``task``, whose work ``branch`` has. ``command`` is what was typed."""

    task: Task
    branch: str
    by: str
    because: str
    untested: bool
    command: str

    @property
    def name(self) -> str:
        """Name of the candidate in refs and logs."""
        return undo_recovery.candidate_name(self.task.id)

    @property
    def merge(self) -> str:
        """The merge commit of the task."""
        return str(self.task.merge_commit)


def undo(crew: Crew, task_id: str, because: str = "", *, untested: bool = False) -> Result:
    """Revert the merge of a task on the branch that has it, if the gates pass without it. The task is ABANDONED then.

    ``untested``: also if the gates say nothing about the commit. Raises UnknownId, UsageError; Refused if the task is
    not merged, if merged tasks build on it, if it has landed, or if a gate is red; MergeConflict, GitFailed: then the
    branch is unchanged.
    """
    by, why = require_person(crew, planner=False), " ".join(because.split())
    words = ["liza", "undo", check_task_id(task_id), *(["--because", why] if why else [])]
    command = shlex.join([*words, *(["--untested"] if untested else [])])
    # A task that is not merged is refused also while a merge runs.
    state, task = _read_task(crew, task_id)
    if task.undo is None:
        undo_rules.require_merged(task)
    with hold_merge_lock(crew) as merging_crew:
        locked = publication.begin(merging_crew)
        recover_dead_merger(locked, by)
        state, task = _read_task(locked, task_id)
        if undo_rules.is_undone(task):
            message = f"{task_id} is {describe_undo(task)}"
            return Result("unchanged", task_id, task.status.value, f"liza task show {task_id}", {}, message)
        undo_rules.require_merged(task)
        request = _Request(task, targets.work_branch(state, task), by, why, untested, command)
        dependents = undo_rules.find_dependents((*state.tasks, *archive.iter_archived(locked.board, state)), task_id)
        undo_rules.refuse_dependents(task_id, dependents)
        _refuse_unless_own_merge(locked, state, request)
        _refuse_landed(locked.git, state, request)
        result = _revert(locked, request, dependents)
    statement_writer.complete_quietly(crew)
    return result


def _read_task(crew: Crew, task_id: str) -> tuple[State, Task]:
    """Return the board, and the task of the board or of the archive."""
    state = crew.board.read()
    return state, claims.get_task(archive.with_archived(crew.board, state, task_id), task_id)


def _refuse_unless_own_merge(crew: Crew, state: State, request: _Request) -> None:
    """Raise Refused if the merge commit on the board is not on the branch, or has more than the work of the task."""
    git, task, branch = crew.git, request.task, request.branch
    integration = state.config.integration_branch
    tip = integration_tip.require_integration(git, state)
    moved = drift.find_integration_drift(crew) if branch == integration else None
    if moved is not None:
        raise Refused(moved.message, drift.recovery_commands(git, moved, request.command))
    if not git_refs.is_contained(git, request.merge, merge_outcomes.require_tip(crew, branch)):
        raise Refused(f"{branch} does not have {request.merge[:10]}, the merge of {task.id}", "liza doctor")
    if git.find_commit(f"{request.merge}^2") != task.review_commit:
        message = f"{request.merge[:10]} is not the merge of the commit of {task.id} that was approved"
        raise Refused(message, f"liza history {task.id} --all")
    if task.epic is not None:
        brought = git.lines("rev-list", f"{request.merge}^2", f"^{request.merge}^1")
        chain = git.lines("rev-list", "--first-parent", tip, f"^{request.merge}^1")
        if not set(brought).isdisjoint(chain):
            message = f"{task.id} also merged {integration} into its epic: a revert would take back what others brought"
            raise Refused(message, f"liza diff {task.id}")


def _refuse_landed(git: Git, state: State, request: _Request) -> None:
    """Raise Refused if a branch of the person has the work already: it is theirs to revert there."""
    if request.branch != state.config.integration_branch:
        return
    branch = integration_tip.find_landed_branch(git, state, request.merge)
    if branch is None:
        return
    sync, revert = f"liza sync {shlex.quote(branch)}", f"git revert -m 1 {request.merge[:12]}"
    # After a squash, integration has to know the commit that is reverted: else a revert of it changes nothing there.
    steps = [revert, sync] if branch_moves.contains(git, branch, request.merge) else [sync, revert, sync]
    if branch != git_refs.current_branch(git):
        steps.insert(0, f"git switch {git_refs.type_revision(git, branch)}")
    step = " && ".join(steps)
    raise Refused(f"{request.task.id} has landed: {branch} has its change already, and is yours to revert", step)


def _revert(crew: Crew, request: _Request, dependents: Dependents) -> Result:
    git, branch = crew.git, request.branch
    proof_runner.require_proof(crew, request.by, untested=request.untested)
    for _ in range(merge_rules.MAX_CANDIDATES):
        expected = merge_outcomes.require_tip(crew, branch)
        try:
            commit = _build(crew, request, expected)
            _refuse_blocking_files(crew.git, request, commit, expected)
            what = f"the undo of {request.task.id}"
            wanted = PersonsCandidate(
                request.name, what, commit, expected, branch, request.command, untested=request.untested
            )
            how = persons_candidate.run_gates(crew, wanted)
            record = Undo(
                commit=commit,
                tested=how.tested,
                remarks=how.remarks,
                by=request.by,
                because=request.because,
            )
            published = _publish(crew, request, record, expected)
        finally:
            candidates.delete_candidate(git, request.name)
        if published is not None:
            after = published[1]
            if branch in merge_rules.find_red_branches(after) and how.was_run:
                batches.clear_red_branch(crew, request.by, branch)
            if branch == after.config.integration_branch:
                with suppress(*merge_outcomes.CAUGHT_ERRORS):
                    proof_runner.note_changed_definitions(crew, request.by, expected)
            return _make_result(*published, request, dependents)
    raise Refused(f"{branch} moved {merge_rules.MAX_CANDIDATES} times while the tests of the undo ran", request.command)


def _build(crew: Crew, request: _Request, expected: str) -> str:
    """Build the revert on the tip of the branch. Raises MergeConflict with the tasks that changed the files since."""
    task, branch = request.task, request.branch
    title = task.description.strip().splitlines()[0][:_MAX_TITLE] if task.description.strip() else task.id
    lines = [f"Undo {task.id}: {title}", "", f"This takes back {request.merge}, the merge of {branch_of(task.id)}."]
    message = "\n".join([*lines, *(["", request.because] if request.because else [])]) + "\n"
    try:
        resolve = Remaking(crew, request.name).resolve
        commit = candidates.build_revert(crew.git, request.merge, expected, message, request.name, resolve)
    except MergeConflict as conflict:
        raise _conflict_error(crew, request, expected, conflict) from None
    if commit is None:
        raise Refused(f"{branch} has nothing of the change of {task.id} any more", f"liza diff {task.id}")
    return commit


def _conflict_error(crew: Crew, request: _Request, expected: str, conflict: MergeConflict) -> MergeConflict:
    files, detail = conflict.files, f"\n{conflict.detail}" if conflict.detail else ""
    later = _find_later_tasks(crew, request, expected, files)
    message = f"{request.task.id} cannot be undone alone: {list_names(files)} changed since its merge"
    if not later:
        log = shlex.join(["git", "log", "-p", f"{request.merge[:12]}..{expected[:12]}", "--", *files])
        return MergeConflict(f"{message}, and not by a task{detail}", files, log)
    order = "undo it first" if len(later) == 1 else "undo them first, in this order"
    return MergeConflict(f"{message}, by {', '.join(later)}: {order}{detail}", files, f"liza undo {later[0]}")


def _find_later_tasks(crew: Crew, request: _Request, expected: str, files: tuple[str, ...]) -> tuple[str, ...]:
    """Return the merged tasks that changed one of the files after the task, the newest first."""
    git, state = crew.git, crew.board.read()
    commits = git.lines("rev-list", "--topo-order", expected, f"^{request.merge}")
    tasks = [*state.tasks, *archive.find_merged(crew.board, state, commits)]
    merges = {task.merge_commit: task for task in tasks if task.merge_commit is not None and task.undo is None}
    newest_first = [commit for commit in commits if commit in merges]
    paths = git_refs.list_merged_paths(git, newest_first)
    wanted = set(files)
    return tuple(merges[commit].id for commit in newest_first if not wanted.isdisjoint(paths.get(commit, ())))


def _refuse_blocking_files(git: Git, request: _Request, commit: str, expected: str) -> None:
    """Raise Refused before the tests run if a person's changed files are in the way."""
    blocked = branch_moves.find_blocking(git, request.branch, MergeInProgress(candidate=commit, expected=expected))
    if blocked.blocking:
        files, step = branch_moves.describe_blocking(blocked, request.command)
        raise Refused(f"{request.branch} is checked out, and {files}", step)


def _publish(crew: Crew, request: _Request, record: Undo, expected: str) -> tuple[State, State] | None:
    """Move the branch to a tested revert, and record it. Return the board before and after; None if the branch has
    moved meanwhile.

    Raises Refused if files of a person are in the way; then nothing is recorded.
    """
    task, branch = replace(request.task, undo=record), request.branch
    crash_points.point("undo", "tested")
    git_refs.write_tested_refs(crew.git, (request.name,), record.commit)
    crash_points.point("undo", "noted")
    with crew.change(request.by, "undo tested", task.id) as tx:
        tx.state = undo_rules.begin_undo(archiving.take_back(tx.state, request.task), request.task, record)
    crash_points.point("undo", "passed")
    try:
        advance = publication.advance(crew, branch, record.commit, expected, (task.id,))
        crash_points.point("undo", "advanced")
        if advance.outcome is MoveOutcome.MOVED:
            return undo_recovery.finish_undo(crew, request.by, task)
    finally:
        # After an error, the branch tells whether the task is undone.
        undo_recovery.recover_undos(crew, request.by)
    if advance.outcome is MoveOutcome.WAITING:
        files, step = branch_moves.describe_blocking(advance, request.command)
        raise Refused(f"{branch} is checked out, and {files}", step)
    return None


def _make_result(before: State, after: State, request: _Request, dependents: Dependents) -> Result:
    task = claims.get_task(after, request.task.id)
    assert task.undo is not None
    details = {
        "branch": request.branch,
        "merge_commit": request.merge,
        "undo_commit": task.undo.commit,
        "tested": task.undo.tested,
        "remarks": task.undo.remarks,
        "waiting": dependents.open,
    }
    step = f"liza task show {dependents.open[0]}" if dependents.open else f"git show {task.undo.commit[:10]}"
    result = make_result(before, after, task.id, step, **details)
    lines = (result.message, undo_rules.describe_open(task.id, dependents.open))
    return replace(result, message="\n".join(filter(None, lines)))
