"""task add · edit · unblock · supersede · drop · release, start: change tasks, for planners and people."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from liza.board.contract import Board
from liza.board.text import parse
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import branch_moves, git_refs, local_files
from liza.model import targets
from liza.model.errors import Refused, UnknownId, UsageError
from liza.model.model import Clock, State, Status, Task
from liza.model.narration import verdict_command
from liza.model.paths import branch_of, check_task_id, is_person
from liza.model.session_ends import StopReason
from liza.model.transitions import Invocation
from liza.model.type_errors import find_problem
from liza.model.value_classes import Value, decodable, replace
from liza.programs.session import session_process
from liza.system import atomic, processes
from liza.tasks import archive, bound_claim, draft_specs, next_steps, task_branches
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.evidence import describe_overlaps
from liza.tasks.next_steps import NextStep
from liza.tasks.rules import backlog, bound_claims, claims, picking, reviews, submissions
from liza.tasks.rules.backlog import RequestContext, TaskFields
from liza.tasks.rules.picking import failed_by_every_coder, waits_for_coder_text

_ADD_HELP = "liza task add --help"
_FIELD_ALIASES = {"desc": "description", "done": "done_when", "spec": "spec_ref", "depends": "depends_on"}


RecoverMerge = Callable[[Crew, str, str], None]
"""Recover the merge of a task if its merger has died. Arguments: the crew, who asks, the task."""


def add(crew: Crew, requested: Sequence[TaskFields]) -> Result:
    """Add tasks to the board, all or none. Raises Refused, UsageError."""
    if not requested:
        raise UsageError("no task was given", _ADD_HELP)
    by = require_person(crew, planner=True)
    specs = find_existing_specs(crew, [task.spec_ref for task in requested if task.spec_ref])
    _refuse_taken_branches(crew, requested)
    context = prepare(crew, requested, _request_context(crew.clock, by, specs))
    # Reads the archive before the lock is taken; under it only files that changed since then.
    before = crew.board.read()
    _find_archived(crew.board, before, requested)
    archive.refuse_damaged(crew.board, before)
    with crew.change(by, "add", requested[0].id if len(requested) == 1 else None) as tx:
        # Under the lock: no task can be archived between this look and the change.
        archived = _find_archived(crew.board, tx.state, requested)
        tx.state = backlog.add(tx.state, requested, replace(context, archived=archived))
    ids = [task.id for task in requested]
    missing = {task_id: parts for task_id in ids if (parts := _missing_parts(tx.state, task_id, specs)) is not None}
    result = make_result(tx.before, tx.state, ids[0], "", tasks=ids, drafts=list(missing), missing=missing)
    result = replace(result, remarks=(*result.remarks, *describe_overlaps(crew, tx.state, ids, in_work=False)))
    if missing:
        return replace(result, next=_next_for_draft(crew, by, tx.state, next(iter(missing)), specs))
    if not is_person(by):
        return replace(result, next='liza handoff "what you decided" --done')
    return next_steps.with_next_step(result, next_steps.find_next_step(crew, tx.state, "a coder takes it", "coder"))


def check_new_id(crew: Crew, task_id: str) -> None:
    """Raise UsageError or Refused if no task can be added with this id. ``add`` checks it again, under the lock."""
    check_task_id(task_id)
    state = crew.board.read()
    archived = archive.find_outcomes(crew.board, state, [task_id])
    backlog.refuse_taken_id(task_id, {task.id for task in state.tasks}, archived)
    _refuse_taken_branches(crew, [TaskFields(task_id)])


def _refuse_taken_branches(crew: Crew, requested: Sequence[TaskFields]) -> None:
    """Raise Refused if a person has a branch with the name of a task's: its work would be taken for the task's."""
    branches = branch_moves.find_branches(crew.git, *(branch_of(task.id) for task in requested)) if requested else {}
    for branch in sorted(task_branches.find_persons_branches(crew, branches)) if branches else ():
        other = git_refs.find_free_name(branch.replace("/", "-"), git_refs.list_branches(crew.git))
        raise Refused(f"there is a branch {branch} already", shlex.join(["git", "branch", "-m", branch, other]))


def _find_archived(
    board: Board, state: State, requested: Sequence[TaskFields], others: Sequence[str] = ()
) -> dict[str, Status]:
    """Return the outcomes of the archived tasks that a request names: as an id, a dependency or a successor."""
    named = [name for task in requested for name in (task.id, *(task.depends_on or ()))]
    return archive.find_outcomes(board, state, (*named, *others))


def _missing_parts(state: State, task_id: str, specs: frozenset[str]) -> list[str] | None:
    """Missing parts of a DRAFT; None if the task is not a DRAFT."""
    task = claims.get_task(state, task_id)
    return [str(part) for part in backlog.find_missing(state, task, specs)] if task.status is Status.DRAFT else None


def _next_for_draft(crew: Crew, by: str, state: State, task_id: str, specs: frozenset[str]) -> str:
    """Next command for a draft: commit and `sync` for a missing document (people only), else `task edit`, which also
    releases a draft that lacks nothing.
    """
    draft = draft_specs.find_missing_parts(crew, state, claims.get_task(state, task_id), specs)
    if not draft.missing:
        return f"liza task edit {task_id}"
    return draft.next if is_person(by) else f"liza task edit {task_id} --help"


def parse_tasks(text: str) -> tuple[TaskFields, ...]:
    """Parse the tasks of `task add --file`: YAML, a mapping or a list, with the board's field names.

    Raises UsageError.
    """
    return tuple(_parse_task(number, entry) for number, entry in enumerate(load_tasks(text), 1))


_LIST_SEPARATORS = {"scope": ", ", "description": "\n", "done_when": "\n"}
"""Texts of a task file that may be a list, and what joins its parts."""


def _parse_task(number: int, entry: dict[str, Any]) -> TaskFields:
    names = TaskFields.__struct_fields__
    fields = {_FIELD_ALIASES.get(name, name): value for name, value in entry.items() if value is not None}
    unknown = sorted(fields.keys() - set(names))
    if unknown:
        raise UsageError(
            f"task {number}: {unknown[0]!r} is not a field; expected one of {', '.join(sorted(names))}", _ADD_HELP
        )
    for name, value in fields.items():
        separator = _LIST_SEPARATORS.get(name)
        if isinstance(value, list) and separator and not any(isinstance(part, list | dict) for part in value):
            fields[name] = separator.join(map(str, value))
        elif isinstance(value, str) and name == "depends_on":
            fields[name] = [word.strip() for word in value.split(",") if word.strip()]
        elif not isinstance(value, list | dict):
            fields[name] = str(value)
    try:
        return msgspec.convert(fields, decodable(TaskFields), strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"task {number}: {find_problem(error, TaskFields)}", _ADD_HELP) from None


def edit(crew: Crew, requested: TaskFields) -> Result:
    """Change fields of a task that no agent holds. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    state = crew.board.read()
    archive.refuse_archived(crew.board, state, [requested.id])
    existing = claims.get_task(state, requested.id)
    specs = find_existing_specs(crew, [requested.spec_ref or existing.spec_ref])
    _find_archived(crew.board, state, [requested])  # as in ``add``: not under the lock
    with crew.change(by, "edit", requested.id) as tx:
        archived = archive.find_outcomes(crew.board, tx.state, requested.depends_on or ())
        tx.state = backlog.edit(
            tx.state, requested, replace(_request_context(crew.clock, by, specs), archived=archived)
        )
    missing = _missing_parts(tx.state, requested.id, specs)
    if missing is None:
        return make_result(tx.before, tx.state, requested.id, f"liza task show {requested.id}", missing=[])
    step = _next_for_draft(crew, by, tx.state, requested.id, specs)
    result = make_result(tx.before, tx.state, requested.id, step, missing=missing)
    message = f"{requested.id} stays a draft{': ' + '; '.join(missing) if missing else ''}"
    return replace(result, message=message)


def unblock(crew: Crew, task_id: str, answers: Sequence[str]) -> Result:
    """Answer the questions of a BLOCKED task. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    archive.refuse_archived(crew.board, crew.board.read(), [task_id])
    with crew.change(by, "unblock", task_id) as tx:
        tx.state = backlog.unblock(tx.state, task_id, answers, Invocation(now=crew.clock.now(), by=by))
    task = claims.get_task(tx.state, task_id)
    result = make_result(tx.before, tx.state, task_id, "liza status")
    if failed_by_every_coder(tx.state, task):
        return replace(result, message=f"{result.message}\n{waits_for_coder_text(task)}")
    return next_steps.with_next_step(result, _who_continues(crew, tx.state, task))


def _who_continues(crew: Crew, state: State, task: Task) -> NextStep:
    """Return who goes on with a task whose question is answered: a coder, a reviewer, or a person who reviews."""
    if picking.waits_for_author(task):
        return NextStep(*submissions.describe_return(task))
    if task.status is not Status.READY_FOR_REVIEW:
        return next_steps.find_next_step(crew, state, "a coder continues it", "coder")
    if reviews.persons_review(state) and any(map(crew.is_supervised, state.agents)):
        return NextStep("it waits for your verdict", verdict_command(task.id))
    return next_steps.find_next_step(crew, state, "a reviewer reviews it again", reviews.REVIEWER)


class Successors(Value):
    """Tasks that replace a superseded one: new tasks, and tasks that are on the board already."""

    new: tuple[TaskFields, ...] = ()
    existing: tuple[str, ...] = ()


def supersede(crew: Crew, task_id: str, by_tasks: Successors, because: str, recover_merge: RecoverMerge) -> Result:
    """Replace a task by others; its work is saved. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    specs = find_existing_specs(crew, [task.spec_ref for task in by_tasks.new if task.spec_ref])
    context = RequestContext(Invocation(now=crew.clock.now(), by=by, detail=because), specs)
    _refuse_taken_branches(crew, by_tasks.new)
    context = prepare(crew, by_tasks.new, context)
    state = crew.board.read()
    archive.refuse_archived(crew.board, state, [task_id])
    recover_dead_merge(crew, by, task_id, recover_merge)
    if by_tasks.new:
        archive.refuse_damaged(crew.board, state)
    _find_archived(crew.board, state, by_tasks.new, by_tasks.existing)  # as in ``add``: not under the lock
    with crew.change(by, "supersede", task_id) as tx:
        context = replace(context, archived=_find_archived(crew.board, tx.state, by_tasks.new, by_tasks.existing))
        tx.state = backlog.supersede(tx.state, task_id, by_tasks.new, by_tasks.existing, context)
    end_task_work(crew, tx.before, task_id)
    archive.archive_if_due(crew, by)
    return make_result(tx.before, tx.state, task_id, "liza status")


def drop(crew: Crew, task_id: str, why: str, dependants: str | None, recover_merge: RecoverMerge) -> Result:
    """Abandon a task; its work is saved. Raises Refused, UsageError."""
    by = require_person(crew, planner=True)
    archive.refuse_archived(crew.board, crew.board.read(), [task_id])
    recover_dead_merge(crew, by, task_id, recover_merge)
    with crew.change(by, "drop", task_id) as tx:
        invocation = Invocation(now=crew.clock.now(), by=by, detail=why or None)
        tx.state = backlog.drop(tx.state, task_id, invocation, dependants)
    end_task_work(crew, tx.before, task_id)
    archive.archive_if_due(crew, by)
    return make_result(tx.before, tx.state, task_id, "liza status")


def recover_dead_merge(crew: Crew, by: str, task_id: str, recover_merge: RecoverMerge) -> None:
    """Recover the merge of the task if its merger has died."""
    if claims.get_task(crew.board.read(), task_id).merging is not None:
        recover_merge(crew, by, task_id)


def release(crew: Crew, task_id: str) -> Result:
    """Take a task from its coder, in this order: fence the run, end its session, save the work, set UNCLAIMED.

    Raises Refused.
    """
    by = require_person(crew, planner=False)
    archive.refuse_archived(crew.board, crew.board.read(), [task_id])
    if claims.get_task(crew.board.read(), task_id).reviewing_by is not None:
        return _release_review(crew, by, task_id)
    with crew.change(by, "fence", task_id) as tx:
        tx.state = claims.fence(tx.state, task_id, crew.clock.now())
    end_task_work(crew, tx.before, task_id)
    with crew.change(by, "release", task_id) as release_tx:
        release_tx.state = claims.release(release_tx.state, task_id, None, crew.clock.now(), by)
    return make_result(tx.before, release_tx.state, task_id, f"liza task show {task_id}")


def _release_review(crew: Crew, by: str, task_id: str) -> Result:
    """Take a review from its reviewer: any reviewer may claim it then."""
    before = crew.board.read()
    run = claims.get_task(before, task_id).review_run or ""
    with crew.change(by, "release review", task_id) as tx:
        tx.state = reviews.release_review(tx.state, task_id, run, crew.clock.now(), f"released by {by}")
    end_session(crew, run)
    return make_result(before, tx.state, task_id, f"liza task show {task_id}")


def end_task_work(crew: Crew, before: State, task_id: str) -> None:
    """End the sessions of the task's runs, and save the work in its worktree."""
    task = before.task(task_id)
    if task is None or task.run is None:
        return
    for run in filter(None, (task.run, task.review_run)):
        end_session(crew, run)
    if bound_claims.is_bound(task):
        bound_claim.save_work(crew, task, task.run)
    if task.worktree and crew.is_here(task) and crew.paths.slot(task.worktree).is_dir():
        kept_in = (f"refs/heads/{before.config.integration_branch}",)
        crew.worktrees.salvage(task.worktree, task_id, task.run, kept_in)


def end_session(crew: Crew, run: str) -> None:
    """End the session of a run that lost its task."""
    directory = crew.run_dir(run)
    if directory.exists():
        directory.write_stop(crew.clock.now(), StopReason.FENCED)
        session_process.stop(directory.path, run, crew.paths.root, grace=2.0)
    processes.kill_run(run, crew.paths.root)


def _request_context(clock: Clock, by: str, specs: frozenset[str]) -> RequestContext:
    return RequestContext(Invocation(now=clock.now(), by=by), specs)


def prepare(crew: Crew, requested: Sequence[TaskFields], context: RequestContext) -> RequestContext:
    """Prepare the branches before the board is changed; return the context with what new branches contain.

    A branch without a task, after a crash, is used by the next request. Raises UsageError, Refused, UnknownId,
    GitFailed.
    """
    if not any(task.epic or task.target for task in requested):
        return context
    for branch in dict.fromkeys(task.target for task in requested if task.target is not None):
        _check_target(crew, branch, context.invocation.by or "")
    # Read before a branch is created: what is merged on the board is on integration then.
    delivered = frozenset(task.id for task in crew.board.read().tasks if targets.is_on_integration(task))
    names = dict.fromkeys(check_task_id(task.epic) for task in requested if task.epic is not None)
    created = frozenset(name for name in names if task_branches.ensure_branch(crew, name))
    return replace(context, new_epics=created, delivered=delivered)


def _check_target(crew: Crew, branch: str, by: str) -> None:
    """Record where a target branch is. Raises Refused if a planner names it: it is a person's branch."""
    if not is_person(by):
        message = f"only a person can have tasks merged into {branch}; an epic has a branch of its own"
        raise Refused(message, _ADD_HELP)
    if not targets.is_target_name(branch) or branch == crew.board.read().config.integration_branch:
        raise Refused(f"{branch} cannot be the target of a task", _ADD_HELP)
    tip = branch_moves.branch_tip(crew.git, branch)
    if tip is None:
        raise UnknownId(f"there is no branch {branch}", shlex.join(["git", "branch", branch]))
    if not git_refs.has_merge_base(crew.git, tip, f"refs/heads/{crew.board.read().config.integration_branch}"):
        raise Refused(
            f"{branch} has no commit in common with integration", f"git log {git_refs.type_revision(crew.git, branch)}"
        )
    crew.git.run("update-ref", branch_moves.last_tip_ref(branch), tip, "", codes=(0, 128))


def add_sentence_task(crew: Crew, text: str) -> Result:
    """Add the task of a sentence, with its document below .liza/specs; or return the open task of the same sentence.

    The document is written before the task is added: a command that was killed in between can be repeated. Raises
    UsageError, Refused, GitFailed.
    """
    require_person(crew, planner=False)
    sentence = backlog.check_sentence(text)
    state = crew.board.read()
    existing = backlog.find_open_task(state, sentence)
    if existing is not None:
        result = make_result(state, state, existing.id, "liza status")
        return Result(result.result, existing.id, existing.status.value, result.next, message=f"{existing.id}: open")
    task_id = backlog.choose_task_id(sentence, TakenIds(crew))
    path = crew.paths.root / backlog.sentence_spec_path(task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, backlog.compose_sentence_spec(sentence).encode(), 0o644)
    return add(crew, (backlog.sentence_fields(task_id, sentence),))


def refuse_new_copies(crew: Crew, names: Sequence[str]) -> None:
    """Raise Refused if a crew that exists does not copy these files yet. Its hint keeps the files that it copies.

    A command that is repeated names the same files again, and goes on.
    """
    copied = crew.board.read().config.sandbox_copy
    new = [name for name in dict.fromkeys(names) if name not in copied]
    if new:
        raise Refused(
            f"{crew.paths.root} has a crew already, which does not copy {', '.join(new)}: --copy is for a new crew",
            local_files.copy_command(copied, new),
        )


class TakenIds:
    """The ids that a new task cannot have: of a task, of an archived one, of a branch, of a document."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._state = crew, crew.board.read()

    def __contains__(self, task_id: object) -> bool:
        path = self._crew.paths.root / backlog.sentence_spec_path(str(task_id))
        return self.has_work(str(task_id)) or path.exists()

    def has_work(self, task_id: str) -> bool:
        """Return whether a task or a branch has this id, whatever documents there are."""
        outcomes: dict[str, Status] = archive.find_outcomes(self._crew.board, self._state, (task_id,))
        return (
            self._state.task(task_id) is not None
            or task_id in outcomes
            or self._crew.git.find_commit(f"refs/heads/{branch_of(task_id)}") is not None
        )


def load_tasks(text: str) -> list[dict[str, Any]]:
    """Return the tasks of a YAML text: one mapping, a list of mappings, or a mapping with the only key ``tasks``.

    Ids stay as they were typed, as text. Raises UsageError if the text is anything else.
    """
    try:
        value = parse.parse_text(text)
    except parse.Unparsable as error:
        raise UsageError(f"the task file does not parse: {error}", "liza task add --help") from error
    if isinstance(value, dict) and set(value) == {"tasks"}:
        value = value["tasks"]
    entries = [value] if isinstance(value, dict) else value
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(
            "a task file must be a mapping with the fields of a task, or a list of such mappings",
            "liza task add --help",
        )
    return entries
