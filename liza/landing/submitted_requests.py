"""Pull requests of origin that are submitted for review, and the comment that tells their author of a return."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from liza.crew.crew import Crew
from liza.git import branch_moves
from liza.git.git_remote import FETCH_OPTIONS
from liza.git.rules.remote_urls import (
    RemoteRepository,
    find_forge_repository,
    find_request_number,
    parse_remote_url,
)
from liza.landing import forge
from liza.landing.pull_requests import PullRequests
from liza.landing.remotes import Remote, find_project, find_remote
from liza.landing.submitted_tips import head_ref
from liza.model.errors import LizaError, Missing, Refused
from liza.model.model import Submission, Task
from liza.model.value_classes import Value
from liza.tasks.outside_work import WorkSource
from liza.tasks.rules import submissions
from liza.text.quoting import sanitize

_WORD = re.compile(r"[#!]?([1-9][0-9]{0,8})")
_OPEN: Final = ("open", "opened")


class SubmittedRequest(Value):
    """A pull request as the forge has it. ``source`` and ``target``: the repositories of its branch and of its base."""

    state: str = ""
    author: str = ""
    source: str | int = ""
    target: str | int = ""


def is_request(crew: Crew, word: str) -> bool:
    """Return whether a word is the number or the address of a pull request. A branch of that name comes first."""
    number = _WORD.fullmatch(word)
    if number is not None:
        return branch_moves.branch_tip(crew.git, word) is None
    return "://" in word and find_request_number(word) > 0


def find_request(crew: Crew, word: str) -> WorkSource:
    """Fetch the commit of a pull request of origin. Raises Refused, Missing, GitFailed.

    Without the program of the forge nothing is known of its author, who counts as foreign then.
    """
    remote = find_project(find_remote(crew.git))
    repository = find_forge_repository(remote.urls)
    number = _find_number(remote, repository, word)
    commit = _fetch(crew, remote, repository, number)
    facts, remarks = SubmittedRequest(), tuple[str, ...]()
    if repository is None:
        remarks = (f"{remote.name} is not of GitHub or GitLab: the author of request {number} counts as a stranger",)
    else:
        try:
            (facts,) = forge.read_rows(repository, "submitted", SubmittedRequest, number=number)
        except LizaError as error:
            remarks = (f"nothing is known of the author of request {number}: {error.message}; next: {error.hint}",)
    if facts.state and facts.state not in _OPEN:
        raise Refused(f"request {number} is {facts.state}, not open", "liza task list")
    submission = Submission(request=number, author=sanitize(facts.author), is_foreign=_is_foreign(facts))
    return WorkSource(commit, submission, remarks)


def _is_foreign(facts: SubmittedRequest) -> bool:
    """Return whether the request is of a fork, or that is unknown. Who pushes to the repository can write it."""
    return not facts.source or facts.source != facts.target


def _find_number(remote: Remote, repository: RemoteRepository | None, word: str) -> int:
    match = _WORD.fullmatch(word)
    if match is not None:
        return int(match[1])
    named = parse_remote_url(re.sub(r"/(?:-/)?(?:pull|merge_requests)/[0-9]+/?$", "", word))
    if named != repository:
        raise Refused(f"{word} is no request of {remote.project_name}, which this crew lands on", "git remote -v")
    return find_request_number(word)


def _fetch(crew: Crew, remote: Remote, repository: RemoteRepository | None, number: int) -> str:
    """Fetch the head of a request, without a ref of the person's, and return its commit. Raises Missing, GitFailed."""
    name = head_ref(repository, number)
    tips = remote.list_refs(name)
    if name not in tips:
        raise Missing(f"{remote.project_name} has no request {number}", f"git ls-remote {remote.name} {name}")
    result = remote.call("fetch", *FETCH_OPTIONS, patterns=[name])
    if result.code != 0:
        raise remote.explain(result)
    return tips[name]


def comment_returns(crew: Crew, tasks: Iterable[str]) -> tuple[str, ...]:
    """Comment on the requests of these tasks, if they are back with their authors. Return a sentence for each."""
    state = crew.board.read()
    entries = [state.task(task_id) for task_id in tasks]
    returned = (task for task in entries if task is not None and task.status in submissions.RETURNED)
    return tuple(filter(None, (comment_return(crew, task) for task in returned)))


def comment_return(crew: Crew, task: Task) -> str:
    """Comment on the request of a task that came back. Return a sentence about it; empty without a request.

    Nothing fails with it: the board and this command's output say the same.
    """
    submission = task.submission
    if submission is None or not submission.request:
        return ""
    try:
        repository = find_forge_repository(find_project(find_remote(crew.git)).urls)
        if repository is None:
            return ""
        is_new = PullRequests(repository).add_comment(submission.request, submissions.compose_comment(task))
    except LizaError as error:
        return f"request {submission.request} got no comment: {error.message}; next: {error.hint}"
    return f"request {submission.request} {'got a' if is_new else 'has this'} comment"
