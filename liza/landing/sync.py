"""sync: merge a person's branch into integration, tested; with --pr make tasks of what the pull request brings back.

Each red check and each comment of the open pull request becomes a task exactly once.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import Any

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git import branch_moves, candidates, git_refs, integration_tip
from liza.git.checkout_moves import MoveOutcome
from liza.git.integration_tip import find_landed
from liza.git.runner import COMMIT, Git
from liza.landing import remotes
from liza.landing.pull_requests import PullRequests, find_feedback_host
from liza.landing.remotes import Remote
from liza.landing.rules import feedback_text, request_feedback
from liza.landing.rules.feedback_text import FeedbackTask
from liza.landing.rules.request_feedback import (
    CheckStep,
    FeedbackMemory,
    FeedbackPlan,
    RequestComment,
    RequestFeedback,
)
from liza.merging import drift, merge_outcomes, persons_candidate, proof_runner, publication, statement_writer
from liza.merging.merge_lock import hold_merge_lock
from liza.merging.merge_recovery import recover_dead_merger
from liza.merging.persons_candidate import PersonsCandidate
from liza.merging.remaking import Remaking
from liza.merging.rules import merge_rules
from liza.merging.rules.repository_drift import IntegrationDrift
from liza.merging.statement_writer import SYNC_SUBJECT
from liza.model import targets
from liza.model.errors import MergeConflict, Missing, Refused, UnknownId
from liza.model.model import State, TrackedRequest
from liza.model.paths import Paths, branch_of
from liza.model.tested import NO_GATE_APPLIED, HowTested, describe_tested
from liza.model.transitions import Invocation
from liza.model.value_classes import Value, replace
from liza.system import atomic, crash_points, untrusted_files
from liza.tasks import archive
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.rules import backlog
from liza.tasks.rules.backlog import RequestContext
from liza.text.formats import count_noun
from liza.text.undecoded import list_names

_CANDIDATE_NAME = "main.sync"
"""No task can have this name: ids have no dots."""


class _SyncRequest(Value):
    """Request to merge ``commit``, the tip of the branch ``source``, into the branch ``into``.

    ``command`` is the command that the person typed. ``accept_moved``: also if ``into`` was moved from outside and
    merged tasks are lost by that. ``untested``: also if the tests say nothing about the merge.
    """

    source: str
    commit: str
    into: str
    accept_moved: bool
    untested: bool
    command: str


def sync(crew: Crew, branch: str | None = None, *, accept_moved: bool = False, untested: bool = False) -> Result:
    """Merge ``branch``, by default the current one, into integration if the tests pass on the merge.

    A move of integration from outside is accepted and reported; if merged tasks are lost by it, only with
    ``accept_moved``. Raises Missing, Refused, UnknownId, MergeConflict, GitFailed: then integration is unchanged.
    """
    by = require_person(crew, planner=False)
    state = crew.board.read()
    into = state.config.integration_branch
    integration_tip.require_integration(crew.git, state)
    source = branch or _current_branch(crew, into)
    _refuse_crew_branch(source)
    command = shlex.join(["liza", "sync", *([branch] if branch else []), *(["--untested"] if untested else [])])
    commit = branch_moves.branch_tip(crew.git, source)
    if commit is None:
        raise UnknownId(f"there is no branch {source!r}", git_refs.branch_command(crew.git, "liza sync", into))
    with hold_merge_lock(crew) as merging_crew:
        locked = publication.begin(merging_crew, accepts_rewritten=accept_moved)
        recover_dead_merger(locked, by)
        result = _merge_branch(locked, _SyncRequest(source, commit, into, accept_moved, untested, command), by)
    # The move of integration is accepted now: update the cache, so that `status` does not wait for a supervisor.
    with suppress(*merge_outcomes.CAUGHT_ERRORS):
        drift.detect_drift(crew, crew.board.read())
    released, failed = merge_outcomes.reconsidered(crew, "the merge")
    statement_writer.complete_quietly(crew)
    return replace(
        result,
        message="\n".join((result.message, *released, *failed)),
        details={**result.details, "freed": list(released)},
    )


def _refuse_crew_branch(branch: str) -> None:
    """Raise Refused for a branch of a task or an epic: its commits come to integration with a verdict, or not yet."""
    name = branch.removeprefix("refs/heads/")
    if name.startswith(branch_of("")):
        task = name.removeprefix(branch_of(""))
        raise Refused(f"{branch} is the branch of a task: it is merged when it is approved", f"liza task show {task}")
    if targets.epic_of(name) is not None:
        raise Refused(f"{branch} is the branch of an epic: it lands when all its tasks are closed", "liza epics")


def _current_branch(crew: Crew, into: str) -> str:
    branch = git_refs.current_branch(crew.git)
    if branch is None or (branch == into and drift.find_integration_drift(crew) is None):
        message = "HEAD of your checkout is detached" if branch is None else f"{into} itself is checked out"
        raise Refused(message, git_refs.branch_command(crew.git, "liza sync", into))
    return branch


def _merge_branch(crew: Crew, request: _SyncRequest, by: str) -> Result:
    source, commit, into = request.source, request.commit, request.into
    for _ in range(merge_rules.MAX_CANDIDATES):
        moved = _check_accepted_move(crew, request)
        expected = moved.tip if moved else integration_tip.require_integration(crew.git, crew.board.read())
        if branch_moves.contains(crew.git, into, commit):
            integration_tip.record_last_tip(crew.git, expected)
            publication.record_accepted(crew, into, expected)
            return _already_merged(crew, request, moved, by)
        landed = find_landed(crew.git, commit, expected)
        base = None if landed == commit else landed
        try:
            generated = Remaking(crew, _CANDIDATE_NAME)
            candidate_commit = candidates.build_candidate(
                crew.git, commit, expected, f"Merge {source} into {into}", _CANDIDATE_NAME, base, generated.resolve
            )
        except MergeConflict as conflict:
            detail = f"\n{conflict.detail}" if conflict.detail else ""
            message = f"{source} conflicts with {into} in {list_names(conflict.files)}{detail}"
            merge = f"git merge {git_refs.type_revision(crew.git, into)}"
            if git_refs.current_branch(crew.git) != source:
                merge = f"git switch {shlex.quote(source)} && {merge}"
            step = f"{merge}, resolve the conflicts and commit, then: {request.command}"
            raise MergeConflict(message, conflict.files, step) from None
        try:
            how = _test_candidate(crew, request, candidate_commit, expected, by)
            # Before the branch moves, also for an untested merge: who looks at the branch knows it as one of Liza.
            git_refs.write_tested_refs(crew.git, (_CANDIDATE_NAME,), candidate_commit)
            advance = publication.advance(crew, into, candidate_commit, expected)
            if advance.outcome is MoveOutcome.MOVED:
                integration_tip.record_last_tip(crew.git, candidate_commit)
                with suppress(*merge_outcomes.CAUGHT_ERRORS):
                    proof_runner.note_changed_definitions(crew, by, expected)
        finally:
            candidates.delete_candidate(crew.git, _CANDIDATE_NAME)
        if advance.outcome is MoveOutcome.WAITING:
            files, step = branch_moves.describe_blocking(advance, request.command)
            raise Refused(f"{into} is checked out, and {files}", step)
        if advance.outcome is MoveOutcome.MOVED:
            details = {"branch": source, "merge_commit": candidate_commit, "tested": how.tested, "remarks": how.remarks}
            word = describe_tested(how.tested, how.remarks)
            message = f"{source} is in {into} as {candidate_commit[:10]}, {word}"
            message += f"; {generated.text}" if generated.text else ""
            step = f"git log --first-parent {git_refs.type_revision(crew.git, into)}"
            return _report_accepted(crew, Result("changed", None, None, step, details, message), moved, by)
    raise Refused(f"{into} moved {merge_rules.MAX_CANDIDATES} times while the tests of the merge ran", request.command)


def _already_merged(crew: Crew, request: _SyncRequest, moved: IntegrationDrift | None, by: str) -> Result:
    details = {"branch": request.source, "merge_commit": None, "tested": None}
    unmoved = "" if moved else f"{request.into} is where liza left it"
    message = unmoved if request.source == request.into else f"{request.into} has all of {request.source} already"
    return _report_accepted(
        crew, Result("changed" if moved else "unchanged", None, None, "liza status", details, message), moved, by
    )


def _check_accepted_move(crew: Crew, request: _SyncRequest) -> IntegrationDrift | None:
    """Return the move of integration from outside that this sync accepts; None if it accepts no move.

    Raises Refused if merged tasks are lost by it and ``accept_moved`` is not set.
    """
    moved = drift.find_integration_drift(crew)
    if moved is None:
        return None
    remaining = drift.drift_after_merge(crew, moved, request.commit)
    if remaining.lost_tasks and not request.accept_moved:
        raise Refused(moved.message, drift.recovery_commands(crew.git, moved, request.command))
    return remaining


def _report_accepted(crew: Crew, result: Result, moved: IntegrationDrift | None, by: str) -> Result:
    """Add the accepted move to the result, and write it to the alert log."""
    if moved is None:
        return replace(result, details={**result.details, "accepted": None})
    stay = ", which stay merged on the board" if moved.lost_tasks else ""
    line = f"accepted: {moved.message}{stay}"
    crew.append_alert_log([f"integration_moved  {by} {line}"])
    accepted = {"from": moved.last_tip, "to": moved.tip, "lost": moved.lost_tasks}
    return replace(
        result,
        details={**result.details, "accepted": accepted},
        message="\n".join(filter(None, (result.message, line))),
    )


def _test_candidate(crew: Crew, request: _SyncRequest, candidate_commit: str, expected: str, by: str) -> HowTested:
    """Test a candidate. Return what it may be called.

    Raises Refused if the candidate is red or its tests rewind the branch; the branch is then moved back.
    """
    # If the tests test another checkout, the person's branch may be the fix: it is merged as untested.
    if proof_runner.prove_if_due(crew, by, candidate_commit) is not None:
        return NO_GATE_APPLIED
    what = f"the merge with {request.into}"
    wanted = PersonsCandidate(
        SYNC_SUBJECT, what, candidate_commit, expected, request.into, request.command, untested=request.untested
    )
    return persons_candidate.run_gates(crew, wanted)


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
    places = remotes.find_accepted_remotes(crew, request.base)
    host = find_feedback_host(places, request)
    feedback = host.read_feedback(request.number)
    if feedback.state != "OPEN":
        _close(crew, by, places.project, request, feedback.state)
    _require_own_commit(crew.git, places.push, request, feedback.commit)
    synced = _take(crew, _Reading(by, request, host, feedback, comment))
    remotes.clear_failure(crew.paths.request_sync)
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
    remotes.clear_failure(crew.paths.request_sync)
    if state == "MERGED":
        step = project.fetch_and_sync_command(request.base)
        raise Refused(f"pull request #{request.number} is merged: nothing comes back from it any more", step)
    raise Refused(f"pull request #{request.number} is closed: nothing comes back from it any more", "liza land --pr")


def _require_own_commit(git: Git, remote: Remote, request: TrackedRequest, commit: str) -> None:
    """Raise Refused unless this crew pushed ``commit``. The forge may still show an earlier one than the last."""
    pushed = remote.last_pushed(request.head)
    is_own = COMMIT.fullmatch(commit) is not None and pushed is not None and _contains(git, pushed, commit)
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
    archive.refuse_damaged(crew.board, crew.board.read())
    outputs: dict[str, str] = {}
    for _ in range(_MAX_TRIES):
        state = crew.board.read()
        if not _is_same(state.pull_request, reading.request):
            break
        plan = request_feedback.plan_feedback(feedback, _memory(crew.git, state, feedback.commit), reading.comment)
        for red in plan.new_checks:
            if red.keys[-1] not in outputs:
                outputs[red.keys[-1]] = reading.host.read_output(red.check)
        tasks = _compose_tasks(crew, state, plan, outputs)
        for task in tasks:
            _write_document(crew.paths, task)
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


def _memory(git: Git, state: State, commit: str) -> FeedbackMemory:
    not_pushed = frozenset(
        task_id
        for task_id, merges in request_feedback.find_merge_commits(state).items()
        if not all(_contains(git, commit, merge) for merge in merges)
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
        if name in archive.find_outcomes(self._crew.board, self._state, [name]):
            return True
        data = untrusted_files.read_if_exists(self._crew.paths.specs / f"{name}.md")
        return data is not None and not feedback_text.is_feedback_document(data.decode("utf-8", "replace"), name)


def _compose_tasks(crew: Crew, state: State, plan: FeedbackPlan, outputs: dict[str, str]) -> tuple[FeedbackTask, ...]:
    request, used, tasks = state.pull_request, _UsedIds(crew, state), list[FeedbackTask]()
    for red in plan.new_checks:
        tasks.append(feedback_text.compose_check_task(request, red, outputs[red.keys[-1]], used))
        used.new.add(tasks[-1].fields.id)
    for thread in plan.threads:
        tasks.append(feedback_text.compose_comment_task(request, thread, used))
        used.new.add(tasks[-1].fields.id)
    return tuple(tasks)


def _write_document(paths: Paths, task: FeedbackTask) -> None:
    path = paths.root / str(task.fields.spec_ref)
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
