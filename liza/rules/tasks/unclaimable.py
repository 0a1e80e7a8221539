"""Tasks that nobody can ever claim."""

from __future__ import annotations

from liza.rules.model import FINAL_STATUSES, State, Status

S = Status


def find_unclaimable(state: State) -> dict[str, str]:
    """Open tasks that wait for what can never be: each with the dependency that is lost."""
    lost = {task.id for task in state.tasks if task.status is S.ABANDONED}
    found: dict[str, str] = {}
    known = {task.id for task in state.tasks}
    while True:
        before = len(lost)
        for task in state.tasks:
            if task.id in lost:
                continue
            if task.status is S.SUPERSEDED:
                hopeless = not task.superseded_by or any(one in lost for one in task.superseded_by)
                lost |= {task.id} if hopeless else set()
            elif task.status is not S.MERGED:
                gone = next((one for one in task.depends_on if one in lost or one not in known), None)
                if gone is not None:
                    lost.add(task.id)
                    found[task.id] = f"{gone}, {_how_lost(state, gone)}"
        if len(lost) == before:
            return found


def _how_lost(state: State, task_id: str) -> str:
    task = state.task(task_id)
    if task is None:
        return "which is not on the board"
    return f"which is {task.status}" if task.status in FINAL_STATUSES else "which can never be claimed itself"
