"""Count the commits of the integration branch that are not yet in the branch of the person's checkout."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.rules.formatting.counts import count_noun
from liza.rules.model import State
from liza.rules.value_classes import Value


class CommitsAhead(Value):
    """``commits`` of ``integration`` are not in ``branch``, which has ``own`` commits that integration has not."""

    integration: str
    branch: str
    commits: int
    own: int = 0

    @property
    def next(self) -> str:
        """Command that merges them; without any, the commands that end or continue the crew."""
        if self.commits and self.own:
            return "liza sync && liza land --merge"
        return "liza land --merge" if self.commits else "liza down --purge, or go on: liza task add"

    @property
    def summary(self) -> str:
        if not self.commits:
            return f"{self.branch} has all of {self.integration}"
        return f"{self.integration} is {count_noun(self.commits, 'commit')} ahead of {self.branch}"


def find_commits_ahead(crew: Crew, state: State) -> CommitsAhead | None:
    """Compare integration with the branch of the person's checkout.

    None if that checkout is on integration itself or on no branch. Raises GitFailed.
    """
    into = state.config.integration_branch
    head = crew.git.run("symbolic-ref", "-q", "--short", "HEAD", codes=(0, 1)).stdout.decode().strip()
    if not head or head == into:
        return None
    if not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{into}"):
        return None
    if not crew.git.ok("rev-parse", "-q", "--verify", f"refs/heads/{head}"):
        return None
    counts = crew.git.out("rev-list", "--count", "--left-right", f"refs/heads/{head}...refs/heads/{into}").split()
    return CommitsAhead(into, head, commits=int(counts[1]), own=int(counts[0]))
