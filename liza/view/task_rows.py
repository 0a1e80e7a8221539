"""task list, task show: return the tasks of the board or of the archive as rows, and all facts about one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.board.archived_entries import ArchivedEntry
from liza.crew.crew import Crew
from liza.merging.rules.merge_queue import queue_rows
from liza.model import history_events
from liza.model.derived import author_name
from liza.model.errors import LizaError, NotRegularFile, UsageError
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import branch_of
from liza.model.paths import check_task_id as checked_id
from liza.model.statuses import STATUS_SYNONYMS, TaskWord, find_statuses, task_word
from liza.model.value_classes import Value
from liza.model.value_classes import asdict as fields_of
from liza.tasks import archive, draft_specs
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.evidence import LazyChanges, gather_evidence
from liza.tasks.rules import claims, conversations, picking, submissions
from liza.tasks.rules.overlap import Overlap
from liza.text.formats import did_you_mean, find_synonym
from liza.view import activity
from liza.view.rules.picture import task_rows
from liza.view.rules.structs import TaskRow
from liza.view.status import find_off


class TaskList(Value):
    """Tasks in the order of the board, and how many tasks of the archive have the same statuses, by status."""

    tasks: tuple[TaskRow, ...]
    archived: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        return _list_fields([row.fields() for row in self.tasks], self.archived)


def list_tasks(crew: Crew, words: Sequence[str] | None = None) -> TaskList:
    """Return the tasks of the board. ``words``: the only statuses, or words for statuses.

    Raises UsageError for an unknown word.
    """
    wanted = _parse_statuses(words)
    state = crew.board.read()
    missing = draft_specs.find_incomplete_drafts(crew, state)
    tasks = (task for task in state.tasks if task.status in wanted)
    queue, shared = queue_rows(state, crew.clock.now()), _find_shared_files(crew, state)
    rows = task_rows(state, tasks, missing, find_off(crew, state), queue, shared)
    return TaskList(tuple(rows), _count_archived(state, wanted))


def list_archived(crew: Crew, words: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the tasks of the archive by id, with their outcomes. A task whose entry cannot be read has the ``error``,
    and is always among them.

    Raises UsageError for an unknown word, BoardInconsistent if the archive cannot be read.
    """
    wanted = _parse_statuses(words)
    state = crew.board.read()
    entries = crew.board.archived(set(crew.board.archived_ids()))
    rows = [
        _archived_row(task_id, entry)
        for task_id, entry in sorted(entries.items())
        if state.task(task_id) is None and (entry.error or (entry.task and entry.task.status in wanted))
    ]
    return _list_fields(rows, _count_archived(state, wanted))


def _archived_row(task_id: str, entry: ArchivedEntry) -> dict[str, Any]:
    task = None if entry.error else entry.task
    return {
        "id": task_id,
        "status": task.status.value if task else "",
        "error": entry.error,
        "merge_commit": task and task.merge_commit,
        "review_commit": task and task.review_commit,
        "superseded_by": list(task.superseded_by) if task else [],
        "undone": history_events.describe_undo(task) if task else "",
    }


def _list_fields(tasks: list[dict[str, Any]], archived: Mapping[str, int]) -> dict[str, Any]:
    return {"tasks": tasks, "archived": {"total": sum(archived.values()), "by_status": dict(archived)}}


def _count_archived(state: State, wanted: frozenset[Status]) -> dict[str, int]:
    return {name: number for name, number in state.archived.counts.items() if name in wanted}


def _parse_statuses(words: Sequence[str] | None) -> frozenset[Status]:
    """Return the statuses that are meant; all without a word."""
    return frozenset().union(*map(_parse_status, words)) if words else frozenset(Status)


def _parse_status(word: str) -> frozenset[Status]:
    if meant := find_statuses(word):
        return meant
    try:
        return frozenset({Status(word.upper().replace("-", "_"))})
    except ValueError:
        names = [*TaskWord, *Status]
        expected = f"one of {', '.join(names)}{did_you_mean(word, names, STATUS_SYNONYMS)}"
        status = find_synonym(word, STATUS_SYNONYMS)
        step = f"liza task list --status {task_word(status).replace(' ', '-')}" if status else "liza task list"
        raise UsageError(f"{word!r} is not a status; expected {expected}", step) from None


_MERGE_FAILURE_STATUSES = (Status.INTEGRATION_FAILED, Status.CLAIMED, Status.BLOCKED)


def show_task(crew: Crew, task_id: str) -> dict[str, Any]:
    """Return a task's fields with its branch, directory, dependencies, missing parts, hand-off and notes.

    Raises UnknownId, UsageError.
    """
    state = archive.with_archived(crew.board, crew.board.read(), checked_id(task_id))
    task = claims.get_task(state, task_id)
    link = crew.paths.task_link(task.id)
    is_draft = task.status is Status.DRAFT
    return {
        **fields_of(task),
        "branch": task.submission.branch if task.submission and not task.assigned_to else branch_of(task.id),
        "author": "" if task.submission is None else author_name(task.submission),
        "submitted_from": "" if task.submission is None else submissions.describe_place(task.submission),
        "directory": str(link) if link.is_symlink() and crew.is_here(task) else None,
        "missing": draft_specs.find_missing_parts(crew, state, task, find_existing_specs(crew, [task.spec_ref])).missing
        if is_draft
        else (),
        "merge_failed": history_events.last_failure(task) if task.status in _MERGE_FAILURE_STATUSES else "",
        "waits_for": picking.unmet_dependencies(state, task) if task.status not in FINAL_STATUSES else (),
        "overlaps": _find_shared_files(crew, state).get(task.id, ()),
        "routing": _routing_row(crew, state, task),
        "conversation": _conversation_row(crew, task),
        "handoff": state.handoff.get(task.id),
        "notes": [note.message for note in state.human_notes if note.recipient == task.id],
        **_work_row(crew, state, task),
    }


def _find_shared_files(crew: Crew, state: State) -> dict[str, tuple[Overlap, ...]]:
    return picking.find_shared_files(state, LazyChanges(crew, state))


def _routing_row(crew: Crew, state: State, task: Task) -> dict[str, Any] | None:
    """Return for which idle agent a task is kept, why, and for how many seconds; None if any agent may take it."""
    best = picking.preferred_agent(state, task, crew.clock.now(), gather_evidence(crew, state))
    return None if best is None else {"agent": best.agent, "why": best.why, "seconds": best.seconds, "fits": best.fits}


def _conversation_row(crew: Crew, task: Task) -> dict[str, Any] | None:
    """Return which run's conversation the last session ``continues``, or ``why`` it began a new one.

    None without a session, if its record is archived or cannot be read, and for the first session of a task.
    """
    runs = conversations.earlier_runs(task, "")
    try:
        record = crew.run_dir(runs[0]).read_record() if runs else None
    except (LizaError, OSError, NotRegularFile):
        return None
    if record is None or not (record.continues or record.new_because):
        return None
    return {"run": record.run, "continues": record.continues, "why": record.new_because}


def _work_row(crew: Crew, state: State, task: Task) -> dict[str, Any]:
    """Agent that works on a task, its activity, and for how long; nulls if no agent works on it."""
    agent = task.reviewing_by or (task.assigned_to if task.status is Status.CLAIMED else None)
    current = None if agent is None else activity.find_activity(crew, state, agent)
    if current is None:
        return {"who": agent, "doing": None, "since": None, "seconds": None}
    return {"who": agent, "doing": current.label, "since": current.since, "seconds": current.seconds(crew.clock.now())}
