"""The pull requests of a repository at GitHub or GitLab: find, open and update one, read its checks and comments.

All texts come from outside: control characters and secrets are removed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from liza.git.rules.remote_urls import Forge, RemoteRepository, find_forge_repository
from liza.landing import forge
from liza.landing.forge import clean_address, clean_text
from liza.landing.remotes import Remotes
from liza.landing.rules.feedback_text import MAX_OUTPUT
from liza.landing.rules.request_feedback import CheckResult, RequestComment, RequestFeedback
from liza.model.errors import ForgeSlow, LoginMissing, Missing, Refused
from liza.model.model import TrackedRequest
from liza.model.value_classes import Value, replace

DEVELOPER = 30
"""The lowest access level of GitLab that may push."""
_STATES = {"opened": "OPEN", "locked": "OPEN"}
_FAILED = "failed"  # status of a job or a pipeline of GitLab
_JOB_URL = re.compile(r"https://([^/]+/[^/]+/[^/]+)/actions/runs/(\d+)/job/(\d+)")


class PullRequest(Value):
    """An open pull request. ``body`` is its text. ``source`` and ``target``: projects of its branches, at GitLab."""

    number: int
    url: str
    body: str = ""
    source: int = 0
    target: int = 0


class _ViewRow(Value):
    url: str
    state: str
    commit: str
    checks: tuple[dict[str, Any], ...] = ()


class _CheckRow(Value):
    """A check run or a commit status of GitHub, or a job of GitLab."""

    name: str
    group: str = ""
    result: str = ""
    url: str = ""
    started: str = ""
    job: int | str = ""
    may_fail: bool = False


class _PipelineRow(Value):
    id: int
    commit: str
    status: str
    url: str = ""


class _NoteRow(Value):
    """A comment. ``association``: what its author is to the repository. ``first``: the first comment of its thread.

    ``state`` and ``review`` are those of a review of GitHub; ``user``, ``is_system`` and ``is_resolved`` of GitLab.
    """

    id: int
    body: str = ""
    author: str = "a deleted account"
    association: str = "NONE"
    url: str = ""
    path: str | None = None
    line: int | None = None
    first: int = 0
    state: str = ""
    review: int = 0
    user: int = 0
    is_system: bool = False
    is_resolved: bool = False


class _DiscussionRow(Value):
    notes: list[dict[str, Any]]


class _MemberRow(Value):
    """A member of a project with an access level, or a project."""

    id: int
    level: int = 0


class PullRequests(Value):
    """The pull requests of ``repository``. ``fork``: path of the fork with the branch; None if it is there itself.

    All methods raise Missing; a failed read is never an empty list.
    """

    repository: RemoteRepository
    fork: str | None = None

    @property
    def _is_github(self) -> bool:
        return self.repository.forge is Forge.GITHUB

    @property
    def _source(self) -> RemoteRepository:
        """The repository with the branch, in which pipelines of GitLab may run."""
        return self.repository if self.fork is None else replace(self.repository, path=self.fork)

    def find_request(self, head: str, base: str) -> PullRequest | None:
        """Return the open pull request of the branch ``head``. A branch of this name in another fork is another one."""
        rows = forge.read_rows(
            self.repository, "find", PullRequest, head=head, base=base, qualified=self._qualify(head)
        )
        source = 0 if self._is_github or self.fork is None else self._read_id(self._source)
        return next((row for row in rows if row.source == (source or row.target)), None)

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        """Open a pull request; return its URL."""
        # GitLab wants the request of a fork there, and the number of the project.
        target = None if self._is_github or self.fork is None else self._read_id(self.repository)
        values = {"head": head, "base": base, "title": title, "body": body, "qualified": self._qualify(head)}
        source = forge.project_address(self._source)
        (row,) = forge.read_rows(self.repository, "open", PullRequest, **values, target=target, source=source)
        return row.url

    def update_request(self, number: int, body: str) -> None:
        forge.call_forge(self.repository, "update", number=number, body=body)

    def _qualify(self, head: str) -> str:
        return f"{self._source.path.partition('/')[0]}:{head}"

    def _read_id(self, repository: RemoteRepository) -> int:
        return forge.read_rows(repository, "project", _MemberRow)[0].id

    def read_feedback(self, number: int) -> RequestFeedback:
        (row,) = forge.read_rows(self.repository, "view", _ViewRow, number=number)
        state = _STATES.get(row.state, row.state.upper())
        if state != "OPEN":
            return RequestFeedback(state, row.commit)
        checks = map(self._github_check, row.checks) if self._is_github else self._read_jobs(number)
        comments = self._read_notes(number) if self._is_github else self._read_discussions(number, row.url)
        return RequestFeedback(state, row.commit, tuple(checks), tuple(comments))

    def read_output(self, check: CheckResult) -> str:
        """Return the end of the output of a red check, or the reason why there is no output."""
        if not (check.run and check.job):
            return "(Its output is not at the forge: see its address.)"
        try:
            # The escape sequences are removed below: read more than is shown.
            output = forge.call_forge(
                self.repository, "log", size=4 * MAX_OUTPUT, job=check.job, source=self._find_project(check.url)
            )
        except (ForgeSlow, LoginMissing):
            raise
        except Missing as error:
            # A log that has expired never comes back: the check is red all the same.
            return clean_text(f"(Its output cannot be read: {error.message})")
        return clean_text(output).strip() or "(It printed nothing.)"

    def _github_check(self, row: dict[str, Any]) -> CheckResult:
        check = forge.to_struct(self.repository, "check", row, _CheckRow)
        name = " / ".join(clean_text(part) for part in (check.group, check.name) if part)
        url = clean_address(check.url)
        match = _JOB_URL.match(url)
        is_own = match is not None and match[1].lower() == self.repository.full_name.lower()
        run, job = (match[2], match[3]) if match is not None and is_own else ("", url)
        return CheckResult(name, run, job, check.result, url, check.started)

    def add_comment(self, number: int, body: str) -> bool:
        """Comment on a request, and return whether that was new: a process that was killed may have done it before."""
        rows = self._read_rows_of_notes(number)
        if any(row.body.split() == body.split() for row in rows):
            return False
        forge.call_forge(self.repository, "comment", number=number, body=body)
        return True

    def _read_rows_of_notes(self, number: int) -> Iterator[_NoteRow]:
        """Yield the comments on a request as a whole."""
        if self._is_github:
            yield from forge.read_rows(self.repository, "notes", _NoteRow, number=number)
            return
        for thread in forge.read_rows(self.repository, "notes", _DiscussionRow, number=number):
            yield from (forge.to_struct(self.repository, "note", note, _NoteRow) for note in thread.notes)

    def _read_notes(self, number: int) -> Iterator[RequestComment]:
        inline, reviews, notes = (
            forge.read_rows(self.repository, verb, _NoteRow, number=number)
            for verb in ("line_notes", "reviews", "notes")
        )
        answered = {row.review for row in inline}
        for row in reviews:
            # A review is open until it is submitted, and an approval asks for nothing.
            if row.state in ("COMMENTED", "CHANGES_REQUESTED"):
                is_request = row.state == "CHANGES_REQUESTED" and not (not row.body.strip() and row.id in answered)
                yield _comment(row, "pullrequestreview-", is_request=is_request)
        yield from (_comment(row, "discussion_r") for row in inline)
        yield from (_comment(row, "issuecomment-") for row in notes)

    def _find_project(self, url: str) -> str:
        """Return the project in which a job or a pipeline of GitLab runs, by its web address: it may be the fork."""
        path = url.removeprefix(f"https://{self.repository.host}/").partition("/-/")[0]
        return forge.project_address(self._source if path == self.fork else self.repository)

    def _read_jobs(self, number: int) -> Iterator[CheckResult]:
        """Yield the jobs of the newest pipeline. One of another commit than the newest keeps its own keys."""
        pipelines = forge.read_rows(self.repository, "pipelines", _PipelineRow, number=number)
        if not pipelines:
            return
        newest = max(pipelines, key=lambda pipeline: pipeline.id)
        run, source = f"{newest.id}", self._find_project(newest.url)
        jobs = forge.read_rows(self.repository, "jobs", _CheckRow, pipeline=newest.id, source=source)
        failed = [job for job in jobs if job.result == _FAILED and not job.may_fail]
        for job in failed:
            name, url = clean_text(f"{job.group} / {job.name}"), clean_address(job.url)
            yield CheckResult(name, run, f"{job.job}", "FAILURE", url, job.started, newest.commit)
        if newest.status == _FAILED and not failed:
            # A broken configuration, or a failed pipeline below this one.
            url = clean_address(newest.url)
            yield CheckResult("pipeline", run, "", "FAILURE", url, commit=newest.commit)

    def _read_discussions(self, number: int, url: str) -> Iterator[RequestComment]:
        """Yield the comments of GitLab. An author has the association MEMBER if the author may push, else NONE."""
        rows = forge.read_rows(self.repository, "notes", _DiscussionRow, number=number)
        threads = [[forge.to_struct(self.repository, "note", note, _NoteRow) for note in row.notes] for row in rows]
        notes = [
            replace(note, first=thread[0].id, url=f"{url}#note_{note.id}")
            for thread in threads
            for note in thread
            if not note.is_system and not note.is_resolved
        ]
        pushers = self._find_pushers({note.user for note in notes})
        yield from (
            _comment(replace(note, association="MEMBER" if note.user in pushers else "NONE"), "note_") for note in notes
        )

    def _find_pushers(self, users: set[int]) -> set[int]:
        """Return those of the users who may push to the project, also as members of a group."""
        if not users:
            return set()
        wanted = "&".join(f"user_ids%5B%5D={user}" for user in sorted(users))
        members = forge.read_rows(self.repository, "members", _MemberRow, users=wanted)
        return users & {member.id for member in members if member.level >= DEVELOPER}


def _comment(row: _NoteRow, anchor: str, *, is_request: bool = False) -> RequestComment:
    return RequestComment(
        id=f"{anchor}{row.id}",
        author=clean_text(row.author),
        association=row.association,
        body=clean_text(row.body),
        url=clean_address(row.url),
        thread=f"{anchor}{row.first or row.id}",
        path=None if row.path is None else clean_text(row.path),
        line=row.line,
        is_request=is_request,
    )


def find_request_host(remotes: Remotes) -> PullRequests | None:
    """Return where the project's pull requests are; None if its host has no known program, if that is not installed, or
    if the branch was pushed to another host.
    """
    source, repository = (find_forge_repository(remote.urls) for remote in (remotes.push, remotes.project))
    if repository is None or repository.forge is None or not forge.is_installed(repository.forge):
        return None
    if source is None or source.host.lower() != repository.host.lower():
        return None
    return PullRequests(repository, remotes.fork)


def find_feedback_host(remotes: Remotes, request: TrackedRequest) -> PullRequests:
    """Return where the feedback of the tracked pull request is.

    Raises Refused if the project is another repository than that of the pull request.
    """
    project, repository = remotes.project, find_forge_repository(remotes.project.urls)
    if repository is None or repository.full_name != request.repository:
        message = f"{project.name} is {project.address}, and pull request #{request.number} is in {request.repository}"
        raise Refused(message, "liza land --pr")
    return PullRequests(repository, remotes.fork)
