"""Verbs of planners and people on tasks: add, edit, unblock, supersede, drop; a task of one sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from liza.board.rules.archiving import with_outcomes
from liza.breaker.rules.board_reports import convert_discovery
from liza.model import targets
from liza.model.derived import submit_command
from liza.model.errors import Refused, UsageError
from liza.model.history_events import HistoryEvent
from liza.model.invariants import find_cycle
from liza.model.model import FINAL_STATUSES, Answer, Epic, Event, State, Status, Task
from liza.model.paths import check_task_id as checked_id
from liza.model.paths import is_person
from liza.model.statuses import GoalStatus, SprintStatus, describe_task
from liza.model.transitions import Invocation, apply_verb
from liza.model.value_classes import Value, field, replace
from liza.tasks.rules import claims, reviews
from liza.tasks.rules.claims import get_task
from liza.text.formats import to_ascii

S = Status
E = HistoryEvent
MAX_TRIES = 1000  # largest max_iterations that a task can have
EDITABLE_STATUSES = frozenset({S.DRAFT, S.UNCLAIMED})
LIZA_SPECS = ".liza/specs/"
_NEEDED = {"description": "--desc", "done_when": "--done", "scope": "--scope", "spec_ref": "--spec"}


class TaskFields(Value):
    """Fields of a task in a request. None: not given. ``from_discovery``: id of the discovery that it is added for."""

    id: str
    description: str | None = None
    done_when: str | None = None
    scope: str | None = None
    spec_ref: str | None = None
    priority: int | None = None
    depends_on: tuple[str, ...] | None = None
    max_iterations: int | None = None
    epic: str | None = None
    target: str | None = None
    draft: bool = False
    review: str | None = None
    from_discovery: str | None = None

    def given_fields(self) -> dict[str, Any]:
        """Return the fields that were given, by their names on the board."""
        names = [name for name in self.__struct_fields__ if name not in ("id", "draft", "from_discovery")]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class RequestContext(Value):
    """Caller and time of a request, those of the named specs that exist, and those of the named tasks in the archive,
    with their outcomes. ``new_epics``: those whose branch was created for this request; it has the tasks ``delivered``.
    """

    invocation: Invocation
    specs: frozenset[str] = field(default_factory=frozenset)
    archived: Mapping[str, Status] = field(default_factory=dict)
    new_epics: frozenset[str] = frozenset()
    delivered: frozenset[str] = frozenset()


class MissingField(Value):
    """A field that a task lacks, and the option that supplies it."""

    name: str
    option: str

    def __str__(self) -> str:
        return f"{self.name} is missing ({self.option})"


class MissingSpec(Value):
    """A spec document that agents cannot read. ``branch`` must have it; None if it is a file of Liza's directory."""

    spec: str
    branch: str | None

    def __str__(self) -> str:
        return f"spec {self.spec} is not {'there' if self.branch is None else f'committed on {self.branch}'}"


MissingPart = MissingField | MissingSpec


def find_missing(state: State, task: Task, specs: frozenset[str]) -> tuple[MissingPart, ...]:
    """Return what a task lacks before an agent can claim it; empty if it is complete."""
    missing: list[MissingPart] = [
        MissingField(name, option) for name, option in _NEEDED.items() if not getattr(task, name).strip()
    ]
    if task.spec_ref.strip() and task.spec_ref not in specs:
        is_own = task.spec_ref.startswith(LIZA_SPECS)
        missing.append(MissingSpec(task.spec_ref, None if is_own else state.config.integration_branch))
    return tuple(missing)


def describe_missing(missing: Iterable[MissingPart]) -> str | None:
    """Return what a task lacks as one text, for its history; None if it lacks nothing."""
    return "; ".join(map(str, missing)) or None


def add(state: State, wanted: Sequence[TaskFields], context: RequestContext) -> State:
    """Add all of ``wanted``, or none. A task is UNCLAIMED if complete, else, or if requested, DRAFT.

    Raises Refused, UsageError.
    """
    tasks = list(state.tasks)
    ids = {task.id for task in tasks}
    for fields in wanted:
        _refuse_numbers(fields)
        refuse_taken_id(fields.id, ids, context.archived)
        ids.add(fields.id)
        tasks.append(_new(state, fields, context))
    grown = with_outcomes(_reopen_goal(replace(state, tasks=tuple(tasks))), context.archived)
    for epic in dict.fromkeys(fields.epic for fields in wanted if fields.epic is not None):
        is_new = epic in context.new_epics
        lacks = {task.id for task in grown.tasks if task.id not in context.delivered}
        entry = grown.epics.get(epic, Epic())
        grown = targets.record_contained(grown, epic, lacks) if is_new else targets.with_epic(grown, epic, entry)
    for fields in wanted:
        _refuse_bad_dependencies(grown, fields.id, fields.depends_on or ())
    return _convert_discoveries(grown, wanted)


def refuse_taken_id(task_id: str, ids: Collection[str], archived: Collection[str]) -> None:
    """Raise Refused if a task on the board or in the archive has this id."""
    if task_id in ids:
        raise Refused(f"there is a task {task_id} already", f"liza task show {task_id}")
    if task_id in archived:
        raise Refused(f"the id {task_id} belongs to a task in the archive", f"liza task show {task_id}")


def _convert_discoveries(state: State, wanted: Sequence[TaskFields]) -> State:
    """Record the new tasks in the discoveries that they are added for. Raises Refused, UnknownId."""
    pairs = [(fields.from_discovery, fields.id) for fields in wanted if fields.from_discovery is not None]
    if pairs:
        for discovery, task in pairs:
            state = convert_discovery(state, discovery, task)
    return state


def _refuse_numbers(wanted: TaskFields) -> None:
    """Raise UsageError if the id, a branch, the priority (1 to 9) or max_iterations (1 to MAX_TRIES) is invalid."""
    checked_id(wanted.id)
    if wanted.review not in (None, "agent", "human"):
        message = f"the review of {wanted.id} is {wanted.review!r}, expected agent or human"
        raise UsageError(message, "liza task add --help")
    if wanted.epic is not None:
        checked_id(wanted.epic)
    if wanted.target is not None and (wanted.epic is not None or not targets.is_target_name(wanted.target)):
        expected = "an epic and a target branch" if wanted.epic is not None else f"the target {wanted.target!r}"
        raise UsageError(f"{wanted.id} cannot have {expected}", "liza task add --help")
    for name, number, most in (("priority", wanted.priority, 9), ("max-iterations", wanted.max_iterations, MAX_TRIES)):
        if number is not None and not 1 <= number <= most:
            raise UsageError(f"the {name} of {wanted.id} is {number}; it is 1 to {most}", "liza task add --help")


def _reopen_goal(state: State) -> State:
    """Return the board with a completed goal and its sprint set to IN_PROGRESS again."""
    if state.goal.status != GoalStatus.COMPLETED:
        return state
    return replace(
        state,
        goal=replace(state.goal, status=GoalStatus.IN_PROGRESS.value),
        sprint=replace(
            state.sprint,
            status=SprintStatus.IN_PROGRESS.value,
            timeline=replace(state.sprint.timeline, ended=None),
            retrospective=None,
        ),
    )


def _new(state: State, wanted: TaskFields, context: RequestContext) -> Task:
    invocation = context.invocation
    task = Task(id=wanted.id, status=S.DRAFT, created=invocation.now, **wanted.given_fields())
    missing = find_missing(state, task, context.specs)
    if not wanted.draft and not missing:
        task = replace(task, status=S.UNCLAIMED)
    # Missing parts are recorded only if they are the reason why the task is a draft: see task_groups.is_incomplete.
    detail = None if wanted.draft else describe_missing(missing)
    added = Event(time=invocation.now, event=E.ADD.value, agent=invocation.by, run=invocation.run, detail=detail)
    return replace(task, history=(added,))


def edit(state: State, wanted: TaskFields, context: RequestContext) -> State:
    """Change the fields of a task that is not claimed. A complete DRAFT becomes UNCLAIMED. Raises Refused."""
    _refuse_numbers(wanted)
    task = get_task(state, wanted.id)
    if task.status not in (*EDITABLE_STATUSES, *FINAL_STATUSES) and task.submission and not claims.is_of_crew(task):
        raise Refused(
            f"{describe_task(task.id, task.status)}: submitted work is changed by another commit or --desc, or is "
            f'dropped (liza task drop {task.id} "…")',
            submit_command(task.submission),
        )
    if task.status not in EDITABLE_STATUSES:
        raise Refused(
            f"{describe_task(task.id, task.status)}: it can be edited only before it is claimed",
            f'liza task supersede {task.id} --by "…" --because "…"',
        )
    _refuse_agent_review(task, wanted, context.invocation)
    changes = {name: value for name, value in wanted.given_fields().items() if getattr(task, name) != value}
    changed = replace(task, **changes)
    missing = find_missing(state, changed, context.specs)
    if missing and task.status is S.UNCLAIMED and changes:
        raise Refused(f"{task.id} would not be complete: {missing[0]}", f"liza task show {task.id}")
    is_ready = task.status is S.DRAFT and not missing and not wanted.draft
    if not changes and not is_ready:
        return state
    invocation = replace(context.invocation, detail=None if wanted.draft else describe_missing(missing))
    edited = state.with_task(apply_verb(changed, E.READY if is_ready else E.EDIT, invocation))
    edited = with_outcomes(edited, context.archived)
    _refuse_bad_dependencies(edited, task.id, changed.depends_on)
    return edited


def _refuse_agent_review(task: Task, wanted: TaskFields, invocation: Invocation) -> None:
    """Raise Refused if an agent gives a review to agents that a person has kept for people."""
    if task.review == "human" and wanted.review == "agent" and not is_person(invocation.by or ""):
        raise Refused(f"a person reviews {task.id}: only a person can change that", f"liza task show {task.id}")


def _refuse_bad_dependencies(state: State, task_id: str, depends_on: Iterable[str]) -> None:
    for other in depends_on:
        if state.task(other) is None and other not in state.archived.outcomes:
            raise Refused(f"{task_id} depends on {other}, which is not on the board", "liza task list")
    task = get_task(state, task_id)
    other_target = targets.mismatched_target(state, task)
    if other_target is not None:
        message = f"{task_id} cannot depend on {other_target}: they are merged into different branches"
        raise Refused(message, f"liza task show {other_target}")
    loop = find_cycle(state, task_id)
    if loop:
        raise Refused(f"{task_id} would wait for itself: {' → '.join(loop)}", f"liza task show {task_id}")


_HELD_BY_NONE: Final = (S.UNCLAIMED, S.REJECTED, S.INTEGRATION_FAILED, S.BLOCKED)


def restart_counts(state: State, task_id: str) -> State:
    """Count the failures of a task anew if no session works on it: a note of a person about it is a new plan."""
    task = get_task(state, task_id)
    if task.status not in _HELD_BY_NONE:
        return state
    return state.with_task(replace(_with_restarted_counts(task), failed_by=()))


def _with_restarted_counts(task: Task) -> Task:
    return replace(task, iteration=0, review_cycles_current=0, idle_sessions=0)


def unblock(state: State, task_id: str, answers: Sequence[str], invocation: Invocation) -> State:
    """Answer the questions of a BLOCKED task; the next try gets the answers. Raises Refused, UsageError.

    The answer of a person is a new plan: coders that failed the task may take it again. If its reviews had no verdict,
    the submitted commit is reviewed again.
    """
    task = get_task(state, task_id)
    if task.status is not S.BLOCKED:
        raise Refused(
            f"{describe_task(task_id, task.status)}: it asks nothing (only a blocked task can be unblocked)",
            f"liza task show {task_id}",
        )
    is_new_plan = invocation.by is not None and is_person(invocation.by)
    is_review = reviews.asks_for_review(task)
    if len(task.failed_by) > 1 and not is_new_plan and not is_review:
        raise Refused(
            f"{', '.join(task.failed_by)} failed {task_id}: it needs another plan, not another try",
            f'liza task supersede {task_id} --by "…" --because "…"',
        )
    if not answers or not all(answer.strip() for answer in answers):
        raise UsageError(
            f"{task_id} asks: {' / '.join(task.blocked_questions)}", f'liza task unblock {task_id} --answer "…"'
        )
    questions = task.blocked_questions or (task.blocked_reason or "",)
    new_answers = tuple(
        Answer(
            question=questions[min(number, len(questions) - 1)],
            answer=answer,
            by=invocation.by or "",
            timestamp=invocation.now,
        )
        for number, answer in enumerate(answers)
    )
    answered = {
        "answers": task.answers + new_answers,
        "blocked_reason": None,
        "blocked_questions": (),
        "reviews_without_verdict": 0,
    }
    if is_review:
        return state.with_task(apply_verb(task, E.UNBLOCK_REVIEW, invocation, **answered))
    freed = apply_verb(
        _with_restarted_counts(task),
        E.UNBLOCK,
        invocation,
        **answered,
        attempted=(*task.attempted, task.blocked_reason or "blocked"),
        run=None,
        lease_expires=None,
        failed_by=() if is_new_plan else task.failed_by,
    )
    return state.with_task(freed)


def supersede(
    state: State, task_id: str, by: Sequence[TaskFields], existing: Sequence[str], context: RequestContext
) -> State:
    """Replace this task with other tasks, also after its merge was undone. ``context.invocation.detail`` is the root
    cause.

    Raises Refused, UsageError.
    """
    task = get_task(state, task_id)
    if task.status is not S.ABANDONED or task.undo is None:
        task = _get_stoppable_task(state, task_id)
    if not (context.invocation.detail or "").strip():
        raise UsageError("superseding needs the root cause", f'liza task supersede {task_id} --by "…" --because "…"')
    for other in existing:
        if other not in context.archived:
            get_task(state, other)
    successors = (*existing, *(fields.id for fields in by))
    if not successors or task_id in successors:
        raise UsageError(
            f"{task_id} needs other tasks that take its place",
            f'liza task supersede {task_id} --by "…" --because "…"',
        )
    state = add(state, [_in_place_of(task, fields) for fields in by], context)
    superseded = apply_verb(
        task,
        E.SUPERSEDE,
        context.invocation,
        superseded_by=successors,
        rescope_reason=context.invocation.detail,
        **_CLEARED_CLAIM,
    )
    state = with_outcomes(state.with_task(superseded), context.archived)
    for other in successors:
        if state.task(other) is not None:
            state = state.with_task(replace(get_task(state, other), supersedes=task_id))
    # A task that depends on it waits for all open tasks of the epic of a successor, and one of them may wait for it.
    for name in (task_id, *_open_dependents(state, task_id)):
        other_target = targets.mismatched_target(state, get_task(state, name)) if name != task_id else None
        if other_target is not None:
            message = f"{name} depends on {task_id}, and {other_target} is merged into a different branch than {name}"
            raise Refused(message, f"liza task show {other_target}")
        loop = find_cycle(state, name)
        if loop:
            raise Refused(f"{name} would wait for itself: {' → '.join(loop)}", f"liza task show {name}")
    return state


def _open_dependents(state: State, task_id: str) -> tuple[str, ...]:
    """Return the open tasks that depend on a task, or on one that it replaces, at any distance."""
    names: set[str] = set()
    replaced = {task_id}
    while replaced:
        names |= replaced
        replaced = {task.id for task in state.tasks if replaced.intersection(task.superseded_by)} - names
    return tuple(
        task.id for task in state.tasks if task.status not in FINAL_STATUSES and names.intersection(task.depends_on)
    )


def _in_place_of(task: Task, fields: TaskFields) -> TaskFields:
    """Return the fields of a successor: it is merged where the task would have been, unless it says otherwise.

    If a person reviews the task, a person reviews its successors.
    """
    if task.review == "human":
        fields = replace(fields, review=task.review)
    if fields.epic is not None or fields.target is not None:
        return fields
    return replace(fields, epic=task.epic, target=task.target)


STACK_HOLD: Final = "built on an earlier state of "
"""Begin of the reason of a hold that ends with the next commit of the held branch."""


def hold_without(upper: Task, dropped: str) -> Task:
    """Return the task, kept out of the queue if its branch contains the commits of a task that was dropped."""
    if upper.submission is None or upper.merge_hold is not None:
        return upper
    message = f"{STACK_HOLD}{dropped}, which was dropped: its branch contains those commits"
    return replace(upper, merge_hold=message)


def drop(state: State, task_id: str, invocation: Invocation, dependants: str | None) -> State:
    """Drop a task. ``dependants``: ``cascade`` drops them too, ``unlink`` removes the dependency. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is S.ABANDONED:
        return state
    task = _get_stoppable_task(state, task_id)
    dependents = [other for other in state.tasks if task_id in other.depends_on and other.status not in FINAL_STATUSES]
    if dependents and dependants is None:
        names = ", ".join(other.id for other in dependents)
        raise Refused(
            f"{names} depends on {task_id}: drop that too (--cascade) or remove the dependency (--unlink)",
            f'liza task drop {task_id} "…" --cascade',
        )
    state = state.with_task(apply_verb(task, E.DROP, invocation, **_CLEARED_CLAIM))
    for other in dependents:
        if dependants == "cascade":
            state = drop(state, other.id, invocation, dependants)
        else:
            rest = tuple(dependency for dependency in other.depends_on if dependency != task_id)
            state = state.with_task(hold_without(replace(get_task(state, other.id), depends_on=rest), task_id))
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
        raise Refused(f"{describe_task(task_id, task.status)}, which is final", f"liza task show {task_id}")
    if task.is_being_merged:
        raise Refused(f"{task_id} is being merged right now", f"liza task show {task_id}")
    return task


MAX_SENTENCE: Final = 2000  # characters
_MAX_ID: Final = 32
_DEFAULT_ID: Final = "task"


def check_sentence(text: str) -> str:
    """Return the sentence with single spaces. Raises UsageError if it is empty or too long."""
    sentence = " ".join(text.split())
    if not sentence or len(sentence) > MAX_SENTENCE:
        actual = f"{len(sentence)} characters" if sentence else "empty"
        raise UsageError(f"the sentence is {actual}; it can have 1 to {MAX_SENTENCE}", "liza task add --help")
    return sentence


def choose_task_id(sentence: str, taken: Container[str]) -> str:
    """Return an id of the first words of the sentence that is not ``taken``."""
    slug = ""
    for word in re.findall(r"[a-z0-9]+", to_ascii(sentence)):
        longer = f"{slug}-{word}" if slug else word[:_MAX_ID]
        if len(longer) > _MAX_ID:
            break
        slug = longer
    name = slug or _DEFAULT_ID
    return next(task_id for number in count(1) if (task_id := name if number == 1 else f"{name}-{number}") not in taken)


def find_open_task(state: State, sentence: str) -> Task | None:
    """Return the open task that was made of the same sentence, or None: a repeated command adds no second one."""
    return next(
        (task for task in state.tasks if task.description == sentence and task.status not in FINAL_STATUSES), None
    )


def sentence_fields(task_id: str, sentence: str) -> TaskFields:
    """Return the fields of the task. Its condition tells the coder and the reviewer that there is only a sentence."""
    return TaskFields(
        task_id,
        description=sentence,
        done_when=f"A test or another command shows that this holds: {sentence}\n"
        "The task comes from one sentence of a person. Judge the work by the sentence, and what it leaves open by the "
        "conventions of the project.",
        scope="what the sentence needs, and its tests",
        spec_ref=sentence_spec_path(task_id),
    )


def sentence_spec_path(task_id: str) -> str:
    """Return the path of the document, relative to the root of the crew."""
    return f"{LIZA_SPECS}{task_id}.md"


def compose_sentence_spec(sentence: str) -> str:
    """Return the document of the task."""
    return (
        f"# {sentence}\n\n"
        "A person asked for this in one sentence; there is no other document. What it leaves open follows from the "
        "code and the conventions of the project. If it can mean two different things, ask.\n"
    )
