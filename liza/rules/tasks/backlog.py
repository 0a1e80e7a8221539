"""What planners and people make of tasks: add, edit, unblock, supersede, drop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_said

from msgspec.structs import replace

from liza.rules.errors import Refused, UsageError
from liza.rules.invariants import find_cycle
from liza.rules.model import FINAL_STATUSES, Answer, Event, State, Status, Task
from liza.rules.paths import check_task_id as checked_id
from liza.rules.tasks.claims import get_task
from liza.rules.transitions import Invocation, apply_verb

S = Status
MAX_TRIES = 1000
EDITABLE_STATUSES = frozenset({S.DRAFT, S.UNCLAIMED})
LIZA_SPECS = ".liza/specs/"
_NEEDED = {"description": "--desc", "done_when": "--done", "scope": "--scope", "spec_ref": "--spec"}


@dataclass(frozen=True)
class TaskFields:
    """A task as somebody asks for it; None means "not said"."""

    id: str
    description: str | None = None
    done_when: str | None = None
    scope: str | None = None
    spec_ref: str | None = None
    priority: int | None = None
    depends_on: tuple[str, ...] | None = None
    max_iterations: int | None = None
    draft: bool = False

    def given_fields(self) -> dict[str, object]:
        """The fields that were said, as the board names them."""
        names = ("description", "done_when", "scope", "spec_ref", "priority", "depends_on", "max_iterations")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class RequestContext:
    """Who asks, when, and which of the specs that were named are really there."""

    invocation: Invocation
    specs: frozenset[str] = field(default_factory=frozenset)


def find_missing(state: State, task: Task, specs: frozenset[str]) -> tuple[str, ...]:
    """What stands in the way of anyone taking a task; empty when it is complete."""
    found = [f"{name} is missing ({option})" for name, option in _NEEDED.items() if not getattr(task, name).strip()]
    if task.spec_ref.strip() and task.spec_ref not in specs:
        there = "there" if task.spec_ref.startswith(LIZA_SPECS) else f"committed on {state.config.integration_branch}"
        found.append(f"spec {task.spec_ref} is not {there}")
    return tuple(found)


def add(state: State, wanted: Sequence[TaskFields], asked: RequestContext) -> State:
    """All of ``wanted``, or none: UNCLAIMED where complete, DRAFT where not or so asked. Raises Refused, Usage."""
    tasks = list(state.tasks)
    known = {task.id for task in tasks}
    for one in wanted:
        _refuse_numbers(one)
        if one.id in known:
            raise Refused(f"there is a task {one.id} already", f"liza task show {one.id}")
        known.add(one.id)
        tasks.append(_new(state, one, asked))
    grown = _reopen_goal(replace(state, tasks=tuple(tasks)))
    for one in wanted:
        _refuse_bad_dependencies(grown, one.id, one.depends_on or ())
    return grown


def _refuse_numbers(wanted: TaskFields) -> None:
    """Raises Usage for an id or a number that no task can have."""
    checked_id(wanted.id)
    for name, number, most in (("priority", wanted.priority, 9), ("max-iterations", wanted.max_iterations, MAX_TRIES)):
        if number is not None and not 1 <= number <= most:
            raise UsageError(f"the {name} of {wanted.id} is {number}; it is 1 to {most}", "liza task add --help")


def _reopen_goal(state: State) -> State:
    """More to do: a goal that was complete is under way again."""
    if state.goal.status != "COMPLETED":
        return state
    return replace(
        state, goal=replace(state.goal, status="IN_PROGRESS"), sprint=replace(state.sprint, status="IN_PROGRESS")
    )


def _new(state: State, wanted: TaskFields, asked: RequestContext) -> Task:
    said = asked.invocation
    task = Task(id=wanted.id, status=S.DRAFT, created=said.now, **wanted.given_fields())  # type: ignore[arg-type]
    missing = find_missing(state, task, asked.specs)
    if not wanted.draft and not missing:
        task = replace(task, status=S.UNCLAIMED)
    # What is missing is noted only where it is why the task is a draft: see rules/tasks/drafts.py.
    detail = None if wanted.draft else "; ".join(missing) or None
    added = Event(time=said.now, event="add", agent=said.by, run=said.run, detail=detail)
    return replace(task, history=(added,))


def edit(state: State, wanted: TaskFields, asked: RequestContext) -> State:
    """Change what was said of a task nobody holds; a DRAFT that is complete becomes UNCLAIMED. Raises Refused."""
    _refuse_numbers(wanted)
    task = get_task(state, wanted.id)
    if task.status not in EDITABLE_STATUSES:
        raise Refused(
            f"{task.id} is {task.status}: its text is fixed once somebody took it",
            f"liza task supersede {task.id} --file - --because WHY",
        )
    changes = {name: value for name, value in wanted.given_fields().items() if getattr(task, name) != value}
    changed = replace(task, **changes)
    missing = find_missing(state, changed, asked.specs)
    if missing and task.status is S.UNCLAIMED and changes:
        raise Refused(f"{task.id} would not be complete: {missing[0]}", f"liza task show {task.id}")
    ripe = task.status is S.DRAFT and not missing and not wanted.draft
    if not changes and not ripe:
        return state
    said = replace_said(asked.invocation, detail=None if wanted.draft else "; ".join(missing) or None)
    edited = state.with_task(apply_verb(changed, "ready" if ripe else "edit", said))
    _refuse_bad_dependencies(edited, task.id, changed.depends_on)
    return edited


def _refuse_bad_dependencies(state: State, task_id: str, depends_on: Iterable[str]) -> None:
    for other in depends_on:
        if state.task(other) is None:
            raise Refused(f"{task_id} depends on {other}, which is not on the board", "liza task list")
    loop = find_cycle(state, task_id)
    if loop:
        raise Refused(f"{task_id} would wait for itself: {' → '.join(loop)}", f"liza task show {task_id}")


def unblock(state: State, task_id: str, answers: Sequence[str], said: Invocation) -> State:
    """Answer a BLOCKED task's questions; the next try knows them. Raises Refused, Usage."""
    task = get_task(state, task_id)
    if task.status is not S.BLOCKED:
        raise Refused(f"{task_id} is {task.status}: it asks nothing", f"liza task show {task_id}")
    if len(task.failed_by) > 1:
        raise Refused(
            f"{', '.join(task.failed_by)} failed {task_id}: it wants another plan, not another try",
            f"liza task supersede {task_id} --file - --because 'the root cause'",
        )
    if not answers or not all(one.strip() for one in answers):
        raise UsageError(
            f"{task_id} asks: {' / '.join(task.blocked_questions)}", f'liza task unblock {task_id} --answer "…"'
        )
    questions = task.blocked_questions or (task.blocked_reason or "",)
    given = tuple(
        Answer(question=questions[min(number, len(questions) - 1)], answer=answer, by=said.by, timestamp=said.now)
        for number, answer in enumerate(answers)
    )
    freed = apply_verb(
        task,
        "unblock",
        said,
        answers=task.answers + given,
        attempted=(*task.attempted, task.blocked_reason or "blocked"),
        blocked_reason=None,
        blocked_questions=(),
        run=None,
        lease_expires=None,
        iteration=0,
        review_cycles_current=0,
        idle_sessions=0,
        reviews_without_verdict=0,
    )
    return state.with_task(freed)


def supersede(
    state: State, task_id: str, by: Sequence[TaskFields], existing: Sequence[str], asked: RequestContext
) -> State:
    """Other tasks take the place of this one; ``asked.said.detail`` is the root cause. Raises Refused, Usage."""
    task = _get_stoppable_task(state, task_id)
    if not (asked.invocation.detail or "").strip():
        raise UsageError(
            "superseding needs the root cause", f"liza task supersede {task_id} --by OTHER --because 'why'"
        )
    for other in existing:
        get_task(state, other)
    successors = (*existing, *(one.id for one in by))
    if not successors or task_id in successors:
        raise UsageError(
            f"{task_id} needs other tasks that take its place",
            f"liza task supersede {task_id} --by OTHER --because 'why'",
        )
    state = add(state, by, asked)
    gone = apply_verb(
        task,
        "supersede",
        asked.invocation,
        superseded_by=successors,
        rescope_reason=asked.invocation.detail,
        **_CLEARED_CLAIM,
    )
    state = state.with_task(gone)
    for other in successors:
        state = state.with_task(replace(get_task(state, other), supersedes=task_id))
    loop = find_cycle(state, task_id)
    if loop:
        raise Refused(f"{task_id} would wait for itself: {' → '.join(loop)}", f"liza task show {task_id}")
    return state


def drop(state: State, task_id: str, said: Invocation, dependants: str | None) -> State:
    """Not wanted any more. ``dependants``: ``cascade`` drops them too, ``unlink`` lets them go on. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is S.ABANDONED:
        return state
    task = _get_stoppable_task(state, task_id)
    leaning = [other for other in state.tasks if task_id in other.depends_on and other.status not in FINAL_STATUSES]
    if leaning and dependants is None:
        names = ", ".join(other.id for other in leaning)
        raise Refused(f"{names} depends on {task_id}", f"liza task drop {task_id} WHY --cascade (or --unlink)")
    state = state.with_task(apply_verb(task, "drop", said, **_CLEARED_CLAIM))
    for other in leaning:
        if dependants == "cascade":
            state = drop(state, other.id, said, dependants)
        else:
            rest = tuple(one for one in other.depends_on if one != task_id)
            state = state.with_task(replace(get_task(state, other.id), depends_on=rest))
    return state


_CLEARED_CLAIM: dict[str, object] = {
    "run": None,
    "reservation": None,
    "lease_expires": None,
    "reviewing_by": None,
    "review_run": None,
    "review_lease_expires": None,
    "merging": None,
    "handoff_pending": False,
}


def _get_stoppable_task(state: State, task_id: str) -> Task:
    task = get_task(state, task_id)
    if task.status in FINAL_STATUSES:
        raise Refused(f"{task_id} is {task.status}, which is final", f"liza task show {task_id}")
    if task.merging is not None and not task.merging.waiting and task.set_aside is None:
        raise Refused(f"{task_id} is being merged right now", f"liza task show {task_id}")
    return task
