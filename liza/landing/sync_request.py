"""sync --pr: red checks and comments of the open pull request become tasks, each exactly once."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import git_refs
from liza.git.runner import COMMIT, Git
from liza.landing import accepted_origin, remote_branches, sync_failures
from liza.landing.pull_requests import PullRequests, find_feedback_host
from liza.landing.remote_branches import Remote
from liza.landing.rules import feedback_text, request_feedback
from liza.landing.rules.feedback_text import FeedbackTask
from liza.landing.rules.request_feedback import (
    CheckStep,
    FeedbackMemory,
    FeedbackPlan,
    RequestComment,
    RequestFeedback,
)
from liza.model.errors import Missing, Refused
from liza.model.model import State, TrackedRequest
from liza.model.transitions import Invocation
from liza.model.value_classes import Value, replace
from liza.system import atomic, crash_points, untrusted_files
from liza.tasks import archive
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.rules import backlog
from liza.tasks.rules.backlog import RequestContext
from liza.text.formats import count_noun

_MAX_TRIES = 5
_MAX_LISTED = 20  # comments that are printed; --json has all
_STEP_NOTES = {
    CheckStep.REMEMBERED: "its task was closed, and it did not run again",
    CheckStep.TASK_OPEN: "its task is open",
    CheckStep.FIX_NOT_PUSHED: "its task is merged and not pushed yet",
}


class _Reading(Value):
    """What was read: the tracked pull request, and what its forge has. ``comment``: the only comment to take."""

    by: str
    request: TrackedRequest
    host: PullRequests
    feedback: RequestFeedback
    comment: str | None


class _SyncedRequest(Value):
    """What was done: what was read, what was decided, and the tasks that were added."""

    reading: _Reading
    plan: FeedbackPlan
    tasks: tuple[FeedbackTask, ...]


def sync_request(crew: Crew, comment: str | None = None) -> Result:
    """Read the open pull request of this crew, and add the tasks that its red checks and comments ask for.

    ``comment``: take only this comment, by the id that is in its URL, of any author. Raises Refused if no pull
    request is open, or if others pushed to its branch; UnknownId, Missing, GitFailed.
    """
    by = require_person(crew, planner=False)
    request = crew.board.read().pull_request
    if not request.is_open:
        raise Refused(_describe_absence(request), "liza land --pr")
    # Comments of another repository would be work for the crew: the address is one that a person has accepted.
    remotes = accepted_origin.find_accepted_remotes(crew, request.base)
    host = find_feedback_host(remotes, request)
    feedback = host.read_feedback(request.number)
    if feedback.state != "OPEN":
        _close(crew, by, remotes.project, request, feedback.state)
    _require_own_commit(crew, remotes.push, request, feedback.commit)
    synced = _take(crew, _Reading(by, request, host, feedback, comment))
    sync_failures.clear_failure(crew.paths)
    return _result(synced)


def _describe_absence(request: TrackedRequest) -> str:
    if not request.number:
        return "there is no pull request of this crew: nothing was read"
    return f"pull request #{request.number} is {request.state.lower()}: nothing was read"


def _close(crew: Crew, by: str, project: Remote, request: TrackedRequest, state: str) -> None:
    """Record that the pull request is not open any more, so that it is not read again. Raises Refused."""
    if state not in ("CLOSED", "MERGED"):
        raise Missing(f"the forge says that pull request #{request.number} is {state!r}", "gh --version")
    with crew.change(by, "sync") as tx:
        if _is_same(tx.state.pull_request, request):
            tx.state = replace(tx.state, pull_request=replace(tx.state.pull_request, state=state))
    sync_failures.clear_failure(crew.paths)
    if state == "MERGED":
        step = project.fetch_and_sync_command(request.base)
        raise Refused(f"pull request #{request.number} is merged: nothing comes back from it any more", step)
    raise Refused(f"pull request #{request.number} is closed: nothing comes back from it any more", "liza land --pr")


def _require_own_commit(crew: Crew, remote: Remote, request: TrackedRequest, commit: str) -> None:
    """Raise Refused unless this crew pushed ``commit``. The forge may still show an earlier one than the last."""
    pushed = remote.last_pushed(request.head)
    is_own = COMMIT.fullmatch(commit) is not None and pushed is not None and _contains(crew.git, pushed, commit)
    if not is_own:
        message = f"pull request #{request.number} is at {commit[:10]}, which others pushed to {request.head}"
        raise Refused(message, remote.fetch_and_sync_command(request.head))


def _contains(git: Git, tip: str, commit: str) -> bool:
    return git_refs.has_commit(git, commit) and git.ok("merge-base", "--is-ancestor", commit, tip)


def _take(crew: Crew, reading: _Reading) -> _SyncedRequest:
    """Add the tasks, with the keys of what they are made of, in one transaction.

    The documents are written before it. If the board changed what was decided meanwhile, it is decided again.
    """
    feedback = reading.feedback
    archive.refuse_damaged(crew.paths, crew.board.read())
    outputs: dict[str, str] = {}
    for _ in range(_MAX_TRIES):
        state = crew.board.read()
        if not _is_same(state.pull_request, reading.request):
            break
        plan = request_feedback.plan_feedback(feedback, _memory(crew, state, feedback.commit), reading.comment)
        for red in plan.new_checks:
            if red.keys[-1] not in outputs:
                outputs[red.keys[-1]] = reading.host.read_output(red.check)
        tasks = _compose_tasks(crew, state, plan, outputs)
        for task in tasks:
            _write_document(crew, task)
        crash_points.point("feedback", "documents")
        specs = find_existing_specs(crew, [str(task.fields.spec_ref) for task in tasks])
        context = RequestContext(Invocation(now=crew.clock.now(), by=reading.by), specs)
        with crew.change(reading.by, "sync", tasks[0].fields.id if len(tasks) == 1 else None) as tx:
            if _basis(tx.state) == _basis(state) and not any(tx.state.task(task.fields.id) for task in tasks):
                added = backlog.add(tx.state, [task.fields for task in tasks], context) if tasks else tx.state
                tx.state = request_feedback.remember(added, plan, [(task.fields.id, task.keys) for task in tasks])
                return _SyncedRequest(reading, plan, tasks)
    raise Refused("the board changed while the pull request was read: nothing was added", "liza sync --pr")


def _is_same(tracked: TrackedRequest, request: TrackedRequest) -> bool:
    return (tracked.number, tracked.repository) == (request.number, request.repository)


def _basis(state: State) -> tuple[object, ...]:
    """Return what of the board the decision depends on."""
    merge_commits = request_feedback.find_merge_commits(state)
    return (state.pull_request, request_feedback.find_open_tasks(state), merge_commits)


def _memory(crew: Crew, state: State, commit: str) -> FeedbackMemory:
    not_pushed = frozenset(
        task_id
        for task_id, merges in request_feedback.find_merge_commits(state).items()
        if not all(_contains(crew.git, commit, merge) for merge in merges)
    )
    return FeedbackMemory(state.pull_request.taken, request_feedback.find_open_tasks(state), not_pushed)


class _UsedIds(Container[str]):
    """Ids that a new task cannot have: of tasks, and of documents in .liza/specs that a person wrote."""

    def __init__(self, crew: Crew, state: State) -> None:
        self._crew, self._state = crew, state
        self.new: set[str] = set()

    def __contains__(self, task_id: object) -> bool:
        name = str(task_id)
        if name in self.new or self._state.task(name) is not None:
            return True
        if name in archive.find_outcomes(self._crew.paths, self._state, [name]):
            return True
        data = untrusted_files.read_if_exists(self._crew.paths.specs / f"{name}.md")
        return data is not None and not feedback_text.is_feedback_document(data.decode("utf-8", "replace"), name)


def _compose_tasks(crew: Crew, state: State, plan: FeedbackPlan, outputs: dict[str, str]) -> tuple[FeedbackTask, ...]:
    request, used, tasks = state.pull_request, _UsedIds(crew, state), list[FeedbackTask]()
    for red in plan.new_checks:
        tasks.append(feedback_text.compose_check_task(request, red, outputs[red.keys[-1]], used))
        used.new.add(tasks[-1].fields.id)
    for thread in plan.threads:
        about = _find_changed_task(crew, state, thread[0].path)
        tasks.append(feedback_text.compose_comment_task(request, thread, about, used))
        used.new.add(tasks[-1].fields.id)
    return tuple(tasks)


def _find_changed_task(crew: Crew, state: State, path: str | None) -> str | None:
    """Return the one merged task of the pull request that changed a file; None if no task did, or several."""
    request = state.pull_request
    pushed = remote_branches.find_remote(crew.git, request.base).last_pushed(request.head)
    if not path or pushed is None or not request.since or not git_refs.has_commit(crew.git, request.since):
        return None
    words = ("rev-list", "--first-parent", f"{request.since}..{pushed}", "--", f":(top,literal){path}")
    commits = set(crew.git.out(*words).split())
    tasks = [task.id for task in state.tasks if task.merge_commit in commits]
    return tasks[0] if len(tasks) == 1 else None


def _write_document(crew: Crew, task: FeedbackTask) -> None:
    path = crew.paths.root / str(task.fields.spec_ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, task.text.encode("utf-8", "replace"), 0o644)


def _result(synced: _SyncedRequest) -> Result:
    request, plan, tasks = synced.reading.request, synced.plan, synced.tasks
    ids = [task.fields.id for task in tasks]
    new_tasks = {key: task.fields.id for task in tasks for key in task.keys}
    details: dict[str, Any] = {
        "request": {"number": request.number, "url": request.url, "commit": synced.reading.feedback.commit},
        "tasks": ids,
        "checks": [
            {
                "name": red.check.name,
                "url": red.check.url,
                "task": red.task or new_tasks.get(red.keys[-1]),
                "state": red.step.value,
            }
            for red in plan.checks
        ],
        "comments": [_comment_row(row) for row in plan.listed],
        "left": {"checks": plan.left_checks, "threads": plan.left_threads},
    }
    step = "liza sync --pr" if plan.left_threads else "liza status" if ids else _next_step(plan)
    return Result(
        "changed" if ids else "unchanged", ids[0] if ids else None, None, step, details, "\n".join(_lines(synced))
    )


def _lines(synced: _SyncedRequest) -> Iterator[str]:
    yield _summary(synced)
    for task in synced.tasks:
        yield f"{task.fields.id}: {task.fields.description}"
    for red in synced.plan.checks:
        if red.step is not CheckStep.NEW:
            yield f"red: {red.check.name}: {_STEP_NOTES[red.step]}{f' ({red.task})' if red.task else ''}"
    if synced.plan.left_checks:
        limit = f"at most {request_feedback.MAX_CHECK_TASKS} tasks of checks are unfinished at a time"
        yield f"{count_noun(synced.plan.left_checks, 'more red check')} without a task: {limit}"
    if synced.plan.left_threads:
        yield f"{count_noun(synced.plan.left_threads, 'more thread')} of comments: the next reading takes them"
    listed = synced.plan.listed
    for row in listed[:_MAX_LISTED]:
        who = f"{row.author} ({row.association.lower() or 'unknown'}) has no write access"
        yield f"{who}: {feedback_text.excerpt(row)!r}; take it: liza sync --pr --comment {row.id}"
    if len(listed) > _MAX_LISTED:
        yield f"{len(listed) - _MAX_LISTED} more comments of such authors: liza sync --pr --json"


def _comment_row(comment: RequestComment) -> dict[str, Any]:
    return {
        "id": comment.id,
        "author": comment.author,
        "association": comment.association,
        "url": comment.url,
        "text": feedback_text.excerpt(comment),
        "next": f"liza sync --pr --comment {comment.id}",
    }


def _summary(synced: _SyncedRequest) -> str:
    request, plan, tasks = synced.reading.request, synced.plan, synced.tasks
    comment = synced.reading.comment
    where = f"pull request #{request.number} at {synced.reading.feedback.commit[:10]}"
    if comment is not None and not tasks:
        task = next((row.task for row in request.taken if row.key == f"comment {comment}"), "")
        return f"{where}: {comment} is the task {task} already"
    number = len(plan.checks) + plan.left_checks
    return f"{where}: {count_noun(number, 'red check')}, {count_noun(len(tasks), 'new task')}"


def _next_step(plan: FeedbackPlan) -> str:
    if any(red.step is CheckStep.FIX_NOT_PUSHED for red in plan.checks):
        return "liza land --pr"
    return f"liza sync --pr --comment {plan.listed[0].id}" if plan.listed else "liza status"
