"""How far integration is ahead of the person's branch: what is merged there and not yet in the branch that counts."""

from __future__ import annotations

from dataclasses import dataclass

from liza.crew.crew import Crew
from liza.rules.model import State


@dataclass(frozen=True)
class CommitsAhead:
    """``commits`` of ``integration`` are not in ``branch``."""

    integration: str
    branch: str
    commits: int

    @property
    def next(self) -> str:
        """The command that brings them over; the way out where there are none."""
        return f"git merge {self.integration}" if self.commits else "liza down --purge, or go on: liza task add"

    @property
    def summary(self) -> str:
        if not self.commits:
            return f"{self.branch} has all of {self.integration}"
        number = f"{self.commits} commit{'' if self.commits == 1 else 's'}"
        return f"{self.integration} is {number} ahead of {self.branch}"


def find_commits_ahead(crew: Crew, state: State) -> CommitsAhead | None:
    """Integration against the branch of the person's checkout; None where that is integration itself or no branch.

    Raises GitFailed.
    """
    into = state.config.integration_branch
    head = crew.git.run("symbolic-ref", "-q", "--short", "HEAD", codes=(0, 1)).stdout.decode().strip()
    if not head or head == into:
        return None
    if not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{into}"):
        return None
    if not crew.git.ok("rev-parse", "-q", "--verify", f"refs/heads/{head}"):
        return None
    commits = int(crew.git.out("rev-list", "--count", f"refs/heads/{head}..refs/heads/{into}"))
    return CommitsAhead(into, head, commits)
