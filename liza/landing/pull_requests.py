"""Find, open and update the pull request of a branch, through ``gh`` or ``glab``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from liza.git.rules.remote_urls import Forge, find_forge_repository
from liza.landing.accepted_origin import Remotes
from liza.landing.forge_program import is_installed, run_forge
from liza.model.errors import Missing
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable

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
    """Pull requests through ``gh``. ``repository`` is HOST/OWNER/NAME. ``owner``: who has the fork with the branch;
    None if the branch is in the repository itself.
    """

    repository: str
    owner: str | None = None

    def find_request(self, head: str, base: str) -> PullRequest | None:
        fields = "number,url,body,isCrossRepository" + (",headRepositoryOwner" if self.owner else "")
        where = ("--head", head, "--base", base, "--state", "open")
        rows = _read_rows(Forge.GITHUB, self._run("list", *where, "--json", fields))
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
        rows = _read_rows(Forge.GITLAB, self._run("GET", f"?{where}"))
        source = None if self.fork is None else self._read_id(self.fork)
        own = [row for row in rows if row["source_project_id"] == (source or row["target_project_id"])]
        return PullRequest(own[0]["iid"], own[0]["web_url"], own[0]["description"] or "") if own else None

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        fields: dict[str, str | int]
        fields = {"source_branch": head, "target_branch": base, "title": title, "description": body}
        if self.fork is None:
            return str(_read_object(Forge.GITLAB, self._run("POST", "", fields)).get("web_url", ""))
        # GitLab wants the request at the fork, and the number of the project.
        fields["target_project_id"] = self._read_id(self.repository)
        return str(_read_object(Forge.GITLAB, self._run("POST", "", fields, self.fork)).get("web_url", ""))

    def update_request(self, number: int, body: str) -> None:
        self._run("PUT", f"/{number}", {"description": body})

    def _read_id(self, repository: str) -> int:
        words = ("api", f"projects/{quote(repository, safe='')}", "--method", "GET", "--hostname", self.host)
        number = _read_object(Forge.GITLAB, run_forge(Forge.GITLAB, *words)).get("id")
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


def find_request_host(remotes: Remotes) -> RequestHost | None:
    """Return where the project's pull requests are; None if its host has no known program, if that is not installed, or
    if the branch was pushed to another host.
    """
    source, repository = (find_forge_repository(remote.urls) for remote in (remotes.push, remotes.project))
    if repository is None or repository.forge is None or not is_installed(repository.forge):
        return None
    if source is None or source.host.lower() != repository.host.lower():
        return None
    if repository.forge is Forge.GITHUB:
        return GitHubRequests(repository.full_name, remotes.fork and remotes.fork.partition("/")[0])
    return GitLabRequests(repository.host, repository.path, remotes.fork)


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
