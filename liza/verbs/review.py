"""Taking a review; the file that `claim --agent code-reviewer-1` leads to."""

from __future__ import annotations

from liza.rules import choose, reviewing, taking
from liza.rules.choose import Pick
from liza.rules.errors import Refused
from liza.verbs.answer import Answer, answer
from liza.verbs.crew import Crew


def claim_review(crew: Crew, agent: str, task_id: str | None = None) -> Answer:
    """Take a review for a reviewer and lay its commit out in the reviewer's own worktree. Raises Refused."""
    evidence = crew.evidence(crew.board.read())
    now = crew.clock.now()
    wanted = task_id
    if wanted is None:
        chosen = choose.choose_review(crew.board.read(), agent, evidence)
        if not isinstance(chosen, Pick):
            raise Refused(f"nothing for {agent} to review: {chosen.why}", "liza task list")
        wanted = chosen.task.id
    with crew.change(agent, "claim review", wanted) as tx:
        state = taking.register(tx.state, agent)
        tx.state, run = reviewing.claim_review(state, wanted, agent, now, evidence)
    task = taking.find(tx.state, wanted)
    assert task.review_commit is not None
    crew.worktrees.detach(agent, task.review_commit, run)
    step = f"cd {crew.paths.slot(agent)}; liza verdict approve TEXT, or: liza verdict reject TEXT"
    return answer(tx.before, tx.state, wanted, step, run=run, worktree=str(crew.paths.slot(agent)))
