"""Count the commits of the integration branch whose work the branch of the person's checkout does not have yet."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.git.merge.landed_work import find_landed
from liza.git.ref_names import current_branch
from liza.model.model import State
from liza.model.targets import CommitsAhead


def find_commits_ahead(crew: Crew, state: State) -> CommitsAhead | None:
    """Compare integration with the branch of the person's checkout.

    None if that checkout is on integration itself or on no branch. Raises GitFailed.
    """
    into = state.config.integration_branch
    head = current_branch(crew.git)
    if head is None or head == into:
        return None
    if not crew.git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{into}"):
        return None
    if not crew.git.ok("rev-parse", "-q", "--verify", f"refs/heads/{head}"):
        return None
    base, tip = crew.git.out("rev-parse", f"refs/heads/{head}", f"refs/heads/{into}").split()
    landed = find_landed(crew.git, base, tip)
    commits, own = (
        int(crew.git.out("rev-list", "--count", commit, "--not", *others))
        for commit, others in ((tip, (base, landed)), (base, (tip,)))
    )
    tracked = state.pull_request
    request = tracked.url if tracked.is_open and tracked.base == head else ""
    return CommitsAhead(into, head, commits=commits, own=own, request=request)
