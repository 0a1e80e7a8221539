"""Merging: which APPROVED task is next, what the board says at each step, and what becomes of a merge that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from liza.rules import invariants
from liza.rules.errors import Refused
from liza.rules.model import MergeInProgress, MergeRetry, State, Status, Task
from liza.rules.project import test_proof
from liza.rules.tasks.claims import get_task
from liza.rules.tasks.picking import unmet_dependencies
from liza.rules.transitions import Invocation, apply_verb

S = Status
SHORTEST_PAUSE, MAX_RETRY_DELAY = 1.0, 900.0  # seconds
MAX_CANDIDATES = 3
"""How many candidates one merger makes for a task while integration moves during the tests."""
MAX_MERGER_DEATHS = 3
"""How many mergers in a row may die during the tests of a task before it goes back to its coder."""


class MergeFailureKind(StrEnum):
    """Why a merge failed, where neither a conflict nor a red test is the reason."""

    UNRELATED = "unrelated history"
    GONE = "commit gone"
    MOVING = "integration moves"
    DIED = "merger died"
    BASE_RED = "integration is red"
    FAILED = "failed"


@dataclass(frozen=True)
class MergeFailure:
    """A merge that failed: its kind, the words of git or of the system, and the command that removes the cause, or
    nothing."""

    kind: MergeFailureKind
    message: str
    hint: str = ""


def classify_failure(*, commit_exists: bool, related: bool) -> MergeFailureKind:
    """The kind of a failure, from what the repository says of the reviewed commit afterwards."""
    if not commit_exists:
        return MergeFailureKind.GONE
    return MergeFailureKind.FAILED if related else MergeFailureKind.UNRELATED


def is_for_coder(kind: MergeFailureKind, deaths: int) -> bool:
    """Whether only the task's coder can resolve this kind of failure. Otherwise the merge is retried."""
    return kind in (MergeFailureKind.UNRELATED, MergeFailureKind.GONE) or deaths >= MAX_MERGER_DEATHS


def retry_delay(kind: MergeFailureKind, tries: int, first: float) -> float:
    """Seconds until the next automatic try: doubling from ``first``. One dead merger alone is no reason to wait."""
    if kind is MergeFailureKind.DIED:
        tries -= 1
    return 0.0 if tries < 1 else min(max(first, SHORTEST_PAUSE) * 2.0 ** min(tries - 1, 60), MAX_RETRY_DELAY)


def next_to_merge(state: State, now: datetime) -> Task | None:
    """The best APPROVED task whose dependencies are met, that waits for no files of a person, and is not set aside.

    None while the tests are known to test another checkout: nothing would be tested.
    """
    if test_proof.tested_instead(state.config) is not None:
        return None
    able = [
        task
        for task in state.tasks
        if task.status is S.APPROVED
        and merge_obstacle(state, task) is None
        and not unmet_dependencies(state, task)
        and not (task.merging and task.merging.waiting)
        and not is_paused(task, now)
    ]
    return min(able, key=lambda task: (task.priority, task.history[-1].time), default=None)


def is_paused(task: Task, now: datetime) -> bool:
    """Whether the merge of the task failed, and its next try is not due."""
    return task.set_aside is not None and task.set_aside.until is not None and task.set_aside.until > now


def seconds_to_next_try(state: State, now: datetime) -> float | None:
    """Seconds until the first pause of a task that was set aside is over; None without one."""
    ends = [task.set_aside.until for task in state.tasks if task.set_aside and is_paused(task, now)]
    return min(((end - now).total_seconds() for end in ends if end is not None), default=None)


def merge_obstacle(state: State, task: Task) -> str | None:
    """Why an APPROVED task must not be merged: no verdict on this very commit stands behind it. None when it may."""
    broken = invariants.check_entry("tasks", task.id, task, state)
    if broken:
        return f"it breaks a rule: {broken[0]}"
    verdicts = [event for event in task.history if event.event == "approve"]
    if not verdicts or verdicts[-1].commit != task.review_commit or verdicts[-1].agent != task.approved_by:
        return f"its history has no verdict on {(task.review_commit or 'no commit')[:12]}"
    return None


def get_approved_task(state: State, task_id: str) -> Task:
    """The task if it may be merged. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is not S.APPROVED:
        raise Refused(f"{task_id} is {task.status}: only an APPROVED task is merged", f"liza task show {task_id}")
    why = merge_obstacle(state, task)
    if why:
        raise Refused(f"{task_id} is APPROVED on the board and cannot be merged: {why}", f"liza history {task_id}")
    return task


def begin_merge(state: State, task_id: str, merging: MergeInProgress) -> State:
    """A candidate is made and about to be tested; a merger that dies leaves this behind."""
    task = get_approved_task(state, task_id)
    return state.with_task(replace(task, merging=merging))


def record_test_result(state: State, task_id: str, tested: bool) -> State:
    """The candidate may be published: its tests passed, or ``tested`` is False and there are none. Raises Refused."""
    task = get_approved_task(state, task_id)
    if task.merging is None:
        raise Refused(f"{task_id} has no candidate", f"liza merge {task_id}")
    return state.with_task(replace(task, merging=replace(task.merging, tested=tested)))


def wait_for_files(state: State, task_id: str, files: tuple[str, ...]) -> State:
    """The candidate is tested, and changed files of a person's checkout are in its way."""
    task = get_approved_task(state, task_id)
    if task.merging is None:
        raise Refused(f"{task_id} has no candidate that could wait", f"liza merge {task_id}")
    waits = replace(task.merging, waiting=files or (".",))
    return state.with_task(replace(task, merging=waits, set_aside=None))


def are_in_the_way(waiting: Sequence[str], changed: Iterable[str]) -> bool:
    """Whether files that a merge waits for are still changed. ``.`` stands for every file of the checkout."""
    names = set(changed)
    return bool(names) if "." in waiting else not names.isdisjoint(waiting)


def drop_candidate(state: State, task_id: str) -> State:
    """The candidate came to nothing (its merger died, or integration moved on); the task is APPROVED as before."""
    task = get_task(state, task_id)
    return state.with_task(replace(task, merging=None)) if task.merging else state


def record_merge(state: State, task_id: str, said: Invocation, tested: bool) -> State:
    """``said.commit`` is in integration. Raises Refused."""
    task = get_task(state, task_id)
    if task.status is S.MERGED:
        return state
    done = apply_verb(
        get_approved_task(state, task_id), "merge", said, merge_commit=said.commit, tested=tested, merging=None
    )
    return state.with_task(done)


def fail_merge(state: State, task_id: str, said: Invocation) -> State:
    """A conflict with integration, or red on the candidate: its coder mends it. Raises Refused."""
    back = apply_verb(get_approved_task(state, task_id), "merge failed", said, merging=None, approved_by=None)
    return state.with_task(back)


def retry_or_fail(state: State, task_id: str, trouble: MergeFailure, said: Invocation) -> State:
    """The merge failed: the task goes back to its coder, or is set aside and tried again after a growing pause.

    A candidate that passed its tests is kept for the next try. Raises Refused.
    """
    task = get_approved_task(state, task_id)
    before = task.set_aside
    tries = before.tries + 1 if before is not None else 1
    deaths = _deaths(before) + 1 if trouble.kind is MergeFailureKind.DIED else 0
    if is_for_coder(trouble.kind, deaths):
        return fail_merge(state, task_id, with_detail(said, trouble.message))
    seconds = retry_delay(trouble.kind, tries, state.config.restart_after_crash)
    until = said.now + timedelta(seconds=seconds) if seconds else None
    aside = MergeRetry(
        kind=trouble.kind, reason=trouble.message, hint=trouble.hint, tries=tries, deaths=deaths, until=until
    )
    keeps = task.merging is not None and task.merging.tested is not None
    return state.with_task(replace(task, merging=task.merging if keeps else None, set_aside=aside))


def _deaths(before: MergeRetry | None) -> int:
    """How many mergers in a row died until now; earlier versions counted them as tries."""
    if before is None or before.kind != MergeFailureKind.DIED:
        return 0
    return before.deaths or before.tries


def with_detail(said: Invocation, detail: str) -> Invocation:
    """The same caller and time, with other words."""
    return Invocation(now=said.now, by=said.by, run=said.run, commit=said.commit, detail=detail)


@dataclass(frozen=True)
class RefChange:
    """A ref that changed while tests ran. ``built_on``: it now holds the candidate; ``rewound``: it lost commits;
    ``symbolic``: it names another ref now."""

    name: str
    built_on: bool = False
    gone: bool = False
    rewound: bool = False
    symbolic: bool = False


def refs_moved_by_tests(changes: Iterable[RefChange]) -> tuple[str, ...]:
    """The refs that tests moved, or may have moved, among those that changed while they ran.

    Only the tests have the candidate checked out. Agents commit on their task branches and people on theirs meanwhile:
    a branch that merely went on is theirs. Nobody else writes Liza's refs about the merge while the merge lock is held.
    """
    return tuple(
        change.name
        for change in changes
        if change.built_on
        or (change.symbolic and not change.name.startswith("refs/remotes/"))
        or change.name.startswith(_MERGE_REFS)
        or (not change.name.startswith(_FOREIGN_REFS) and (change.gone or change.rewound))
    )


def is_sure(changes: Iterable[RefChange]) -> bool:
    """Whether it was the tests that moved what ``moved_by_tests`` names, and cannot have been anybody else.

    A branch that was deleted or moved back has no such evidence: git notes no process, and a person may do it then.
    """
    found = list(changes)
    proved = [one for one in found if one.built_on or one.symbolic or one.name.startswith(_MERGE_REFS)]
    return len(refs_moved_by_tests(proved)) == len(refs_moved_by_tests(found))


def is_branch_rewound(changes: Iterable[RefChange], branch: str) -> bool:
    """Whether ``branch`` was deleted or moved back, by the tests or by somebody else: what was merged is not in it any
    more."""
    return any(change.name == branch and (change.gone or change.rewound) for change in changes)


_MERGE_REFS = ("refs/liza/candidates/", "refs/liza/tested/", "refs/liza/integration")
_FOREIGN_REFS = ("refs/liza/", "refs/heads/task/", "refs/remotes/", "refs/stash")
