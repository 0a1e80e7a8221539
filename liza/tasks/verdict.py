"""verdict approve · verdict reject: decide a review."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from liza.board.contract import Transaction
from liza.crew.caller import identify_run, record_run_result, require_person, require_task
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git.runner import Git
from liza.model.errors import NotOwner, Refused, UsageError
from liza.model.model import LineComment, State, Status
from liza.model.value_classes import Text, Value, WorkerRequest
from liza.tasks import archive, next_steps, shared_code
from liza.tasks.next_steps import NextStep
from liza.tasks.rules import claims, reviews, strangers, submissions
from liza.tasks.rules.picking import waits_for_author
from liza.tasks.rules.reviews import MAX_COMMENT_TEXT, MAX_COMMENTS, MAX_LINE
from liza.text.formats import did_you_mean


class VerdictWord(StrEnum):
    """The decision of a reviewer."""

    APPROVE = "approve"
    REJECT = "reject"


class VerdictComment(WorkerRequest, frozen=True, kw_only=True):
    """A comment of a rejection on a line, which counts from 1, of a file at the reviewed commit.

    ``path`` is relative to the root of the repository.
    """

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=4_096)]
    line: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINE)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_COMMENT_TEXT)]


class VerdictRequest(WorkerRequest, frozen=True, kw_only=True):
    """Approve or reject the commit under review. ``reason``: what was run and seen, or what is wrong.

    ``comments``: only with a rejection.
    """

    verdict: VerdictWord
    reason: Text
    comments: Annotated[tuple[VerdictComment, ...], msgspec.Meta(max_length=MAX_COMMENTS)] = ()


class Judgment(Value):
    """A verdict: ``approve`` or ``reject``, its reason, and comments as pairs of ``FILE:LINE`` and text."""

    word: str
    reason: str
    comments: tuple[tuple[str, str], ...] = ()


def verdict(
    crew: Crew,
    word: str,
    reason: str,
    *,
    task_id: str | None = None,
    commit: str | None = None,
    comments: Sequence[tuple[str, str]] = (),
) -> Result:
    """Approve or reject a commit: a reviewer's run that of its brief, a person that of the named task.

    ``comments`` of a rejection: pairs of ``FILE:LINE`` and text, about lines of that commit. Raises Refused, NotOwner,
    UsageError.
    """
    if word not in ("approve", "reject"):
        raise UsageError(
            f"{word!r} is not a verdict: expected approve or reject{did_you_mean(word, ('approve', 'reject'))}",
            'liza verdict approve "what you ran and saw"',
        )
    if not reason.strip():
        raise UsageError(
            "the verdict has no reason: say what you ran and saw, or what is wrong", f'liza verdict {word} "…"'
        )
    if comments and word == "approve":
        raise UsageError("comments on lines belong to a rejection", "liza verdict --help")
    judgment = Judgment(word, reason, tuple(comments))
    if task_id is not None and not os.environ.get("LIZA_RUN"):
        return _by_person(crew, judgment, task_id, commit)
    return _by_run(crew, judgment, task_id)


def judge(crew: Crew, request: VerdictRequest) -> Result:
    """Approve or reject the commit under review. As ``verdict``, for a reviewer's run."""
    comments = [(f"{comment.path}:{comment.line}", comment.text) for comment in request.comments]
    return verdict(crew, request.verdict.value, request.reason, comments=comments)


def _record(
    crew: Crew, judgment: Judgment, task_id: str, by: str, commit: str, quoted: tuple[LineComment, ...]
) -> Transaction:
    with crew.change(by, judgment.word, task_id) as tx:
        now = crew.clock.now()
        if judgment.word == "approve":
            tx.state = reviews.approve(tx.state, task_id, by, commit, now, judgment.reason)
        else:
            tx.state = reviews.reject(tx.state, task_id, by, commit, now, judgment.reason, comments=quoted)
    return tx


def _quote_lines(git: Git, comments: Sequence[tuple[str, str]], commit: str) -> tuple[LineComment, ...]:
    """Return the comments with the lines of ``commit`` that they are about. Raises UsageError, GitFailed."""
    if not comments:
        return ()

    reviews.check_comments(comments)
    quoted = []
    for location, text in comments:
        path, _ = reviews.parse_location(location)
        data = _read_file(git, commit, path, reviews.MAX_FILE)
        quoted.append(reviews.quote_comment(location, text, commit, data))
    return tuple(quoted)


def _read_file(git: Git, commit: str, path: str, limit: int) -> bytes | None:
    """Return a file at a commit; None if it has no such file, or only a larger one. Raises GitFailed."""
    name = f"{commit}:{path}"
    if "\n" in path or "\0" in path or git.run("cat-file", "-t", name, codes=(0, 1, 128)).stdout.strip() != b"blob":
        return None
    size = int(git.run("cat-file", "-s", name, codes=(0,)).stdout)
    return git.run("cat-file", "blob", name, codes=(0,)).stdout if size <= limit else None


def _by_run(crew: Crew, judgment: Judgment, task_id: str | None) -> Result:
    try:
        caller = identify_run(crew)
    except NotOwner:
        raise
    except Refused as error:
        waiting = [task.id for task in crew.board.read().tasks if task.status is Status.READY_FOR_REVIEW]
        if waiting:  # a person's verdict names its task
            error.hint = shlex.join(["liza", "verdict", judgment.word, judgment.reason, "--task", waiting[0]])
        raise
    reviews.require_reviewer(caller.agent)
    task = require_task(caller)
    if task_id not in (None, task):
        raise Refused(f"{caller.run} reviews {task}, not {task_id}", "liza ready")
    record = crew.run_dir(caller.run).read_record()
    commit = record.commit if record and record.commit else crew.worktrees.head_commit(caller.agent)
    quoted = _quote_lines(crew.git, judgment.comments, commit)
    tx = _record(crew, judgment, task, caller.run, commit, quoted)
    record_run_result(crew, caller.run, "0")
    manual_step = f"liza merge {task}" if judgment.word == "approve" else f"liza task show {task}"
    return make_result(tx.before, tx.state, task, "stop now" if crew.run_dir(caller.run).exists() else manual_step)


def _full_commit(git: Git, commit: str, task_id: str) -> str:
    result = git.run("rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{commit}}", codes=(0, 1, 128))
    if result.code != 0:
        raise UsageError(f"{commit!r} is not a commit of this repository", f"liza diff {task_id}")
    return result.stdout.decode().strip()


def _by_person(crew: Crew, judgment: Judgment, task_id: str, commit: str | None) -> Result:
    by = require_person(crew, planner=False)
    state = crew.board.read()
    if state.task(task_id) is None:
        archive.refuse_archived(crew.board, state, [task_id])
    task = claims.get_task(state, task_id)
    if task.review_commit is not None:
        shared_code.fetch_submitted(crew, [task])
    named_commit = commit or task.review_commit or ""
    commit_id = _full_commit(crew.git, named_commit, task_id) if named_commit else ""
    quoted = _quote_lines(crew.git, judgment.comments, commit_id) if commit_id else ()
    tx = _record(crew, judgment, task_id, by, commit_id, quoted)
    result = make_result(tx.before, tx.state, task_id, "")
    return next_steps.with_next_step(result, _next_step(crew, tx.state, judgment.word, task_id))


def _next_step(crew: Crew, state: State, word: str, task_id: str) -> NextStep:
    """Return who goes on after a person's verdict. Without a crew the person does."""
    task = claims.get_task(state, task_id)
    coder = task.assigned_to
    if waits_for_author(task):
        return NextStep(*submissions.describe_return(task))
    if strangers.lacks_permission(task) and task.status is Status.APPROVED:
        return NextStep(strangers.permission_obstacle(task) or "", strangers.permit_command(task))
    is_crew = any(crew.is_supervised(agent) for agent in state.agents)
    if word == "approve":
        step = next_steps.find_next_step(crew, state, "the crew merges it")
        return step if is_crew else NextStep("", f"liza merge {task_id}")
    if is_crew or task.submission is not None:
        return next_steps.find_next_step(crew, state, "a coder continues it", "coder")
    if task.status is Status.BLOCKED:
        return NextStep("", f'liza answer {task_id} "…"')
    return NextStep("", f"liza claim {task_id} --agent {coder or 'coder-1'}")
