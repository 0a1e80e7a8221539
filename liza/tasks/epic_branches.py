"""The branches of epics: created from integration, restored or accepted by a person, deleted after they landed.

A ref beside each branch records the commit at which Liza left it. A branch that is gone while that ref exists was
deleted by hand; a branch without it is a person's own.
"""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.git import integration_tip, merge_refs, merges, ref_names
from liza.git.worktrees import Worktrees
from liza.model import targets
from liza.model.errors import GitFailed, Refused, UnknownId
from liza.model.model import Task

_TIPS = "refs/liza/targets/"


def ensure_branch(crew: Crew, epic: str) -> bool:
    """Create the branch of an epic at the tip of integration unless it exists. Return whether it was created.

    Raises Refused if it was deleted by hand, is symbolic or is a person's own; Missing, GitFailed.
    """
    branch = targets.epic_branch(epic)
    ref = f"refs/heads/{branch}"
    tip, last = ref_names.read_refs(crew.git, ref, merges.last_tip_ref(branch))
    if tip.target is not None:
        raise Refused(ref_names.describe_symbolic(ref, tip.target), ref_names.delete_command(ref))
    if tip.commit is not None and last.commit is not None:
        return False
    if tip.commit is not None:
        free = ref_names.find_free_name(branch.replace("/", "-"), ref_names.list_branches(crew.git))
        renamed = shlex.join(["git", "branch", "-m", branch, free])
        raise Refused(f"the branch {branch} exists already, and Liza did not create it", renamed)
    if last.commit is not None:
        raise _gone_error(epic)
    start = integration_tip.require_integration(crew.git, crew.board.read())
    created = _write_refs(crew, f"create {ref} {start}", f"create {merges.last_tip_ref(branch)} {start}")
    if not created and merges.branch_tip(crew.git, branch) is None:
        raise _creation_error(crew, branch)
    return created


def _creation_error(crew: Crew, branch: str) -> Refused | GitFailed:
    """Return the error for a branch that git could not create."""
    branches = ref_names.list_branches(crew.git)
    in_the_way = ref_names.find_excluding(branch, branches)
    if in_the_way is not None:
        return ref_names.ref_conflict_error(in_the_way, branch, branches)
    return GitFailed(f"git could not create the branch {branch}", "liza doctor")


def _gone_error(epic: str) -> Refused:
    return Refused(f"the branch {targets.epic_branch(epic)} is gone", f"liza epics restore {epic}")


def moved_error(epic: str, last: str | None, tip: str) -> Refused:
    """Return the error for the branch of an epic that is not where Liza left it."""
    branch, start = targets.epic_branch(epic), "an unknown commit" if last is None else last[:10]
    message = f"{branch} was moved outside of liza, from {start} to {tip[:10]}: its commits have no verdict"
    return Refused(message, f"liza epics restore {epic}")


def worktrees_for(crew: Crew, task: Task) -> Worktrees:
    """Return the slots for a claim of ``task``, whose branch starts at the tip of the branch it is merged into.

    The branch of an epic is created if no task has needed it yet. Raises Refused, also for the branch of an epic that
    was deleted by hand, Missing, GitFailed.
    """
    if task.epic is None and task.target is None:
        return crew.worktrees
    crew.refuse_moved()
    if task.epic is not None:
        ensure_branch(crew, task.epic)
    return crew.worktrees_onto(targets.target_branch(crew.board.read(), task))


def find_faults(crew: Crew) -> dict[str, Refused]:
    """Return what is wrong with the branches of open epics, by epic. Raises GitFailed."""
    faults = {}
    state = crew.board.read()
    commits = {task.merge_commit for task in state.tasks if task.epic}
    heads = merge_refs.refs_below(crew.git, f"refs/heads/{targets.EPIC_PREFIX}")
    tips = merge_refs.refs_below(crew.git, _TIPS + targets.EPIC_PREFIX)
    for epic in targets.open_epics(state):
        tip, last = heads.get(epic), tips.get(epic)
        if tip is None and last is not None:
            faults[epic] = _gone_error(epic)
        elif tip is not None and tip != last and tip not in commits:
            faults[epic] = moved_error(epic, last, tip)
    return faults


def restore_branch(crew: Crew, epic: str) -> str:
    """Put the branch of an epic back to where Liza left it; its present tip is saved. Return a sentence.

    Raises UnknownId, Refused, GitFailed.
    """
    branch = targets.epic_branch(epic)
    tip, last = ref_names.read_refs(crew.git, f"refs/heads/{branch}", merges.last_tip_ref(branch))
    if tip.commit is None and last.commit is None:
        if epic not in targets.open_epics(crew.board.read()):
            raise UnknownId(f"there is no open epic {epic!r}", "liza epics")
        ensure_branch(crew, epic)
        return f"{branch} was created at the tip of integration"
    if last.commit is None:
        raise Refused(f"it is unknown where liza left {branch}", f"liza epics accept {epic}")
    if tip.commit == last.commit:
        return f"{branch} is where liza left it"
    saved = ""
    if tip.commit is not None:
        ref = f"refs/liza/salvage/epic.{epic}/{tip.commit[:12]}"
        crew.git.out("update-ref", ref, tip.commit)
        saved = f"; its former tip is saved as {ref}"
    if not merges.restore_branch(crew.git, branch, last.commit):
        message = f"{branch} could not be put back to {last.commit[:10]}: files in its checkout are in the way"
        raise Refused(message, "git status")
    return f"{branch} was put back to {last.commit[:10]}{saved}"


def accept_branch(crew: Crew, epic: str) -> str:
    """Accept where a person moved the branch of an epic. Return a sentence. Raises UnknownId, GitFailed."""
    branch = targets.epic_branch(epic)
    tip = merges.branch_tip(crew.git, branch)
    if tip is None:
        raise UnknownId(f"there is no branch {branch}", f"liza epics restore {epic}")
    crew.git.out("update-ref", merges.last_tip_ref(branch), tip)
    return f"{branch} is accepted at {tip[:10]}"


def delete_landed(crew: Crew) -> None:
    """Delete the branches of epics that have nothing left to land. One that is checked out, or has commits that
    integration has not, stays. The caller holds the merge lock. Raises GitFailed.
    """
    state = crew.board.read()
    tips = merge_refs.refs_below(crew.git, _TIPS + targets.EPIC_PREFIX)
    for epic in sorted(tips.keys() - set(targets.open_epics(state))):
        branch = targets.epic_branch(epic)
        last, tip = tips[epic], merges.branch_tip(crew.git, branch)
        delete_tip = f"delete {merges.last_tip_ref(branch)} {last}"
        if tip is None:
            _write_refs(crew, delete_tip)
        elif not merges.contains(crew.git, state.config.integration_branch, tip):
            continue
        elif merges.find_checkout(crew.git, branch) is None:
            _write_refs(crew, f"delete refs/heads/{branch} {tip}", delete_tip)


def _write_refs(crew: Crew, *commands: str) -> bool:
    """Change refs in one transaction of git; return whether it succeeded.

    Not with the identity of the session of a planner: the reflog would say that the session moved them.
    """
    return (
        crew.git.with_identity().run("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in commands)).code == 0
    )
