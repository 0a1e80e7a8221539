"""Claim a review: `liza claim --agent code-reviewer-1`."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.rules.errors import Refused
from liza.rules.tasks import claims, picking, reviews
from liza.rules.tasks.picking import Pick


def claim_review(crew: Crew, agent: str, task_id: str | None = None) -> Result:
    """Claim a review and check its commit out in the reviewer's own worktree. Raises Refused."""
    before = crew.board.read()
    if task_id is not None and before.task(task_id) is None:
        from liza.crew.archive import archived_tasks  # not needed for a task of the board

        archived_tasks.refuse_archived(crew, before, [task_id])
    evidence = crew.gather_evidence(before)
    now = crew.clock.now()
    chosen = task_id
    if chosen is None:
        pick = picking.pick_review(crew.board.read(), agent, evidence)
        if not isinstance(pick, Pick):
            raise Refused(f"{agent} cannot claim a review: {pick.why}", "liza task list")
        chosen = pick.task.id
    with crew.change(agent, "claim review", chosen) as tx:
        state = claims.ensure_agent(tx.state, agent)
        tx.state, run = reviews.claim_review(state, chosen, agent, now, evidence)
    task = claims.get_task(tx.state, chosen)
    assert task.review_commit is not None
    crew.worktrees.detach(agent, task.review_commit, run)
    step = f"cd {crew.paths.slot(agent)}; liza verdict approve TEXT, or: liza verdict reject TEXT"
    return make_result(tx.before, tx.state, chosen, step, run=run, worktree=str(crew.paths.slot(agent)))
