"""The branches that a request for new tasks names: those of epics are created, target branches must exist."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from liza.crew.crew import Crew
from liza.crew.merging import epic_branches
from liza.repo import ref_names, symbolic_refs
from liza.repo.merge import merge_refs, merges
from liza.rules.errors import Refused, UnknownId
from liza.rules.merging import targets
from liza.rules.paths import check_task_id, is_person
from liza.rules.tasks.backlog import RequestContext, TaskFields
from liza.rules.value_classes import replace


def prepare(crew: Crew, requested: Sequence[TaskFields], context: RequestContext) -> RequestContext:
    """Prepare the branches before the board is changed; return the context with what new branches contain.

    A branch without a task, after a crash, is used by the next request. Raises UsageError, Refused, UnknownId,
    GitFailed.
    """
    for branch in dict.fromkeys(task.target for task in requested if task.target is not None):
        _check_target(crew, branch, context.invocation.by or "")
    # Read before a branch is created: what is merged on the board is on integration then.
    delivered = frozenset(task.id for task in crew.board.read().tasks if targets.is_on_integration(task))
    names = dict.fromkeys(check_task_id(task.epic) for task in requested if task.epic is not None)
    created = frozenset(name for name in names if epic_branches.ensure_branch(crew, name))
    return replace(context, new_epics=created, delivered=delivered)


def _check_target(crew: Crew, branch: str, by: str) -> None:
    """Record where a target branch is. Raises Refused if a planner names it: it is a person's branch."""
    if not is_person(by):
        message = f"only a person can have tasks merged into {branch}; an epic has a branch of its own"
        raise Refused(message, "liza task add --help")
    if not targets.is_target_name(branch) or branch == crew.board.read().config.integration_branch:
        raise Refused(f"{branch} cannot be the target of a task", "liza task add --help")
    symbolic_refs.refuse_symbolic(crew.git, f"refs/heads/{branch}")
    tip = merges.branch_tip(crew.git, branch)
    if tip is None:
        raise UnknownId(f"there is no branch {branch}", shlex.join(["git", "branch", branch]))
    if not merge_refs.has_merge_base(crew.git, tip, f"refs/heads/{crew.board.read().config.integration_branch}"):
        raise Refused(
            f"{branch} has no commit in common with integration", f"git log {ref_names.type_revision(crew.git, branch)}"
        )
    crew.git.run("update-ref", merges.last_tip_ref(branch), tip, "", codes=(0, 128))
