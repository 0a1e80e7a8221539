"""Find, open and update the pull request of a branch, through ``gh`` or ``glab``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from liza.crew.landing.forge_program import is_installed, run_forge
from liza.crew.landing.remote_branches import Remote
from liza.rules.errors import Missing
from liza.rules.formatting.type_errors import describe_decode_error
from liza.rules.landing.remote_urls import Forge, find_forge_repository
from liza.rules.value_classes import Value, decodable

T = TypeVar("T")


class PullRequest(Value):
    """An open pull request. ``body`` is its text."""

    number: int
    url: str
    body: str = ""


class RequestHost(Protocol):
    """Pull requests of one repository. All methods raise Missing."""

    def find_request(self, head: str, base: str) -> PullRequest | None: ...

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        """Open a pull request; return its URL."""
        ...

    def update_request(self, number: int, body: str) -> None: ...


class GitHubRequests(Value):
    """Pull requests through ``gh``. ``repository`` is HOST/OWNER/NAME."""

    repository: str

    def find_request(self, head: str, base: str) -> PullRequest | None:
        fields = "number,url,body,isCrossRepository"
        where = ("--head", head, "--base", base, "--state", "open")
        rows = _read_rows(Forge.GITHUB, self._run("list", *where, "--json", fields))
        # A branch of this name in a fork is another branch.
        own = [row for row in rows if not row["isCrossRepository"]]
        return PullRequest(own[0]["number"], own[0]["url"], own[0]["body"]) if own else None

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        words = ("--head", head, "--base", base, "--title", title, "--body-file", "-")
        return _last_line(self._run("create", *words, text=body))

    def update_request(self, number: int, body: str) -> None:
        self._run("edit", str(number), "--body-file", "-", text=body)

    def _run(self, *args: str, text: str | None = None) -> str:
        return run_forge(Forge.GITHUB, "pr", *args, "--repo", self.repository, text=text)


class GitLabRequests(Value):
    """Merge requests through ``glab api``. ``repository`` is the path of the project on ``host``.

    Not through ``glab mr``: `glab mr create` works only in a repository, in which it adds remotes.
    """

    host: str
    repository: str

    def find_request(self, head: str, base: str) -> PullRequest | None:
        where = urlencode({"state": "opened", "source_branch": head, "target_branch": base})
        rows = _read_rows(Forge.GITLAB, self._run("GET", f"?{where}"))
        own = [row for row in rows if row["source_project_id"] == row["target_project_id"]]
        return PullRequest(own[0]["iid"], own[0]["web_url"], own[0]["description"] or "") if own else None

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        fields = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        return str(_read_object(Forge.GITLAB, self._run("POST", "", fields)).get("web_url", ""))

    def update_request(self, number: int, body: str) -> None:
        self._run("PUT", f"/{number}", {"description": body})

    def _run(self, method: str, rest: str, fields: Mapping[str, str] | None = None) -> str:
        endpoint = f"projects/{quote(self.repository, safe='')}/merge_requests{rest}"
        words = ["api", endpoint, "--method", method, "--hostname", self.host]
        if fields is None:
            return run_forge(Forge.GITLAB, *words)
        # As input: a long description does not fit on a command line.
        words += ["--header", "Content-Type: application/json", "--input", "-"]
        return run_forge(Forge.GITLAB, *words, text=msgspec.json.encode(fields).decode())


def find_request_host(remote: Remote) -> RequestHost | None:
    """Return where the remote's pull requests are; None if its host has no known program, or that is not installed."""
    repository = find_forge_repository(remote.urls)
    if repository is None or repository.forge is None or not is_installed(repository.forge):
        return None
    if repository.forge is Forge.GITHUB:
        return GitHubRequests(repository.full_name)
    return GitLabRequests(repository.host, repository.path)


def _read_rows(forge: Forge, text: str) -> list[dict[str, Any]]:
    return _decode(forge, text, list[dict[str, Any]])


def _read_object(forge: Forge, text: str) -> dict[str, Any]:
    return _decode(forge, text, dict[str, Any])


def _decode(forge: Forge, text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=decodable(kind))
    except msgspec.DecodeError as error:
        reason = describe_decode_error(error, kind)
        raise Missing(f"{forge} printed no pull request: {reason}", f"{forge} --version") from error


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
