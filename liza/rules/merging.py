"""Merging: which APPROVED task is next, and what the board says at each step."""

from __future__ import annotations

from msgspec.structs import replace

from liza.rules import invariants
from liza.rules.choose import unmet_dependencies
from liza.rules.errors import Refused
from liza.rules.model import Merging, State, Status, Task
from liza.rules.taking import find
from liza.rules.transitions import Said, move

S = Status


def next_to_merge(state: State) -> Task | None:
    """The best APPROVED task whose dependencies are met and that waits for no files of a person."""
    able = [
        task
        for task in state.tasks
        if task.status is S.APPROVED
        and hindrance(state, task) is None
        and not unmet_dependencies(state, task)
        and not (task.merging and task.merging.waiting)
    ]
    return min(able, key=lambda task: (task.priority, task.history[-1].time, task.id), default=None)


def hindrance(state: State, task: Task) -> str | None:
    """Why an APPROVED task must not be merged: no verdict on this very commit stands behind it. None when it may."""
    broken = invariants.of_entry("tasks", task.id, task, state)
    if broken:
        return f"it breaks a rule: {broken[0]}"
    verdicts = [event for event in task.history if event.event == "approve"]
    if not verdicts or verdicts[-1].commit != task.review_commit or verdicts[-1].agent != task.approved_by:
        return f"its history has no verdict on {(task.review_commit or 'no commit')[:12]}"
    return None


def approved(state: State, task_id: str) -> Task:
    """The task if it may be merged. Raises Refused."""
    task = find(state, task_id)
    if task.status is not S.APPROVED:
        raise Refused(f"{task_id} is {task.status}: only an APPROVED task is merged", f"liza task show {task_id}")
    why = hindrance(state, task)
    if why:
        raise Refused(f"{task_id} is APPROVED on the board and cannot be merged: {why}", f"liza history {task_id}")
    return task


def begin(state: State, task_id: str, merging: Merging) -> State:
    """A candidate is made and about to be tested; a merger that dies leaves this behind."""
    task = approved(state, task_id)
    return state.with_task(replace(task, merging=merging))


def waiting(state: State, task_id: str, files: tuple[str, ...]) -> State:
    """The candidate is tested, and changed files of a person's checkout are in its way."""
    task = approved(state, task_id)
    if task.merging is None:
        raise Refused(f"{task_id} has no candidate that could wait", f"liza merge {task_id}")
    return state.with_task(replace(task, merging=replace(task.merging, waiting=", ".join(files) or "files")))


def dropped(state: State, task_id: str) -> State:
    """The candidate came to nothing (its merger died, or integration moved on); the task is APPROVED as before."""
    task = find(state, task_id)
    return state.with_task(replace(task, merging=None)) if task.merging else state


def merged(state: State, task_id: str, said: Said, tested: bool) -> State:
    """``said.commit`` is in integration. Raises Refused."""
    task = find(state, task_id)
    if task.status is S.MERGED:
        return state
    done = move(approved(state, task_id), "merge", said, merge_commit=said.commit, tested=tested, merging=None)
    return state.with_task(done)


def failed(state: State, task_id: str, said: Said) -> State:
    """A conflict with integration, or red on the candidate: its coder mends it. Raises Refused."""
    back = move(approved(state, task_id), "merge failed", said, merging=None, approved_by=None)
    return state.with_task(back)
