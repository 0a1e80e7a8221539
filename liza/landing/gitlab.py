"""Merge requests of GitLab through ``glab api``: find, open and update one, and read its jobs and comments.

The names of fields are those of its documentation: merge_requests, jobs, discussions, members. All texts come from
outside: control characters and secrets are removed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from liza.landing.forge import (
    PullRequest,
    clean_address,
    clean_text,
    decode_output,
    read_pages,
    run_forge,
    run_forge_end,
)
from liza.landing.rules.feedback_text import MAX_OUTPUT
from liza.landing.rules.remote_urls import Forge, RemoteRepository
from liza.landing.rules.request_feedback import CheckResult, RequestComment, RequestFeedback
from liza.model.errors import ForgeSlow, LoginMissing, Missing
from liza.model.value_classes import Value

DEVELOPER = 30
"""The lowest access level that may push."""
_MAX_USERS = 50  # users of one request: an address has a limit
_FAILED = "failed"  # status of a job or a pipeline
_STATES = {"opened": "OPEN", "locked": "OPEN", "closed": "CLOSED", "merged": "MERGED"}
T = TypeVar("T")
_OBJECT = dict[str, Any]


class _MergeRequestRow(msgspec.Struct, frozen=True):
    iid: int
    state: str
    sha: str
    web_url: str
    source_project_id: int
    target_project_id: int


class _PipelineRow(msgspec.Struct, frozen=True):
    id: int
    sha: str
    status: str
    web_url: str | None = None


class _JobRow(msgspec.Struct, frozen=True):
    """A job of a pipeline; GitLab leaves out those that were retried."""

    id: int
    name: str
    stage: str
    status: str
    allow_failure: bool = False
    web_url: str | None = None
    started_at: str | None = None


class _NoteAuthor(msgspec.Struct, frozen=True):
    id: int
    username: str


class _Position(msgspec.Struct, frozen=True):
    new_path: str | None = None
    new_line: int | None = None
    old_line: int | None = None


class _NoteRow(msgspec.Struct, frozen=True):
    """A comment. ``system``: a line that GitLab wrote, such as "changed the title"."""

    id: int
    body: str
    author: _NoteAuthor
    system: bool
    resolved: bool = False
    position: _Position | None = None


class _DiscussionRow(msgspec.Struct, frozen=True):
    notes: list[_NoteRow]


class _MemberRow(msgspec.Struct, frozen=True):
    id: int
    access_level: int


class GitLabFeedback(Value):
    """Jobs and comments through ``glab``. An author has the association MEMBER if the author may push, else NONE.

    ``is_forked``: the branch of the merge request is in a fork, whose pipelines may run there.
    """

    repository: RemoteRepository
    is_forked: bool = False

    def read_feedback(self, number: int) -> RequestFeedback:
        row = self._read(f"merge_requests/{number}", _MergeRequestRow, "merge request")
        is_forked = row.source_project_id != row.target_project_id
        if row.iid != number or is_forked != self.is_forked or row.state not in _STATES:
            raise Missing(f"glab answered with another merge request than !{number}", "glab --version")
        state = _STATES[row.state]
        if state != "OPEN":
            return RequestFeedback(state, row.sha)
        return RequestFeedback(state, row.sha, self._read_checks(number), self._read_comments(row))

    def read_output(self, check: CheckResult) -> str:
        if not check.job:
            return "(The pipeline failed without a failed job: see its address.)"
        words = (f"projects/{self._find_project(check.url)}/jobs/{check.job}/trace", "--hostname", self.repository.host)
        try:
            # The escape sequences are removed below: read more than is shown.
            output = run_forge_end(Forge.GITLAB, "api", *words, size=4 * MAX_OUTPUT)
        except (ForgeSlow, LoginMissing):
            raise
        except Missing as error:
            # A log that was erased never comes back: the job failed all the same.
            return clean_text(f"(Its output cannot be read: {error.message})")
        return clean_text(output).strip() or "(It printed nothing.)"

    @property
    def _project(self) -> str:
        return quote(self.repository.path, safe="")

    def _find_project(self, url: str | None) -> str:
        """Return the project in which a job or a pipeline runs, by its web address: it may be the fork."""
        path, rest, _ = (url or "").removeprefix(f"https://{self.repository.host}/").partition("/-/")
        return quote(path, safe="") if self.is_forked and rest and "://" not in path else self._project

    def _read_checks(self, number: int) -> tuple[CheckResult, ...]:
        """Return the jobs of the newest pipeline. One of another commit than the newest keeps its own keys."""
        pipelines = tuple(self._read_list(f"merge_requests/{number}/pipelines", _PipelineRow, "pipelines"))
        if not pipelines:
            return ()
        newest = max(pipelines, key=lambda pipeline: pipeline.id)
        project = self._find_project(newest.web_url)
        jobs = self._read_list(f"pipelines/{newest.id}/jobs", _JobRow, "jobs", project)
        checks = tuple(_check(newest, job) for job in jobs)
        if newest.status == _FAILED and all(check.result != "FAILURE" for check in checks):
            # A broken configuration, or a failed pipeline below this one.
            url = clean_address(newest.web_url)
            return (*checks, CheckResult("pipeline", str(newest.id), "", "FAILURE", url, commit=newest.sha))
        return checks

    def _read_comments(self, row: _MergeRequestRow) -> tuple[RequestComment, ...]:
        path = f"merge_requests/{row.iid}/discussions"
        discussions = tuple(self._read_list(path, _DiscussionRow, "discussions"))
        notes = [(talk.notes[0].id, note) for talk in discussions for note in talk.notes if _is_open(note)]
        pushers = self._find_pushers({note.author.id for _, note in notes})
        url = clean_address(row.web_url)
        return tuple(_comment(note, first, url, can_push=note.author.id in pushers) for first, note in notes)

    def _find_pushers(self, users: Collection[int]) -> frozenset[int]:
        """Return those of the users who may push to the project, also as members of a group."""
        ordered = sorted(users)
        pushers = set[int]()
        for start in range(0, len(ordered), _MAX_USERS):
            wanted = "&".join(f"user_ids%5B%5D={user}" for user in ordered[start : start + _MAX_USERS])
            members = self._read_list(f"members/all?{wanted}", _MemberRow, "members")
            pushers |= {member.id for member in members if member.access_level >= DEVELOPER}
        return frozenset(pushers & set(users))

    def _read_list(self, path: str, kind: type[T], what: str, project: str | None = None) -> Iterator[T]:
        glue = "&" if "?" in path else "?"
        return read_pages(
            path.partition("?")[0],
            lambda page: self._read(f"{path}{glue}{page}", list[kind], what, project),  # type: ignore[valid-type]
        )

    def _read(self, path: str, kind: type[T], what: str, project: str | None = None) -> T:
        words = (f"projects/{project or self._project}/{path}", "--hostname", self.repository.host)
        return decode_output(Forge.GITLAB, run_forge(Forge.GITLAB, "api", *words), kind, what)


def _check(pipeline: _PipelineRow, job: _JobRow) -> CheckResult:
    is_red = job.status == _FAILED and not job.allow_failure
    return CheckResult(
        name=clean_text(f"{job.stage} / {job.name}"),
        run=str(pipeline.id),
        job=str(job.id),
        result="FAILURE" if is_red else "",
        url=clean_address(job.web_url),
        started=job.started_at or "",
        commit=pipeline.sha,
    )


def _is_open(note: _NoteRow) -> bool:
    return not note.system and not note.resolved


def _comment(note: _NoteRow, first: int, url: str, *, can_push: bool) -> RequestComment:
    position = note.position or _Position()
    return RequestComment(
        id=f"note_{note.id}",
        author=clean_text(note.author.username),
        association="MEMBER" if can_push else "NONE",
        body=clean_text(note.body),
        url=f"{url}#note_{note.id}",
        thread=f"note_{first}",
        path=None if position.new_path is None else clean_text(position.new_path),
        line=position.new_line or position.old_line,
    )


class GitLabRequests(Value):
    """Merge requests through ``glab api``. ``repository`` is the path of the project on ``host``, ``fork`` that of the
    fork with the branch; None if the branch is in the project itself.

    Not through ``glab mr``: `glab mr create` works only in a repository, in which it adds remotes.
    """

    host: str
    repository: str
    fork: str | None = None

    def find_request(self, head: str, base: str) -> PullRequest | None:
        where = urlencode({"state": "opened", "source_branch": head, "target_branch": base})
        rows = decode_output(Forge.GITLAB, self._run("GET", f"?{where}"), list[_OBJECT], "merge request")
        source = None if self.fork is None else self._read_id(self.fork)
        own = [row for row in rows if row["source_project_id"] == (source or row["target_project_id"])]
        return PullRequest(own[0]["iid"], own[0]["web_url"], own[0]["description"] or "") if own else None

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        fields: dict[str, str | int]
        fields = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        if self.fork is None:
            return str(_read_object(self._run("POST", "", fields)).get("web_url", ""))
        # GitLab wants the request at the fork, and the number of the project.
        fields["target_project_id"] = self._read_id(self.repository)
        return str(_read_object(self._run("POST", "", fields, self.fork)).get("web_url", ""))

    def update_request(self, number: int, body: str) -> None:
        self._run("PUT", f"/{number}", {"description": body})

    def _read_id(self, repository: str) -> int:
        words = ("api", f"projects/{quote(repository, safe='')}", "--method", "GET", "--hostname", self.host)
        number = _read_object(run_forge(Forge.GITLAB, *words)).get("id")
        if not isinstance(number, int):
            raise Missing(f"{Forge.GITLAB} printed no number of the project {repository}", f"{Forge.GITLAB} --version")
        return number

    def _run(
        self, method: str, rest: str, fields: Mapping[str, str | int] | None = None, repository: str | None = None
    ) -> str:
        endpoint = f"projects/{quote(repository or self.repository, safe='')}/merge_requests{rest}"
        words = ["api", endpoint, "--method", method, "--hostname", self.host]
        if fields is None:
            return run_forge(Forge.GITLAB, *words)
        # As input: a long description does not fit on a command line.
        words += ["--header", "Content-Type: application/json", "--input", "-"]
        return run_forge(Forge.GITLAB, *words, text=msgspec.json.encode(fields).decode())


def _read_object(text: str) -> dict[str, Any]:
    return decode_output(Forge.GITLAB, text, _OBJECT, "merge request")
