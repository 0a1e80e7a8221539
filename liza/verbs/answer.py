"""The questions that tasks ask a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from liza.crew.crew import Crew
from liza.rules.errors import Refused
from liza.rules.model import Status, Task
from liza.rules.paths import check_task_id as checked_id
from liza.rules.tasks import claims, planning


@dataclass(frozen=True)
class OpenQuestion:
    """A BLOCKED task, why it is blocked, what it asks, and since when."""

    task: str
    description: str
    reason: str
    questions: tuple[str, ...]
    since: datetime | None
    seconds: int | None
    next: str


def find_open_questions(crew: Crew, task_id: str | None = None) -> list[OpenQuestion]:
    """What waits for an answer of a person, the oldest first; of one task where that is named.

    Raises UnknownId, Refused where the named task asks nothing.
    """
    state = crew.board.read()
    if task_id is not None:
        named = claims.get_task(state, checked_id(task_id))
        if not _is_answerable(named):
            raise Refused(f"{named.id} is {named.status}: it asks nothing", f"liza task show {named.id}")
        return [_open_question(crew, named)]
    found = [_open_question(crew, task) for task in state.tasks if _is_answerable(task)]
    return sorted(found, key=lambda one: -(one.seconds or 0))


def _is_answerable(task: Task) -> bool:
    """Whether an answer frees it: one that several coders failed at wants another plan."""
    return task.status is Status.BLOCKED and len(task.failed_by) < planning.MAX_FAILED_CODERS


def _open_question(crew: Crew, task: Task) -> OpenQuestion:
    since = task.history[-1].time if task.history else None
    seconds = None if since is None else max(0, int((crew.clock.now() - since).total_seconds()))
    questions = task.blocked_questions or (task.blocked_reason or "",)
    step = f'liza answer {task.id} "…"'
    return OpenQuestion(task.id, task.description, task.blocked_reason or "", questions, since, seconds, step)
