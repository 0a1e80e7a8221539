"""Claims of a program that Liza did not start: the task is bound to that program's own worktree, and has no slot.

Such a task is CLAIMED without ``Task.worktree``; its ``submission`` names the directory. The claim has one phase: there
is no worktree to create.
"""

from __future__ import annotations

from datetime import datetime
from itertools import count
from typing import Any, Final

from liza.model.errors import NotOwner, Refused
from liza.model.history_events import HistoryEvent
from liza.model.model import FINAL_STATUSES, Handoff, State, Status, Submission, Task
from liza.model.paths import agent_of
from liza.model.setting_limits import lease_expiry
from liza.model.transitions import Invocation, apply_verb, has_done
from liza.model.value_classes import Value, replace
from liza.tasks.rules import claims, coding, picking, submissions
from liza.tasks.rules.coding import SubmittedWork
from liza.tasks.rules.picking import Evidence
from liza.tasks.rules.submissions import OutsideWork

S = Status
E = HistoryEvent
FIRST_NUMBER: Final = 101
"""Coders of `liza up` count from 1: none of them goes on with the claim of a program that was started elsewhere."""
_WITHOUT_OWNER: Final[dict[str, Any]] = {"assigned_to": None, "run": None, "lease_expires": None}


class BoundWorktree(Value):
    """The worktree of the program that claims: its ``path``, and the merge base ``base`` of its HEAD and the target."""

    path: str
    base: str
    program: str = ""
    host: str = ""


def is_bound(task: Task) -> bool:
    """Return whether a program that Liza did not start works on a task, in its own worktree."""
    return task.status is S.CLAIMED and task.submission is not None and not task.worktree


def refuse_bound(state: State, agent: str) -> None:
    """Raise Refused if an agent has the claim of a program that Liza did not start: no supervisor goes on with it."""
    for task in state.tasks:
        if is_bound(task) and task.assigned_to == agent and task.submission is not None:
            message = f"{agent} has {task.id} for a program in {task.submission.worktree}, which runs"
            raise Refused(message, f"liza task release {task.id}")


def is_of_worktree(task: Task, path: str, host: str) -> bool:
    """Return whether the author of a task works in the worktree ``path`` of a host."""
    submission = task.submission
    return submission is not None and submission.worktree == path != "" and submissions.is_on_host(submission, host)


def list_tasks_of(state: State, path: str, host: str) -> tuple[Task, ...]:
    """Return the open tasks whose author works in the worktree ``path`` of a host."""
    return tuple(task for task in state.tasks if is_of_worktree(task, path, host) and task.status not in FINAL_STATUSES)


def choose_agent(state: State, task: Task) -> str:
    """Return the first free coder, by number, that the task may have."""
    names = (f"coder-{number}" for number in count(FIRST_NUMBER))
    return next(name for name in names if not picking.occupation(state, name) and name not in task.failed_by)


def choose_task(state: State, path: str, now: datetime, evidence: Evidence, host: str) -> str | None:
    """Return the task that a program claims which names none: returned work of its worktree first."""
    own = [task for task in list_tasks_of(state, path, host) if task.status in picking.CLAIMABLE_STATUSES]
    candidates = [*own, *sorted(state.tasks, key=lambda task: (task.priority, task.id))]
    return next((task.id for task in candidates if find_obstacle(state, task, path, now, evidence, host) is None), None)


def find_obstacle(state: State, task: Task, path: str, now: datetime, evidence: Evidence, host: str) -> str | None:
    """Return why no program in the worktree ``path`` of a host may claim the task; None if one may."""
    if task.status is S.CLAIMED:
        return f"{task.assigned_to} works on it"
    own = is_of_worktree(task, path, host)
    return picking.claim_obstacle(state, task, choose_agent(state, task), now, evidence, is_own_worktree=own)


def claim(
    state: State, task_id: str, agent: str, worktree: BoundWorktree, now: datetime, evidence: Evidence
) -> tuple[State, str]:
    """Make a task CLAIMED by a new run of the agent, bound to the worktree. Raises Refused."""
    task = claims.get_task(state, task_id)
    why = find_obstacle(state, task, worktree.path, now, evidence, worktree.host)
    if why is None and (busy := picking.occupation(state, agent)):
        why = f"{agent} is busy with {busy}"
    if why:
        raise Refused(f"{task_id} cannot be claimed: {why}", f"liza task show {task_id}")
    state, run = claims.allocate_run(state, agent)
    former = task.submission or Submission()
    claimed = apply_verb(
        task,
        E.CLAIM,
        Invocation(now=now, by=agent, run=run, commit=worktree.base, detail=f"in {worktree.path}"),
        assigned_to=agent,
        run=run,
        worktree=None,
        base_commit=worktree.base,
        lease_expires=lease_expiry(state.config, now),
        iteration=task.iteration + 1,
        integration_fix=task.integration_fix or task.status is S.INTEGRATION_FAILED,
        handoff_pending=False,
        submission=replace(
            former,
            worktree=worktree.path,
            host=worktree.host,
            fix="author",
            program=worktree.program or former.program,
        ),
    )
    return state.with_task(claimed), run


def submit(
    state: State, task_id: str, run: str, work: SubmittedWork, outside: OutsideWork | None, now: datetime
) -> State:
    """Submit the work of a bound task. It has no owner then: its reviewers need not wait for the session's end.

    ``outside``: what it contains; None to ask only whether it is refused. The same commit again changes nothing; a
    later one is reviewed instead. Raises Refused, NotOwner.
    """
    task = claims.get_task(state, task_id)
    is_waiting = task.status is S.READY_FOR_REVIEW and has_done(task, E.SUBMIT, run)
    if not is_waiting and task.run != run:
        raise NotOwner(
            f"You no longer own this task: {run} asks for {task_id}, and it is {task.status}",
            f"liza task show {task_id}",
        )
    if is_waiting and work.head == task.review_commit:
        return state
    held = state.with_task(replace(task, run=run)) if is_waiting else state
    submitted = claims.get_task(coding.submit(held, task_id, run, work, now), task_id)
    state = state.with_task(replace(submitted, **_WITHOUT_OWNER))
    return state if outside is None else submissions.record_contents(state, task, outside)


def hand_off(state: State, task_id: str, run: str, note: Handoff, now: datetime) -> State:
    """End the claim of a session that is over: the task is UNCLAIMED, with a note. Unchanged if ``run`` lost it."""
    task = claims.get_task(state, task_id)
    if not is_bound(task) or task.run != run:
        return state
    handed = coding.handoff(state, task_id, run, note, now)
    return claims.release(handed, task_id, run, now, agent_of(run), "its program ended")


def leave(state: State, path: str, host: str) -> State:
    """Let the crew go on with the tasks of a worktree whose program is gone, but for work that its author submitted."""
    for task in list_tasks_of(state, path, host):
        if not is_left(task):
            continue
        is_in_review = task.review_commit is not None and task.status not in (S.UNCLAIMED, S.BLOCKED)
        assert task.submission is not None
        submission = replace(task.submission, fix="crew") if is_in_review else None
        state = state.with_task(replace(task, submission=submission))
    return state


def is_left(task: Task) -> bool:
    """Return whether the crew goes on with a task once the program of its worktree is gone."""
    submission = task.submission
    if submission is None or submission.fix != "author" or not submission.worktree or is_bound(task):
        return False
    return task.status not in FINAL_STATUSES and claims.is_of_crew(task)
