"""The tips of the branches that Liza merges into, and the commits at which it left them."""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.git import integration_tip, merges, ref_names
from liza.merging import drift, epic_branches
from liza.merging.rules.merge_batches import Batch
from liza.model import targets
from liza.model.errors import Refused
from liza.model.model import State


def require_tip(crew: Crew, branch: str) -> str:
    """Return the commit of a branch that Liza merges into.

    Raises Missing if integration is gone or symbolic; Refused if another branch is, or if the branch of an epic was
    moved outside of Liza: that stops only its own tasks.
    """
    state = crew.board.read()
    if branch == state.config.integration_branch:
        return integration_tip.require_integration(crew.git, state)
    epic = targets.epic_of(branch)
    if epic is not None:
        return _require_epic_tip(crew, state, epic)
    ref = f"refs/heads/{branch}"
    tip = ref_names.read_refs(crew.git, ref)[0]
    if tip.target is not None:
        raise Refused(ref_names.describe_symbolic(ref, tip.target), ref_names.delete_command(ref))
    if tip.commit is None:
        last = _read_last_tip(crew, branch)
        raise Refused(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {(last or 'HEAD')[:12]}")
    return tip.commit


def _require_epic_tip(crew: Crew, state: State, epic: str) -> str:
    epic_branches.ensure_branch(crew, epic)
    branch = targets.epic_branch(epic)
    ref, last_ref = f"refs/heads/{branch}", merges.last_tip_ref(branch)
    tip, last = ref_names.read_refs(crew.git, ref, last_ref)
    assert tip.commit is not None
    if tip.commit == last.commit:
        return tip.commit
    if any(task.merge_commit == tip.commit for task in targets.tasks_of(state, epic)):
        # A merger was killed after it had recorded this merge on the board.
        record_last_tip(crew, branch, tip.commit)
        return tip.commit
    raise epic_branches.moved_error(epic, last.commit, tip.commit)


def is_last_tip(crew: Crew, branch: str, commit: str) -> bool:
    """Return whether Liza left the branch at ``commit``; True if that is unknown. Raises GitFailed."""
    if branch == crew.board.read().config.integration_branch:
        return integration_tip.is_last_tip(crew.git, commit)
    return _read_last_tip(crew, branch) in (None, commit)


def record_last_tip(crew: Crew, branch: str, tip: str) -> None:
    """Record that Liza put a branch other than integration at ``tip``. Raises GitFailed."""
    crew.git.out("update-ref", merges.last_tip_ref(branch), tip)


def record_merged_tip(crew: Crew, batch: Batch) -> str | None:
    """Record that Liza has published the batch. Return a line about earlier moves of the branch, or None.

    Raises GitFailed.
    """
    if batch.branch == crew.board.read().config.integration_branch:
        return drift.record_merged_tip(crew, batch.tasks[-1], batch.expected, batch.tip)
    last = _read_last_tip(crew, batch.branch)
    record_last_tip(crew, batch.branch, batch.tip)
    if last is None or crew.git.ok("merge-base", "--is-ancestor", last, batch.tip):
        return None
    message = f"{batch.branch} lacks commits that Liza had merged into it: it was moved back from {last[:10]}"
    return f"target_moved  {message}. Next: git log {batch.tip[:12]}..{last[:12]}"


def _read_last_tip(crew: Crew, branch: str) -> str | None:
    return ref_names.read_refs(crew.git, merges.last_tip_ref(branch))[0].commit
