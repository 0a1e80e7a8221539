"""merge: merge an approved and tested commit into integration. Only supervisors and people call this."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

from liza.config.rules import test_proof
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import branch_moves
from liza.git.runner import Git
from liza.merging import (
    batches,
    epics,
    merge_lock,
    merge_outcomes,
    proof_runner,
    publication,
    slot_limits,
    statement_writer,
)
from liza.merging.merge_lock import hold_merge_lock, hold_merge_lock_in_turn
from liza.merging.merge_recovery import recover_dead_merger
from liza.merging.rules import epic_rules, merge_queue, merge_rules
from liza.merging.rules.epic_rules import EpicJob
from liza.model import history_events, targets
from liza.model.derived import changed_tasks
from liza.model.errors import LizaError, Refused, TaskNotWritable
from liza.model.model import State, Status, Task
from liza.model.paths import is_person, parse_agent_id
from liza.model.statuses import task_word
from liza.model.value_classes import replace
from liza.tasks import archive
from liza.tasks.rules import claims, strangers

_NOT_MERGED = (Status.INTEGRATION_FAILED, Status.BLOCKED)
"""Statuses of a task after its merge failed: its coder is to resolve it, or it failed too often."""
_MAX_UNWRITABLE = 5
"""How many tasks a merger tries if the board cannot be written for them: then the cause is the board."""


def merge(crew: Crew, task_id: str | None = None, supervisor: str | None = None, *, untested: bool = False) -> Result:
    """Merge the named APPROVED task, or the next batch, for a person or for the supervisor of that agent. ``epic/NAME``
    lands or updates that epic.

    A failure is recorded on its task, which is returned to its coder or retried later; other tasks are merged
    meanwhile. ``untested``: a person merges also what its tests say nothing about. Raises Refused, GitFailed, OSError;
    for a supervisor LockTimeout if another process merges.
    """
    person = require_person(crew, planner=False)
    if not supervisor:
        return _merge_and_archive(crew, person, task_id, hold_merge_lock(crew), untested=untested)
    try:
        return _merge_and_archive(crew, parse_agent_id(supervisor), task_id, hold_merge_lock_in_turn(crew))
    finally:
        merge_lock.pass_on_orphaned_turn(crew.paths, supervisor)


def merge_each(crew: Crew, subjects: Sequence[str], *, untested: bool = False) -> Result:
    """Merge the named tasks and epics one after the other, for a person. One that fails does not keep the others.
    ``untested`` as for ``merge``.

    ``details`` has ``merged`` and, by name, the reasons of the ``failed`` ones. Raises Refused inside a session.
    """
    require_person(crew, planner=False)
    before, failed, messages = crew.board.read(), {}, []
    for subject in dict.fromkeys(subjects):
        try:
            result = merge(crew, subject, untested=untested)
        except LizaError as error:
            failed[subject] = f"{error.message} (next: {error.hint})"
            continue
        messages.append(result.message)
        if result.task is not None and result.status != Status.MERGED:
            failed[subject] = f"it is {task_word(result.status or '')} (next: {result.next})"
    after = crew.board.read()
    merged = [task.id for task in changed_tasks(before, after) if task.status is Status.MERGED]
    messages += [f"not merged: {subject}: {reason}" for subject, reason in failed.items()]
    step = f"liza task show {next(iter(failed))}" if failed else "liza status"
    outcome = "unchanged" if after == before else "changed"
    return Result(outcome, None, None, step, {"merged": merged, "failed": failed}, "\n".join(filter(None, messages)))


def _merge_and_archive(
    crew: Crew, by: str, task_id: str | None, lock: AbstractContextManager[Crew], *, untested: bool = False
) -> Result:
    with lock as locked:
        result = _merge(_begin(locked, by, task_id), by, task_id, untested=untested)
    # The merge is published: a failure from here on does not undo it.
    _, failed = merge_outcomes.reconsidered(crew, "the merge")
    statement_writer.complete_quietly(crew)
    archive.archive_if_due(crew, merge_outcomes.merge_actor(by))
    if crew.board.read().config.slots.max_bytes is not None:
        slot_limits.keep_limit_after(crew, "the merge")
    return replace(result, message="\n".join(filter(None, (result.message, *failed))))


def _begin(crew: Crew, by: str, subject: str | None) -> Crew:
    """Return the crew with the term of its merger. What keeps it from merging is recorded on the next task."""
    try:
        return publication.begin(crew)
    except Exception as error:
        is_epic = subject is not None and targets.epic_of(subject) is not None
        if not is_epic and merge_outcomes.is_task_error(crew, error):
            # No task is to blame: what this clone lacks of it may be at the remote.
            shared = merge_outcomes.SharedFailure(subject or "", merge_outcomes.to_failure(error))
            _mark_next_task(crew, by, subject, shared)
        raise _named(error) from error


def _merge(crew: Crew, by: str, subject: str | None, *, untested: bool) -> Result:
    epic = None if subject is None else targets.epic_of(subject)
    task_id = subject if epic is None else None
    try:
        recover_dead_merger(crew, by)
    except Exception as error:
        if epic is None and _mark_next_task(crew, by, task_id, error):
            raise _named(error) from error
        raise
    start = crew.board.read()
    # Without a proof there is nothing that a merge could make old.
    tip = crew.git.find_commit(start.config.integration_branch) if start.config.proof.meaning else None
    try:
        return _merge_next(crew, by, task_id, epic, start, untested=untested)
    finally:
        # Also after an error: a batch may have been published before it.
        if tip is not None:
            with suppress(LizaError, OSError):
                proof_runner.note_changed_definitions(crew, by, tip)


def _merge_next(crew: Crew, by: str, task_id: str | None, epic: str | None, start: State, *, untested: bool) -> Result:
    """Merge the named task or epic, or what is next. ``start``: the board before."""
    retry_candidates(crew, by, task_id)
    before = crew.board.read()
    if epic is not None:
        return _merge_epic(crew, by, epic, epic_rules.find_job(before, epic))
    job = None if task_id else epic_rules.due_job(before, crew.clock.now())
    if job is not None:
        return _merge_epic(crew, by, job.epic, job)
    archive.refuse_archived(crew.board, before, [task_id] if task_id is not None else [])
    if task_id is not None and claims.get_task(before, task_id).status is Status.MERGED:
        return _merge_result(crew.git, start, before, task_id)
    task = (
        merge_rules.get_approved_task(before, task_id)
        if task_id
        else merge_rules.next_to_merge(before, crew.clock.now())
    )
    if task is None:
        raise Refused(*_no_merge_reason(before))
    merge_queue.refuse_held(task)
    strangers.refuse_unpermitted(task)
    merge_queue.refuse_stacked(before, task)
    if task.merging is not None:
        # retry_candidates has just offered it: it waits until a person's changed files are out of the way.
        return _merge_result(crew.git, start, before, task.id)
    try:
        proof_runner.require_proof(crew, by, untested=untested)
    except Exception as error:
        # Tests that are known to say nothing about a candidate stop every merge and have an alarm of their own.
        if test_proof.untested_reason(crew.board.read().config) is None and _mark_next_task(crew, by, task.id, error):
            raise _named(error) from error
        raise
    # A supervisor names the head of the queue that it has seen; a person names the only task to merge.
    if task_id is not None and is_person(by):
        _attempt(crew, by, (task,), untested=untested)
    else:
        _attempt_next(crew, by, task, untested=untested)
    return _merge_result(crew.git, before, crew.board.read(), task.id)


def _attempt_next(crew: Crew, by: str, head: Task, *, untested: bool) -> None:
    """Merge the batch of ``head``. If the board cannot be written for a task, merge the next one: if that succeeds, the
    cause is the task, and not the board. Raises what ``_attempt`` raises."""
    unwritable: dict[str, str] = {}
    task: Task | None = head
    try:
        while task is not None:
            chosen = merge_queue.choose_batch(crew.board.read(), task, crew.clock.now())
            try:
                _attempt(crew, by, [each for each in chosen if each.id not in unwritable], untested=untested)
                return
            except TaskNotWritable as error:
                unwritable[error.task_id] = error.message
                task = merge_rules.next_to_merge(crew.board.read(), crew.clock.now(), skipped=unwritable)
                if task is None or len(unwritable) == _MAX_UNWRITABLE:
                    raise
    finally:
        if unwritable or crew.paths.unwritable_tasks.exists():
            # Their alarms cannot be on the board. Without this record only the log of the merger names them.
            with suppress(*merge_outcomes.CAUGHT_ERRORS):
                merge_lock.record_unwritable(crew.paths, unwritable)


def _merge_epic(crew: Crew, by: str, epic: str, job: EpicJob | None) -> Result:
    """Land or update an epic. Raises Refused if nothing is to be done for it, LizaError, OSError."""
    before = crew.board.read()
    if job is None:
        raise Refused(*epic_rules.no_job_reason(before, epic))
    try:
        epics.run_job(crew, by, job)
    except OSError as error:
        raise _named(error) from error
    after = crew.board.read()
    landed = [task.id for task in changed_tasks(before, after) if task.landed is not None and task.epic == job.epic]
    result = make_result(before, after, None, "liza epics", epic=job.epic, step=job.step.value, landed=landed)
    return result if result.message else replace(result, message=f"{job.branch} has what is on integration")


def _no_merge_reason(state: State) -> tuple[str, str]:
    """Reason why no task can be merged now, and the hint."""
    untested = test_proof.untested_reason(state.config)
    if untested is not None and any(task.status is Status.APPROVED for task in state.tasks):
        return f"nothing is merged: {untested.text}", untested.hint
    set_aside = [task.id for task in state.tasks if task.status is Status.APPROVED and task.set_aside is not None]
    if not set_aside:
        return "no approved task is ready to merge", "liza task list"
    return f"no approved task is ready to merge; set aside: {', '.join(set_aside)}", f"liza merge {set_aside[0]}"


def _merge_result(git: Git, before: State, after: State, task_id: str) -> Result:
    task, message = claims.get_task(after, task_id), ""
    if task.merging and task.merging.waiting:
        advance = branch_moves.find_blocking(git, targets.target_branch(after, task), task.merging)
        files, step = branch_moves.describe_blocking(advance, f"liza merge {task_id}")
        message = f"{task_id} is tested and waits: {files}"
    elif task.merge_commit:
        step = f"git log --first-parent refs/heads/{shlex.quote(targets.target_branch(after, task))}"
    elif task.status in _NOT_MERGED:
        step = history_events.inspect_command(task)
    else:
        step = f"liza task show {task_id}"
    merged, returned = (
        [changed.id for changed in changed_tasks(before, after) if changed.status in statuses]
        for statuses in ((Status.MERGED,), _NOT_MERGED)
    )
    details = {
        "merge_commit": task.merge_commit,
        "tested": task.tested,
        "remarks": task.remarks,
        "merged": merged,
        "returned": returned,
    }
    result = make_result(before, after, task_id, step, **details)
    return replace(result, message=message or result.message)


def _mark_next_task(crew: Crew, by: str, task_id: str | None, error: Exception) -> bool:
    """Record an error that kept any merge from starting on the task that was next; return whether it was recorded."""
    state = crew.board.read()
    task = state.task(task_id) if task_id else merge_rules.next_to_merge(state, crew.clock.now())
    return task is not None and merge_outcomes.record_errors(crew, by, [task], error)


def _named(error: Exception) -> Exception:
    return merge_outcomes.named(error, "liza status")


def retry_candidates(crew: Crew, by: str, task_id: str | None = None) -> None:
    """Publish batches that were recorded as tested but not published; they are not tested again.

    A failure is recorded on their tasks and the others are tried all the same. A batch that is set aside is tried when
    its delay is over, or when it contains ``task_id``.
    """
    for batch in merge_queue.find_batches(crew.board.read()):
        is_named = task_id in batch.ids
        if not is_named and any(merge_rules.is_paused(task, crew.clock.now()) for task in batch.tasks):
            continue
        try:
            batches.publish_batch(crew, by, batch)
        except Exception as error:
            if not merge_outcomes.record_errors(crew, by, batch.tasks, error):
                raise
            if is_named:
                raise _named(error) from error


def _attempt(crew: Crew, by: str, tasks: Sequence[Task], *, untested: bool) -> None:
    """Merge tasks together and record a failure on them. Raises the error if the first is still APPROVED or the error
    is not the tasks'."""
    try:
        batches.merge_batch(crew, by, tasks, untested=untested)
    except Exception as error:
        state = crew.board.read()
        begun = [task for task in tasks if (current := state.task(task.id)) and current.merging] or tasks[:1]
        if not merge_outcomes.record_errors(crew, by, begun, error):
            raise
        after = claims.get_task(crew.board.read(), tasks[0].id)
        if after.status is Status.APPROVED:
            raise _named(error) from error
    except (SystemExit, KeyboardInterrupt):
        batches.drop_batch(crew, by, [task.id for task in tasks])
        raise
