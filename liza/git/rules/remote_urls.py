"""URLs of git remotes: the repository that one names, and the program that opens pull requests there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from liza.model.value_classes import Value

_WITH_SCHEME = re.compile(r"(?:https?|ssh|git)://(?:[^/@]*@)?([A-Za-z0-9.-]+)(?::\d+)?/+(.+)")
_SCP_FORM = re.compile(r"(?:[^/@:]+@)?([A-Za-z0-9.-]+):(?!//)/*(.+)")
_PATH = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)+")
_NUMBER = re.compile(r"/(?:pull|merge_requests)/([1-9][0-9]{0,8})/?$")
_CREDENTIALS = r"(?<=://)[^/@\s]+@"
_WEB_ADDRESS = re.compile(r"https?://[^\s\x00-\x1f\"'<>]+")


class Forge(StrEnum):
    """A program that opens pull requests, by its command."""

    GITHUB = "gh"
    GITLAB = "glab"


_HOST_WORDS = {"github": Forge.GITHUB, "gitlab": Forge.GITLAB}


class RemoteRepository(Value):
    """A repository on a host: ``github.com`` and ``acme/shop``."""

    host: str
    path: str

    @property
    def forge(self) -> Forge | None:
        """The program for this host; None if its name has neither ``github`` nor ``gitlab``."""
        return next((forge for word, forge in _HOST_WORDS.items() if word in self.host.lower()), None)

    @property
    def full_name(self) -> str:
        return f"{self.host}/{self.path}"


def parse_remote_url(url: str) -> RemoteRepository | None:
    """Return the repository that a URL names; None for a path on this machine."""
    match = _WITH_SCHEME.fullmatch(url) or (None if "://" in url else _SCP_FORM.fullmatch(url))
    if match is None:
        return None
    path = match[2].rstrip("/").removesuffix(".git")
    return RemoteRepository(match[1], path) if _PATH.fullmatch(path) else None


def find_forge_repository(urls: Iterable[str]) -> RemoteRepository | None:
    """Return the first repository among ``urls`` whose host has a known program, else None."""
    repositories = (parse_remote_url(url) for url in urls)
    return next((repository for repository in repositories if repository and repository.forge), None)


def hide_credentials(text: str) -> str:
    """Return ``text`` without the user names and passwords of URLs."""
    return re.sub(_CREDENTIALS, "", text)


def find_request_address(text: str) -> str | None:
    """Return the first web address that a remote printed at a push: most print where to open a pull request."""
    match = _WEB_ADDRESS.search(text)
    return None if match is None else hide_credentials(match[0])


def find_request_number(url: str) -> int:
    """Return the number at the end of a pull request's URL; 0 without a number."""
    match = _NUMBER.search(url)
    return 0 if match is None else int(match[1])
