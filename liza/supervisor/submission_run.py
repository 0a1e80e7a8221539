"""submit --merge: review, test and merge one submitted task in this terminal, with no other agent than a reviewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from liza.board.repeated_looks import watch_changes
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.merging.merge import merge
from liza.model.derived import submit_command
from liza.model.errors import EXIT_ONLY_PERSON, LizaError, Missing
from liza.model.model import State, Status, Task
from liza.model.paths import role_of
from liza.model.statuses import describe_task
from liza.model.tested import describe_tested
from liza.model.value_classes import replace
from liza.supervisor import start as crews
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.feed import PrintTimedLine
from liza.system.locks import Lock, is_flock_held, wait_for_release
from liza.tasks.next_steps import with_next_step
from liza.tasks.rules import claims, planning, reviews, strangers, submissions
from liza.tasks.rules.picking import unmet_dependencies
from liza.tasks.submission import find_next_step

_REVIEWERS = UpOptions(planners=0, coders=0, reviewers=1, exit_when_done=True)
_LOOK_AGAIN = 2.0  # seconds: a killed supervisor leaves no event


def merge_submitted(crew: Crew, task_id: str, programs: Sequence[str], say: PrintTimedLine) -> tuple[Result, int]:
    """Review, test and merge a submitted task; return what happened and the exit code.

    A reviewer of a crew that runs already reviews it. What was approved before is only merged. Raises Refused, Missing,
    UsageError, GitFailed.
    """
    before, code = crew.board.read(), 0
    task = claims.get_task(before, task_id)
    if approved := _list_approved(before, task):
        for name in approved:
            say("", f"{name} is approved: testing the merge", crew.clock.now())
            _merge(crew, name, say)
            if claims.get_task(crew.board.read(), name).status is not Status.MERGED:
                break
    else:
        try:
            code = _review_and_merge(crew, task, programs, say)
        except Missing as error:
            # A person gives the verdict, and can do so without the words of a program.
            if not planning.waits_for_verdict(task):
                raise
            say("", f"no program reads {task_id} first: {error.message}", crew.clock.now())
    return _conclude(crew, before, task_id, code)


def _list_approved(state: State, task: Task | None) -> tuple[str, ...]:
    """Return an approved task and before it the approved ones that it waits for; nothing if one is not approved."""
    if task is None or task.status is not Status.APPROVED:
        return ()
    lower = [_list_approved(state, state.task(name)) for name in unmet_dependencies(state, task)]
    return (*dict.fromkeys(chain(*lower)), task.id) if all(lower) else ()


def _review_and_merge(crew: Crew, task: Task, programs: Sequence[str], say: PrintTimedLine) -> int:
    """Wait for the reviewers of the crew; without one, start a reviewer. Return the exit code."""
    assert task.submission is not None
    again = f"{submit_command(task.submission)} --merge"
    options = replace(_REVIEWERS, programs=_choose_reviewer(programs), only=task.id, again=again)
    while not _is_left_by_crew(crew, task.id, say):
        with _take_turn(crew, say):
            state = crew.board.read()
            if _has_reviewer(crew, state):
                continue
            others = planning.without_others(state, task.id)
            return crews.up(crew, options, say) if planning.can_continue(others, frozenset({reviews.REVIEWER})) else 0
    return 0


def _is_left_by_crew(crew: Crew, task_id: str, say: PrintTimedLine) -> bool:
    """Wait while the crew can go on with the task. Return False without a reviewer."""
    state = crew.board.read()
    if _has_reviewer(crew, state) and _can_continue(crew, state, task_id):
        say("", f"a reviewer of the crew reviews {task_id}: waiting", crew.clock.now())
        for _ in watch_changes(crew.board, _LOOK_AGAIN):
            state = crew.board.read()
            if not _can_continue(crew, state, task_id):
                break
    return _has_reviewer(crew, state)


def _has_reviewer(crew: Crew, state: State) -> bool:
    return any(crew.is_supervised(agent) for agent in state.agents if role_of(agent) == reviews.REVIEWER)


def _merge(crew: Crew, task_id: str, say: PrintTimedLine) -> None:
    """Merge an approved task, after a merge that is under way.

    A failure that is recorded on the task is told with its state. Raises LizaError.
    """
    while True:
        if is_flock_held(crew.paths.merge_lock):
            say("", "another merge is under way: waiting for its end", crew.clock.now())
            wait_for_release(crew.paths.merge_lock, -1)
        try:
            merge(crew, task_id)
            return
        except LizaError:
            task = claims.get_task(crew.board.read(), task_id)
            if task.set_aside is not None or task.merge_hold is not None or strangers.lacks_permission(task):
                return
            if task.status is not Status.APPROVED or not is_flock_held(crew.paths.merge_lock):
                raise


@contextmanager
def _take_turn(crew: Crew, say: PrintTimedLine) -> Iterator[None]:
    """Hold the lock of the command that starts a reviewer: two commands would start the same agent."""
    lock = Lock(crew.paths.submit_merge_lock)
    if not lock.try_acquire():
        say("", "another `liza submit --merge` runs: waiting for its end", crew.clock.now())
        lock.acquire(-1)
    try:
        yield
    finally:
        lock.release()


def _choose_reviewer(words: Sequence[str]) -> dict[str, str]:
    """Return the programs of ``words``. One without a role is the reviewer's: it is not remembered for coders."""
    for_all, by_name = crews.parse_programs(words)
    return ({} if for_all is None else {reviews.REVIEWER: for_all}) | by_name


def _can_continue(crew: Crew, state: State, task_id: str) -> bool:
    """Return whether the running supervisors can go on with the task, or with one that it depends on."""
    roles = frozenset(role_of(agent) for agent in state.agents if crew.is_supervised(agent))
    return planning.can_continue(planning.without_others(state, task_id), roles)


def _conclude(crew: Crew, before: State, task_id: str, code: int) -> tuple[Result, int]:
    after = crew.board.read()
    task = claims.get_task(after, task_id)
    result = make_result(before, after, task_id, f"liza task show {task_id}", merge_commit=task.merge_commit)
    if task.status is Status.MERGED:
        how = describe_tested(task.tested, task.remarks)
        message = (
            f"{task_id} is merged into {after.config.integration_branch} as {(task.merge_commit or '')[:12]}, {how}"
        )
        return replace(result, message=message, next="liza land --merge"), 0
    reason = submissions.describe_cause(task)
    message = f"{task_id} is approved" if task.status is Status.APPROVED else describe_task(task_id, task.status)
    message += f": {reason}" if reason else ""
    return with_next_step(replace(result, message=message), find_next_step(crew, after, task)), code or EXIT_ONLY_PERSON
