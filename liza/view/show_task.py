"""task show: return all about one task."""

from __future__ import annotations

from typing import Any

from liza.crew.crew import Crew
from liza.model import merge_failures
from liza.model.errors import LizaError, NotRegularFile
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.paths import branch_of
from liza.model.paths import check_task_id as checked_id
from liza.model.value_classes import asdict as fields_of
from liza.tasks import archived_tasks, draft_specs
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import claims, conversations, picking
from liza.view import activity

_MERGE_FAILURE_STATUSES = (Status.INTEGRATION_FAILED, Status.CLAIMED, Status.BLOCKED)


def show_task(crew: Crew, task_id: str) -> dict[str, Any]:
    """Return a task's fields with its branch, directory, dependencies, missing parts, hand-off and notes.

    Raises UnknownId, UsageError.
    """
    state = archived_tasks.with_archived(crew.paths, crew.board.read(), checked_id(task_id))
    task = claims.get_task(state, task_id)
    link = crew.paths.task_link(task.id)
    is_draft = task.status is Status.DRAFT
    return {
        **fields_of(task),
        "branch": branch_of(task.id),
        "directory": str(link) if link.is_symlink() else None,
        "missing": draft_specs.find_missing_parts(crew, state, task, find_existing_specs(crew, [task.spec_ref])).missing
        if is_draft
        else (),
        "merge_failed": merge_failures.last_failure(task) if task.status in _MERGE_FAILURE_STATUSES else "",
        "waits_for": picking.unmet_dependencies(state, task) if task.status not in FINAL_STATUSES else (),
        "routing": _routing_row(crew, state, task),
        "conversation": _conversation_row(crew, task),
        "handoff": state.handoff.get(task.id),
        "notes": [note.message for note in state.human_notes if note.recipient == task.id],
        **_work_row(crew, state, task),
    }


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
    return {"who": agent, **activity.activity_row(crew, state, agent or "")}
