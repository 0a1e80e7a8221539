"""path: return the path of a task's worktree."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.model.errors import Refused
from liza.model.paths import check_task_id
from liza.model.state_words import describe_task
from liza.tasks import archived_tasks
from liza.tasks.rules import claims


def find_worktree(crew: Crew, task_id: str) -> str:
    """Return the path of the link to a task's worktree. Raises UnknownId, Refused if the task has no worktree."""
    state = archived_tasks.with_archived(crew.paths, crew.board.read(), check_task_id(task_id))
    task, link = claims.get_task(state, task_id), crew.paths.task_link(task_id)
    if link.is_dir():
        return str(link)
    if task.worktree is None:
        raise Refused(f"{describe_task(task_id, task.status)}: it has no worktree", f"liza task show {task_id}")
    raise Refused(f"the worktree of {task_id} is not complete", "liza doctor --fix")
