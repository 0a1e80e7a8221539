"""Claim a review: `liza claim --agent code-reviewer-1`."""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.errors import Refused, TakenMeanwhile
from liza.model.model import State
from liza.model.value_classes import replace
from liza.tasks import archived_tasks
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import claims, picking, reviews
from liza.tasks.rules.picking import Evidence, Pick


def claim_review(crew: Crew, agent: str, task_id: str | None = None, *, or_next: bool = False) -> Result:
    """Claim a review and check its commit out in the reviewer's own worktree. Raises Refused.

    ``or_next``: if another agent has taken the review meanwhile, take the next one; raises TakenMeanwhile if there is
    none. That is so without ``task_id``, too.
    """
    before = crew.board.read()
    if task_id is not None and before.task(task_id) is None:
        archived_tasks.refuse_archived(crew.paths, before, [task_id])
    evidence = gather_evidence(crew, before)
    now = crew.clock.now()
    chosen = task_id
    if chosen is None:
        pick = picking.pick_review(before, agent, evidence)
        if not isinstance(pick, Pick):
            raise Refused(f"{agent} cannot claim a review: {pick.why}", "liza task list")
        chosen, or_next = pick.task.id, True
    with crew.change(agent, "claim review", chosen) as tx:
        state = claims.ensure_agent(tx.state, agent)
        if or_next:
            tx.task = chosen = _reviewable_now(state, chosen, agent, evidence)
        tx.state, run = reviews.claim_review(state, chosen, agent, now, evidence)
    task = claims.get_task(tx.state, chosen)
    assert task.review_commit is not None
    crew.worktrees.detach(agent, task.review_commit, run)
    worktree = str(crew.paths.slot(agent))
    result = make_result(tx.before, tx.state, chosen, shlex.join(["cd", worktree]), run=run, worktree=worktree)
    return replace(result, message=f'{result.message}; then: liza verdict approve "…", or: liza verdict reject "…"')


def _reviewable_now(state: State, wanted: str, agent: str, evidence: Evidence) -> str:
    chosen = picking.reviewable_now(state, wanted, agent, evidence)
    if chosen is None:
        raise TakenMeanwhile(f"{agent} cannot review {wanted}: it is taken, and there is no other", "liza task list")
    return chosen
