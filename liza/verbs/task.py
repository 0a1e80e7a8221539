"""task add · edit · unblock · supersede · drop · release: what planners and people make of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from liza.board.task_file import load_tasks
from liza.crew import draft_specs
from liza.crew.caller import require_person
from liza.crew.crew import PERSON_PREFIX, Crew
from liza.crew.result import Result, make_result
from liza.crew.spec_files import find_existing_specs
from liza.programs.session import session_process
from liza.repo.slots.salvage import salvage_if_needed
from liza.rules.errors import UsageError
from liza.rules.model import State, Status
from liza.rules.reports.up_command import up_command_for
from liza.rules.tasks import backlog, claims, reviews
from liza.rules.tasks.backlog import RequestContext, TaskFields
from liza.rules.transitions import Invocation
from liza.system import processes

_FIELD_ALIASES = {
    "desc": "description",
    "done": "done_when",
    "spec": "spec_ref",
    "depends": "depends_on",
}


def add(crew: Crew, wanted: Sequence[TaskFields]) -> Result:
    """Put tasks on the board, all or none. Raises Refused, Usage."""
    if not wanted:
        raise UsageError("no task was given", "liza task add --help")
    by = require_person(crew, planner=True)
    specs = find_existing_specs(crew, [one.spec_ref for one in wanted if one.spec_ref])
    with crew.change(by, "add", wanted[0].id if len(wanted) == 1 else None) as tx:
        tx.state = backlog.add(tx.state, wanted, _request_context(crew, by, specs))
    ids = [one.id for one in wanted]
    missing = {task_id: lacks for task_id in ids if (lacks := _missing_parts(tx.state, task_id, specs)) is not None}
    step = _next_for_draft(crew, by, tx.state, next(iter(missing)), specs) if missing else _next_after_add(crew, by)
    return make_result(tx.before, tx.state, ids[0], step, tasks=ids, drafts=list(missing), missing=missing)


def _missing_parts(state: State, task_id: str, specs: frozenset[str]) -> list[str] | None:
    """What a DRAFT lacks; None of a task that is none."""
    task = claims.get_task(state, task_id)
    return list(backlog.find_missing(state, task, specs)) if task.status is Status.DRAFT else None


def _next_for_draft(crew: Crew, by: str, state: State, task_id: str, specs: frozenset[str]) -> str:
    """Documents come onto integration by a person's commit and `sync`; what else is missing, by an edit."""
    lack = draft_specs.find_missing_parts(crew, state, claims.get_task(state, task_id), specs)
    return lack.next if lack.missing and by.startswith(PERSON_PREFIX) else f"liza task edit {task_id} …"


def _next_after_add(crew: Crew, by: str) -> str:
    if not by.startswith(PERSON_PREFIX):
        return 'liza handoff "what you decided" --done, when all is planned'
    state = crew.board.read()
    running = any(crew.is_supervised(agent) for agent in state.agents)
    return "liza status: a coder takes it" if running else up_command_for(state)


def parse_tasks(text: str) -> tuple[TaskFields, ...]:
    """The tasks of a `task add --file`: YAML, one mapping or a list, in the board's field names. Raises Usage."""
    found: list[TaskFields] = []
    for number, entry in enumerate(load_tasks(text), 1):
        named = {_FIELD_ALIASES.get(name, name): value for name, value in entry.items()}
        unknown = sorted(set(named) - _FIELDS)
        if unknown:
            raise UsageError(
                f"task {number}: {unknown[0]!r} is no field; they are {', '.join(sorted(_FIELDS))}",
                "liza task add --help",
            )
        found.append(_parse_task(number, named))
    return tuple(found)


_FIELDS = frozenset(
    {"id", "description", "done_when", "scope", "spec_ref", "priority", "depends_on", "max_iterations", "draft"}
)


def _parse_task(number: int, named: dict[str, object]) -> TaskFields:
    if not isinstance(named.get("id"), str):
        raise UsageError(f"task {number} has no id", "liza task add --help")
    depends = named.pop("depends_on", None)
    if isinstance(depends, str):
        depends = [one.strip() for one in depends.split(",") if one.strip()]
    if not isinstance(depends, list | None):
        raise UsageError(f"task {number}: depends_on is {depends!r}, wanted a list of ids", "liza task add --help")
    numbers = {name: _number(number, name, named.pop(name)) for name in ("priority", "max_iterations") if name in named}
    draft = str(named.pop("draft", "false")).lower() == "true"
    for name, value in named.items():
        if isinstance(value, list | dict):
            raise UsageError(f"task {number}: {name} is {value!r}, wanted a text", "liza task add --help")
    texts = {name: str(value) for name, value in named.items() if value is not None}
    wanted = TaskFields(draft=draft, depends_on=None if depends is None else tuple(map(str, depends)), **texts)  # type: ignore[arg-type]
    return replace(wanted, priority=numbers.get("priority"), max_iterations=numbers.get("max_iterations"))


def _number(number: int, name: str, value: object) -> int:
    if not str(value).isascii() or not str(value).isdigit() or len(str(value)) > 9:
        raise UsageError(f"task {number}: {name} is {value!r}, wanted a number", "liza task add --help")
    return int(str(value))


def edit(crew: Crew, wanted: TaskFields) -> Result:
    """Change the text of a task that nobody holds. Raises Refused, Usage."""
    by = require_person(crew, planner=True)
    known = claims.get_task(crew.board.read(), wanted.id)
    specs = find_existing_specs(crew, [wanted.spec_ref or known.spec_ref])
    with crew.change(by, "edit", wanted.id) as tx:
        tx.state = backlog.edit(tx.state, wanted, _request_context(crew, by, specs))
    missing = _missing_parts(tx.state, wanted.id, specs)
    if missing is None:
        return make_result(tx.before, tx.state, wanted.id, f"liza task show {wanted.id}", missing=[])
    step = _next_for_draft(crew, by, tx.state, wanted.id, specs)
    said = make_result(tx.before, tx.state, wanted.id, step, missing=missing)
    told = f"{wanted.id} stays a draft{': ' + '; '.join(missing) if missing else ''}"
    return replace(said, message=told)


def unblock(crew: Crew, task_id: str, answers: Sequence[str]) -> Result:
    """Answer what a BLOCKED task asks. Raises Refused, Usage."""
    by = require_person(crew, planner=True)
    with crew.change(by, "unblock", task_id) as tx:
        tx.state = backlog.unblock(tx.state, task_id, answers, Invocation(now=crew.clock.now(), by=by))
    return make_result(tx.before, tx.state, task_id, "a coder takes it up; liza status")


@dataclass(frozen=True)
class Successors:
    """What takes a superseded task's place: new tasks, and tasks that are on the board already."""

    new: tuple[TaskFields, ...] = ()
    existing: tuple[str, ...] = ()


def supersede(crew: Crew, task_id: str, by_tasks: Successors, because: str) -> Result:
    """Other tasks take the place of this one. Raises Refused, Usage."""
    by = require_person(crew, planner=True)
    specs = find_existing_specs(crew, [one.spec_ref for one in by_tasks.new if one.spec_ref])
    asked = RequestContext(Invocation(now=crew.clock.now(), by=by, detail=because), specs)
    with crew.change(by, "supersede", task_id) as tx:
        tx.state = backlog.supersede(tx.state, task_id, by_tasks.new, by_tasks.existing, asked)
    end_task_work(crew, tx.before, task_id)
    return make_result(tx.before, tx.state, task_id, "liza status")


def drop(crew: Crew, task_id: str, why: str, dependants: str | None) -> Result:
    """A task is not wanted any more; its work is saved. Raises Refused, Usage."""
    by = require_person(crew, planner=True)
    with crew.change(by, "drop", task_id) as tx:
        said = Invocation(now=crew.clock.now(), by=by, detail=why or None)
        tx.state = backlog.drop(tx.state, task_id, said, dependants)
    end_task_work(crew, tx.before, task_id)
    return make_result(tx.before, tx.state, task_id, "liza status")


def release(crew: Crew, task_id: str) -> Result:
    """Take a task away from its coder: fence, end the session, save the work, then UNCLAIMED. Raises Refused."""
    by = require_person(crew, planner=False)
    if claims.get_task(crew.board.read(), task_id).reviewing_by is not None:
        return _release_review(crew, by, task_id)
    with crew.change(by, "fence", task_id) as tx:
        tx.state = claims.fence(tx.state, task_id, crew.clock.now())
    end_task_work(crew, tx.before, task_id)
    with crew.change(by, "release", task_id) as done:
        done.state = claims.release(done.state, task_id, crew.clock.now(), by)
    return make_result(tx.before, done.state, task_id, f"liza task show {task_id}")


def _release_review(crew: Crew, by: str, task_id: str) -> Result:
    """Take a review away from its reviewer: any other may take it."""
    before = crew.board.read()
    run = claims.get_task(before, task_id).review_run or ""
    with crew.change(by, "release review", task_id) as tx:
        tx.state = reviews.release_review(tx.state, task_id, run, crew.clock.now(), f"released by {by}")
    _end_session(crew, run)
    return make_result(before, tx.state, task_id, f"liza task show {task_id}")


def end_task_work(crew: Crew, before: State, task_id: str) -> None:
    """End the session that was at work on the task, and save what its worktree holds."""
    task = before.task(task_id)
    if task is None or task.run is None:
        return
    for run in filter(None, (task.run, task.review_run)):
        _end_session(crew, run)
    if task.worktree and crew.paths.slot(task.worktree).is_dir():
        kept_in = (f"refs/heads/{before.config.integration_branch}",)
        salvage_if_needed(crew.worktrees.slot_git(task.worktree), task_id, task.run, kept_in)


def _end_session(crew: Crew, run: str) -> None:
    directory = crew.run_dir(run)
    if directory.exists():
        directory.write_stop(crew.clock.now(), "fenced")
        session_process.stop(directory.path, run, crew.paths.root, grace=2.0)
    processes.kill_run(run, crew.paths.root)


def _request_context(crew: Crew, by: str, specs: frozenset[str]) -> RequestContext:
    return RequestContext(Invocation(now=crew.clock.now(), by=by), specs)
