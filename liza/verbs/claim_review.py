"""Taking a review; the file that `claim --agent code-reviewer-1` leads to."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.rules.errors import Refused
from liza.rules.tasks import claims, picking, reviews
from liza.rules.tasks.picking import Pick


def claim_review(crew: Crew, agent: str, task_id: str | None = None) -> Result:
    """Take a review for a reviewer and lay its commit out in the reviewer's own worktree. Raises Refused."""
    evidence = crew.gather_evidence(crew.board.read())
    now = crew.clock.now()
    wanted = task_id
    if wanted is None:
        chosen = picking.pick_review(crew.board.read(), agent, evidence)
        if not isinstance(chosen, Pick):
            raise Refused(f"nothing for {agent} to review: {chosen.why}", "liza task list")
        wanted = chosen.task.id
    with crew.change(agent, "claim review", wanted) as tx:
        state = claims.ensure_agent(tx.state, agent)
        tx.state, run = reviews.claim_review(state, wanted, agent, now, evidence)
    task = claims.get_task(tx.state, wanted)
    assert task.review_commit is not None
    crew.worktrees.detach(agent, task.review_commit, run)
    step = f"cd {crew.paths.slot(agent)}; liza verdict approve TEXT, or: liza verdict reject TEXT"
    return make_result(tx.before, tx.state, wanted, step, run=run, worktree=str(crew.paths.slot(agent)))
