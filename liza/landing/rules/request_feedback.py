"""Decide which check results and comments of a pull request become tasks, each exactly once.

A check result is identified by its commit, its run and its name, a comment by its id. The board stores these keys
with the tasks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from liza.model.errors import UnknownId
from liza.model.model import FINAL_STATUSES, State, Status, TakenFeedback, TrackedRequest
from liza.model.value_classes import Value, replace

TRUSTED_ASSOCIATIONS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
"""Who an author must be to the repository, so that a comment becomes a task without a person's command."""
RED_RESULTS = frozenset({"FAILURE", "ERROR", "TIMED_OUT", "STARTUP_FAILURE"})
"""Results of a check that a change of the code can make green. A cancelled check, or one that waits for a person's
approval, is not one of them."""
MAX_CHECK_TASKS = 5
"""Tasks of red checks that are open, or whose fix is not pushed yet. One fault can make hundreds of jobs red: the
others are taken if they are red without it."""
MAX_THREADS = 20
"""Threads of comments of one reading. The next one takes the rest."""


class CheckResult(Value):
    """The result of a check on the newest commit of a pull request.

    ``run`` is the id of its workflow run, empty for a check of another service; ``job`` its job in that run, or the URL
    of its result. ``result`` is the conclusion or state as GitHub names it, empty while the check runs. ``started`` is
    a time in ISO 8601, or empty. ``commit`` is what it ran on, empty if that is the newest commit.
    """

    name: str
    run: str
    job: str
    result: str
    url: str = ""
    started: str = ""
    commit: str = ""


class RequestComment(Value):
    """A comment, or the text of a review. ``id`` is its anchor in the URL: ``discussion_r123``.

    ``association`` is what its author is to the repository. ``thread`` is the id of the first comment of its thread.
    ``path`` and ``line``: what it is about, if it is about a line. ``is_request``: a review that requests changes.
    """

    id: str
    author: str
    association: str
    body: str
    url: str
    thread: str = ""
    path: str | None = None
    line: int | None = None
    is_request: bool = False

    @property
    def key(self) -> str:
        return f"comment {self.id}"

    @property
    def is_trusted(self) -> bool:
        return self.association in TRUSTED_ASSOCIATIONS


class RequestFeedback(Value):
    """What a forge has about a pull request. ``state`` is OPEN, CLOSED or MERGED; ``commit`` its newest commit."""

    state: str
    commit: str
    checks: tuple[CheckResult, ...] = ()
    comments: tuple[RequestComment, ...] = ()


class CheckStep(StrEnum):
    """What is done about a red check."""

    NEW = "new"
    REMEMBERED = "remembered"
    TASK_OPEN = "task open"
    FIX_NOT_PUSHED = "fix not pushed"


class RedCheck(Value):
    """A red check. ``keys`` are those of its runs on this commit, ``task`` is the task that covers it already."""

    check: CheckResult
    keys: tuple[str, ...]
    step: CheckStep
    task: str | None = None


class FeedbackPlan(Value):
    """``threads``: comments that become one task each. ``listed``: comments of authors who are not trusted.
    ``left_checks`` and ``left_threads`` count what a later reading takes."""

    checks: tuple[RedCheck, ...]
    threads: tuple[tuple[RequestComment, ...], ...]
    listed: tuple[RequestComment, ...]
    left_checks: int = 0
    left_threads: int = 0

    @property
    def new_checks(self) -> tuple[RedCheck, ...]:
        return tuple(red for red in self.checks if red.step is CheckStep.NEW)


class FeedbackMemory(Value):
    """What the board remembers. ``open``: tasks that are not closed, nor are their successors. ``not_pushed``: merged
    tasks whose work the newest commit of the pull request does not contain."""

    taken: tuple[TakenFeedback, ...]
    open: frozenset[str]
    not_pushed: frozenset[str]


def check_key(commit: str, check: CheckResult) -> str:
    """Return the key of a check result."""
    run = _SPACE.sub("", f"{check.run}/{check.job}")[:_MAX_RUN]
    return f"check {check.commit or commit} {run} {_one_line(check.name)}"


_SPACE = re.compile(r"\s+")
_MAX_RUN = 200


def track_request(state: State, request: TrackedRequest, commit: str) -> State:
    """Return the board with the pull request that `land --pr` opened or updated, with ``commit`` as its newest commit.

    A new pull request has no earlier comments. Of the earlier results those are kept that it shows again, and those
    with an open task.
    """
    before = state.pull_request
    kept = before.taken
    if (before.number, before.repository) != (request.number, request.repository):
        open_tasks = find_open_tasks(state)
        kept = tuple(
            taken
            for taken in kept
            if taken.key.startswith("check ") and (taken.key.split(" ", 2)[1] == commit or taken.task in open_tasks)
        )
    return replace(state, pull_request=replace(request, taken=kept))


def remember(state: State, plan: FeedbackPlan, tasks: Iterable[tuple[str, Iterable[str]]]) -> State:
    """Return the board with the keys of new ``tasks``, and with those of new results that an open task covers."""
    request = state.pull_request
    keys = {taken.key for taken in request.taken}
    rows = [(key, task_id) for task_id, made_of in tasks for key in made_of]
    rows += [(key, red.task) for red in plan.checks if red.step is CheckStep.TASK_OPEN and red.task for key in red.keys]
    new = tuple(TakenFeedback(key=key, task=task_id) for key, task_id in dict(rows).items() if key not in keys)
    return replace(state, pull_request=replace(request, taken=request.taken + new)) if new else state


def find_merge_commits(state: State) -> dict[str, tuple[str, ...]]:
    """Return, for each taken task that is merged, its merge commit; for a superseded one those of its successors."""
    commits = {taken.task: tuple(_merge_commits(state, taken.task, set())) for taken in state.pull_request.taken}
    return {task_id: merges for task_id, merges in commits.items() if merges}


def _merge_commits(state: State, task_id: str, seen: set[str]) -> Iterator[str]:
    task = state.task(task_id)
    if task is None or task_id in seen:
        return
    if task.status is Status.MERGED and task.merge_commit:
        yield task.merge_commit
    for successor in task.superseded_by:
        yield from _merge_commits(state, successor, seen | {task_id})


def find_open_tasks(state: State) -> frozenset[str]:
    """Return the taken tasks that are open: the task itself, or one of its successors."""
    return frozenset(taken.task for taken in state.pull_request.taken if _is_open(state, taken.task, set()))


def _is_open(state: State, task_id: str, seen: set[str]) -> bool:
    task = state.task(task_id)
    if task is None or task_id in seen:
        return False
    if task.status is Status.SUPERSEDED:
        return any(_is_open(state, successor, seen | {task_id}) for successor in task.superseded_by)
    return task.status not in FINAL_STATUSES


def plan_feedback(feedback: RequestFeedback, memory: FeedbackMemory, wanted: str | None = None) -> FeedbackPlan:
    """Return what becomes a task. ``wanted``: the id of a comment that a person takes, of any author.

    Raises UnknownId if there is no such comment.
    """
    remembered = {taken.key for taken in memory.taken}
    checks = tuple(_plan_check(runs, feedback.commit, memory) for runs in _group_red(feedback.checks))
    fresh = [comment for comment in _with_content(feedback.comments) if comment.key not in remembered]
    chosen = [comment for comment in fresh if comment.is_trusted]
    if wanted is not None:
        if all(comment.id != wanted for comment in feedback.comments):
            raise UnknownId(f"the pull request has no comment {wanted!r}", "liza sync --pr")
        checks, chosen = (), [comment for comment in feedback.comments if comment.id == wanted]
        chosen = [comment for comment in chosen if comment.key not in remembered]
    threads = tuple(_group_threads(chosen))
    listed = tuple(comment for comment in fresh if comment not in chosen and not comment.is_trusted)
    return _limit(FeedbackPlan(checks, threads, listed), memory)


def _limit(plan: FeedbackPlan, memory: FeedbackMemory) -> FeedbackPlan:
    """Return the plan without what a later reading takes."""
    unfinished = memory.open | memory.not_pushed
    busy = {taken.task for taken in memory.taken if taken.key.startswith("check ") and taken.task in unfinished}
    later = set(plan.new_checks[max(0, MAX_CHECK_TASKS - len(busy)) :])
    checks = tuple(red for red in plan.checks if red not in later)
    left_threads = len(plan.threads[MAX_THREADS:])
    return FeedbackPlan(checks, plan.threads[:MAX_THREADS], plan.listed, len(later), left_threads)


def _group_red(checks: Iterable[CheckResult]) -> Iterator[tuple[CheckResult, ...]]:
    """Return the red runs of each check, by name. Of the tries of one run only the newest counts."""
    newest: dict[tuple[str, str], CheckResult] = {}
    for check in sorted(checks, key=lambda check: check.started):
        newest[_one_line(check.name), check.run] = check
    groups: dict[str, list[CheckResult]] = {}
    for (name, _), check in newest.items():
        if check.result in RED_RESULTS:
            groups.setdefault(name, []).append(check)
    return (tuple(groups[name]) for name in sorted(groups))


def _plan_check(runs: tuple[CheckResult, ...], commit: str, memory: FeedbackMemory) -> RedCheck:
    keys = tuple(check_key(commit, check) for check in runs)
    name = _one_line(runs[-1].name)
    earlier = [taken for taken in memory.taken if taken.key.startswith("check ") and taken.key.split(" ", 3)[3] == name]
    for step, tasks in ((CheckStep.TASK_OPEN, memory.open), (CheckStep.FIX_NOT_PUSHED, memory.not_pushed)):
        task = next((taken.task for taken in reversed(earlier) if taken.task in tasks), None)
        if task is not None:
            return RedCheck(runs[-1], keys, step, task)
    covered = {taken.key: taken.task for taken in earlier}
    if all(key in covered for key in keys):
        return RedCheck(runs[-1], keys, CheckStep.REMEMBERED, covered[keys[-1]])
    return RedCheck(runs[-1], keys, CheckStep.NEW)


def _with_content(comments: Iterable[RequestComment]) -> Iterator[RequestComment]:
    """Return the comments that ask for something: those with a text, and a bare request for changes."""
    return (comment for comment in comments if comment.body.strip() or comment.is_request)


def _group_threads(comments: Collection[RequestComment]) -> Iterator[tuple[RequestComment, ...]]:
    """Return the comments of each thread: a reply often completes the comment before it."""
    threads: dict[str, list[RequestComment]] = {}
    for comment in comments:
        threads.setdefault(comment.thread or comment.id, []).append(comment)
    return (tuple(thread) for thread in threads.values())


def _one_line(text: str) -> str:
    return " ".join(text.split())
