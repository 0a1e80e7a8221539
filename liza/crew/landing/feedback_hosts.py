"""Find where the checks and comments of the tracked pull request are."""

from __future__ import annotations

from typing import Protocol

from liza.crew.landing.accepted_origin import Remotes
from liza.crew.landing.github_feedback import GitHubFeedback
from liza.crew.landing.gitlab_feedback import GitLabFeedback
from liza.rules.errors import Refused
from liza.rules.landing.remote_urls import Forge, find_forge_repository
from liza.rules.landing.request_feedback import CheckResult, RequestFeedback
from liza.rules.model import TrackedRequest


class FeedbackHost(Protocol):
    """Checks and comments of one repository. All methods raise Missing; a failed read is never an empty list."""

    def read_feedback(self, number: int) -> RequestFeedback: ...

    def read_output(self, check: CheckResult) -> str:
        """Return the end of what a red check printed, or why there is none."""
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
