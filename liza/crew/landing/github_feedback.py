"""Read the checks and comments of a pull request through ``gh``.

`gh pr view` has the checks, the REST interface the comments: its ids are those in the URLs, and it has the paths of
commented files. All texts come from outside: control characters and secrets are removed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import msgspec

from liza.crew.landing.forge_program import run_forge, run_forge_end
from liza.crew.landing.remote_branches import REMOTE, Remote
from liza.programs.brief.quoting import sanitize
from liza.rules.errors import ForgeSlow, LoginMissing, Missing, Refused
from liza.rules.landing.feedback_text import MAX_OUTPUT
from liza.rules.landing.remote_urls import Forge, RemoteRepository, find_forge_repository, hide_credentials
from liza.rules.landing.request_feedback import CheckResult, RequestComment, RequestFeedback
from liza.rules.lazy_pattern import lazy_pattern
from liza.rules.model import TrackedRequest
from liza.rules.value_classes import Value

PAGE_SIZE = 100
MAX_PAGES = 20
"""Pages of one list of comments. A longer list is an error, never a part of the list."""
_VIEW_FIELDS = "number,state,headRefOid,isCrossRepository,statusCheckRollup"
_JOB_URL = lazy_pattern(r"https://([^/]+)/([^/]+/[^/]+)/actions/runs/(\d+)/job/(\d+)")
_ESCAPES = lazy_pattern(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_ANCHORS = {"issues": "issuecomment-", "comments": "discussion_r", "reviews": "pullrequestreview-"}
T = TypeVar("T")


class FeedbackHost(Protocol):
    """Checks and comments of one repository. All methods raise Missing; a failed read is never an empty list."""

    def read_feedback(self, number: int) -> RequestFeedback: ...

    def read_output(self, check: CheckResult) -> str:
        """Return the end of what a red check printed, or why there is none."""
        ...


class _CheckRow(msgspec.Struct, frozen=True, rename="camel"):
    """A check run or a commit status of ``statusCheckRollup``."""

    type_name: str = msgspec.field(name="__typename")
    name: str | None = None
    workflow_name: str | None = None
    conclusion: str | None = None
    details_url: str | None = None
    started_at: str | None = None
    context: str | None = None
    state: str | None = None
    target_url: str | None = None


class _RequestRow(msgspec.Struct, frozen=True, rename="camel"):
    """What ``gh pr view --json`` prints."""

    number: int
    state: str
    head_ref_oid: str
    is_cross_repository: bool
    status_check_rollup: list[_CheckRow] | None


class _User(msgspec.Struct, frozen=True):
    login: str


class _CommentRow(msgspec.Struct, frozen=True):
    """A row of the three lists of comments. ``user`` is null for a deleted account."""

    id: int
    html_url: str
    author_association: str
    user: _User | None = None
    body: str | None = None
    state: str = ""
    path: str | None = None
    line: int | None = None
    original_line: int | None = None
    in_reply_to_id: int | None = None
    pull_request_review_id: int | None = None


class GitHubFeedback(Value):
    """Checks and comments through ``gh``."""

    repository: RemoteRepository

    def read_feedback(self, number: int) -> RequestFeedback:
        words = ("view", str(number), "--json", _VIEW_FIELDS, "--repo", self.repository.full_name)
        row = _decode(run_forge(Forge.GITHUB, "pr", *words), _RequestRow, "pull request")
        if row.number != number or row.is_cross_repository:
            raise Missing(f"gh answered with another pull request than #{number}", "gh --version")
        checks = tuple(map(self._check, row.status_check_rollup or ()))
        if row.state != "OPEN":
            return RequestFeedback(row.state, row.head_ref_oid, checks)
        return RequestFeedback(row.state, row.head_ref_oid, checks, tuple(self._read_comments(number)))

    def read_output(self, check: CheckResult) -> str:
        if not check.run:
            return "(Its output is not on GitHub: see its address.)"
        words = ("run", "view", "--job", check.job, "--log-failed", "--repo", self.repository.full_name)
        try:
            # The escape sequences are removed below: read more than is shown.
            output = run_forge_end(Forge.GITHUB, *words, size=4 * MAX_OUTPUT)
        except (ForgeSlow, LoginMissing):
            raise
        except Missing as error:
            # A log that has expired never comes back: the check is red all the same.
            return _clean(f"(Its output cannot be read: {error.message})")
        return _clean(output).strip() or "(It printed nothing.)"

    def _check(self, row: _CheckRow) -> CheckResult:
        if row.type_name == "StatusContext":
            url = _web_address(row.target_url)
            return CheckResult(_clean(row.context or ""), "", url, row.state or "", url, row.started_at or "")
        name = " / ".join(_clean(part) for part in (row.workflow_name, row.name) if part)
        url = _web_address(row.details_url)
        match = _JOB_URL.match(url)
        is_own = match is not None and f"{match[1]}/{match[2]}".lower() == self.repository.full_name.lower()
        run, job = (match[3], match[4]) if match is not None and is_own else ("", url)
        return CheckResult(name, run, job, row.conclusion or "", url, row.started_at or "")

    def _read_comments(self, number: int) -> Iterator[RequestComment]:
        inline = tuple(self._read_rows(f"pulls/{number}/comments"))
        answered = {row.pull_request_review_id for row in inline}
        for row in self._read_rows(f"pulls/{number}/reviews"):
            # A review is open until it is submitted, and an approval asks for nothing.
            if row.state in ("COMMENTED", "CHANGES_REQUESTED"):
                is_bare = not (row.body or "").strip()
                is_request = row.state == "CHANGES_REQUESTED" and not (is_bare and row.id in answered)
                yield _comment(row, "reviews", is_request=is_request)
        for row in inline:
            yield _comment(row, "comments", is_request=False)
        for row in self._read_rows(f"issues/{number}/comments"):
            yield _comment(row, "issues", is_request=False)

    def _read_rows(self, path: str) -> Iterator[_CommentRow]:
        for page in range(1, MAX_PAGES + 1):
            address = f"repos/{self.repository.path}/{path}?per_page={PAGE_SIZE}&page={page}"
            output = run_forge(Forge.GITHUB, "api", address, "--hostname", self.repository.host)
            rows = _decode(output, list[_CommentRow], "comments")
            yield from rows
            if len(rows) < PAGE_SIZE:
                return
        raise Missing(f"{path} has more than {MAX_PAGES * PAGE_SIZE} entries", "liza task add --help")


def find_feedback_host(remote: Remote, request: TrackedRequest) -> FeedbackHost:
    """Return where the feedback of the tracked pull request is.

    Raises Refused if origin is another repository than that of the pull request, or one that is not on GitHub.
    """
    repository = find_forge_repository(remote.urls)
    if repository is None or repository.full_name != request.repository:
        message = f"{REMOTE} is {remote.address}, and pull request #{request.number} is in {request.repository}"
        raise Refused(message, "liza land --pr")
    if repository.forge is not Forge.GITHUB:
        message = f"liza sync --pr reads pull requests of GitHub only, and {repository.full_name} is not there"
        raise Refused(message, f"glab mr view {request.number} --comments --repo {repository.full_name}")
    return GitHubFeedback(repository)


def _comment(row: _CommentRow, kind: str, *, is_request: bool) -> RequestComment:
    anchor = _ANCHORS[kind]
    return RequestComment(
        id=f"{anchor}{row.id}",
        author="a deleted account" if row.user is None else _clean(row.user.login),
        association=row.author_association,
        body=_clean(row.body or ""),
        url=_web_address(row.html_url),
        thread=f"{anchor}{row.in_reply_to_id or row.id}",
        path=None if row.path is None else _clean(row.path),
        line=row.line or row.original_line,
        is_request=is_request,
    )


def _decode(output: str, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(output, type=kind)
    except msgspec.DecodeError as error:
        raise Missing(f"gh printed no {what} that can be read: {error}", "gh --version") from error


def _clean(text: str) -> str:
    return sanitize(_ESCAPES.sub("", text))


def _web_address(url: str | None) -> str:
    """Return a web address of one line without credentials; empty for anything else."""
    text = hide_credentials(_clean(url or ""))
    return text if text.startswith(("https://", "http://")) and len(text.split()) == 1 and len(text) <= 500 else ""
