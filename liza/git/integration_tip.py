"""The integration branch: its commit, and the commit at which Liza left it.

`liza/merging/drift.py` says what a move of the branch outside of Liza means for merged work.
"""

from __future__ import annotations

import shlex

from liza.git import ref_names
from liza.git.merges import LAST_INTEGRATION_REF
from liza.git.ref_names import RefValue
from liza.git.runner import COMMIT, Git
from liza.model import targets
from liza.model.errors import Missing
from liza.model.model import State


def require_integration(git: Git, state: State) -> str:
    """Return the commit of integration.

    Raises Missing if it is gone or symbolic, with the command that restores it.
    """
    ref = f"refs/heads/{state.config.integration_branch}"
    return require_plain(git, state, ref, ref_names.read_refs(git, ref)[0])


def require_plain(git: Git, state: State, ref: str, integration: RefValue) -> str:
    """Return the commit of ``integration``, the value of ``ref``. Raises Missing as ``require_integration`` does."""
    if integration.target is not None:
        raise Missing(ref_names.describe_symbolic(ref, integration.target), ref_names.delete_command(ref))
    if integration.commit is None:
        raise _integration_gone_error(git, state)
    return integration.commit


def is_last_tip(git: Git, commit: str | None) -> bool:
    """Return whether Liza left integration at ``commit``; True if that is unknown. Raises GitFailed."""
    return read_last_tip(git) in (None, commit)


def record_last_tip(git: Git, tip: str) -> None:
    """Record that Liza, or a person by a Liza command, put integration at ``tip``. Raises GitFailed."""
    git.out("update-ref", LAST_INTEGRATION_REF, tip)


def _integration_gone_error(git: Git, state: State) -> Missing:
    branch = state.config.integration_branch
    start = read_last_tip(git) or find_newest_merge(git, state) or "HEAD"
    return Missing(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {start[:12]}")


def find_newest_merge(git: Git, state: State) -> str | None:
    """Return the newest merge commit on the board that the repository still has, or None."""
    merge_commits = [
        task.merge_commit
        for task in state.tasks
        if task.merge_commit and targets.is_on_integration(task) and COMMIT.fullmatch(task.merge_commit)
    ]
    merge_commits += filter(COMMIT.fullmatch, (commit for epic in state.epics.values() for commit in epic.landed))
    if not merge_commits:
        return None
    return git.out("rev-list", "--ignore-missing", "--topo-order", "-n1", *merge_commits) or None


def read_last_tip(git: Git) -> str | None:
    """Return the commit at which Liza left integration, or None if that is unknown."""
    last = ref_names.read_refs(git, LAST_INTEGRATION_REF)[0]
    return last.commit if last.target is None else None
