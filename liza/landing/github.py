"""Pull requests of GitHub through ``gh``: find, open and update one, and read its checks and comments.

`gh pr view` has the checks, the REST interface the comments: its ids are those in the URLs, and it has the paths of
commented files. All texts come from outside: control characters and secrets are removed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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

_ROWS = list[dict[str, Any]]
_VIEW_FIELDS = "number,state,headRefOid,isCrossRepository,statusCheckRollup"
_JOB_URL = re.compile(r"https://([^/]+)/([^/]+/[^/]+)/actions/runs/(\d+)/job/(\d+)")
_ANCHORS = {"issues": "issuecomment-", "comments": "discussion_r", "reviews": "pullrequestreview-"}


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
    """Checks and comments through ``gh``. ``is_forked``: the branch of the pull request is in a fork."""

    repository: RemoteRepository
    is_forked: bool = False

    def read_feedback(self, number: int) -> RequestFeedback:
        words = ("view", str(number), "--json", _VIEW_FIELDS, "--repo", self.repository.full_name)
        row = decode_output(Forge.GITHUB, run_forge(Forge.GITHUB, "pr", *words), _RequestRow, "pull request")
        if row.number != number or row.is_cross_repository != self.is_forked:
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
            return clean_text(f"(Its output cannot be read: {error.message})")
        return clean_text(output).strip() or "(It printed nothing.)"

    def _check(self, row: _CheckRow) -> CheckResult:
        if row.type_name == "StatusContext":
            url = clean_address(row.target_url)
            return CheckResult(clean_text(row.context or ""), "", url, row.state or "", url, row.started_at or "")
        name = " / ".join(clean_text(part) for part in (row.workflow_name, row.name) if part)
        url = clean_address(row.details_url)
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
        def read_page(page: str) -> list[_CommentRow]:
            words = (f"repos/{self.repository.path}/{path}?{page}", "--hostname", self.repository.host)
            output = run_forge(Forge.GITHUB, "api", *words)
            return decode_output(Forge.GITHUB, output, list[_CommentRow], "comments")

        return read_pages(path, read_page)


def _comment(row: _CommentRow, kind: str, *, is_request: bool) -> RequestComment:
    anchor = _ANCHORS[kind]
    return RequestComment(
        id=f"{anchor}{row.id}",
        author="a deleted account" if row.user is None else clean_text(row.user.login),
        association=row.author_association,
        body=clean_text(row.body or ""),
        url=clean_address(row.html_url),
        thread=f"{anchor}{row.in_reply_to_id or row.id}",
        path=None if row.path is None else clean_text(row.path),
        line=row.line or row.original_line,
        is_request=is_request,
    )


class GitHubRequests(Value):
    """Pull requests through ``gh``. ``repository`` is HOST/OWNER/NAME. ``owner``: who has the fork with the branch;
    None if the branch is in the repository itself.
    """

    repository: str
    owner: str | None = None

    def find_request(self, head: str, base: str) -> PullRequest | None:
        fields = "number,url,body,isCrossRepository" + (",headRepositoryOwner" if self.owner else "")
        where = ("--head", head, "--base", base, "--state", "open")
        rows = decode_output(Forge.GITHUB, self._run("list", *where, "--json", fields), _ROWS, "pull request")
        # A branch of this name in a fork is another branch.
        own = [row for row in rows if self._is_own(row)]
        return PullRequest(own[0]["number"], own[0]["url"], own[0]["body"]) if own else None

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        source = f"{self.owner}:{head}" if self.owner else head
        words = ("--head", source, "--base", base, "--title", title, "--body-file", "-")
        return _last_line(self._run("create", *words, text=body))

    def update_request(self, number: int, body: str) -> None:
        self._run("edit", str(number), "--body-file", "-", text=body)

    def _is_own(self, row: Mapping[str, Any]) -> bool:
        owner = (row["headRepositoryOwner"] or {}).get("login", "") if self.owner else ""
        return bool(row["isCrossRepository"]) == bool(self.owner) and owner.lower() == (self.owner or "").lower()

    def _run(self, *args: str, text: str | None = None) -> str:
        return run_forge(Forge.GITHUB, "pr", *args, "--repo", self.repository, text=text)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
