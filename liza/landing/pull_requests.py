"""Where the pull requests of a repository are, and their checks and comments: at GitHub or at GitLab."""

from __future__ import annotations

from typing import Protocol

from liza.landing.accepted_origin import Remotes
from liza.landing.forge import PullRequest, is_installed
from liza.landing.github import GitHubFeedback, GitHubRequests
from liza.landing.gitlab import GitLabFeedback, GitLabRequests
from liza.landing.rules.remote_urls import Forge, find_forge_repository
from liza.landing.rules.request_feedback import CheckResult, RequestFeedback
from liza.model.errors import Refused
from liza.model.model import TrackedRequest


class RequestHost(Protocol):
    """Pull requests of one repository. All methods raise Missing."""

    def find_request(self, head: str, base: str) -> PullRequest | None: ...

    def open_request(self, head: str, base: str, title: str, body: str) -> str:
        """Open a pull request; return its URL."""
        ...

    def update_request(self, number: int, body: str) -> None: ...


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


class FeedbackHost(Protocol):
    """Checks and comments of one repository. All methods raise Missing; a failed read is never an empty list."""

    def read_feedback(self, number: int) -> RequestFeedback: ...

    def read_output(self, check: CheckResult) -> str:
        """Return the end of the output of a red check, or the reason why there is no output."""
        ...


def find_feedback_host(remotes: Remotes, request: TrackedRequest) -> FeedbackHost:
    """Return where the feedback of the tracked pull request is.

    Raises Refused if the project is another repository than that of the pull request.
    """
    project, repository = remotes.project, find_forge_repository(remotes.project.urls)
    if repository is None or repository.full_name != request.repository:
        message = f"{project.name} is {project.address}, and pull request #{request.number} is in {request.repository}"
        raise Refused(message, "liza land --pr")
    is_forked = remotes.fork is not None
    if repository.forge is Forge.GITHUB:
        return GitHubFeedback(repository, is_forked)
    return GitLabFeedback(repository, is_forked)
