"""Save what exists only in the submodules of a slot, before they are reset or removed with the slot.

git reports no change inside a submodule to Liza, and ``git worktree remove`` deletes the repositories of the submodules
with the slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.git.slots import slot_records, submodules
from liza.git.slots.salvage import SUBMODULES_SUFFIX, SalvageTarget, bundle_repository, clear_hiding_flags, save_bundles
from liza.git.survey import read_work_tree


def salvage_submodules(git: Git, task: str, run: str, target: SalvageTarget | None = None) -> str | None:
    """Save the submodules of the slot of ``git`` as bundles. Return the ref, or None if none holds work of its own.

    Work is a changed or untracked file, or a commit that no remote branch contains. Raises GitFailed, OSError.
    """
    bundles = tuple((name, bundle_repository(git, inner)) for name, inner in _list_changed(git, _has_own_commits))
    return save_bundles(git, task, f"{run}{SUBMODULES_SUFFIX}", bundles, target) if bundles else None


def salvage_before_reset(git: Git, task: str, run: str, target: SalvageTarget | None = None) -> str | None:
    """Save what a reset of the submodules would discard: their changes, and HEAD if it is on no ref.

    Their repositories stay, so each bundle has only what no remote branch contains. Return the ref, or None if there is
    nothing to save. Raises GitFailed, OSError.
    """
    changed = _list_changed(git, _is_head_on_no_ref)
    bundles = tuple((name, bundle_repository(git, inner, only_work=True)) for name, inner in changed)
    return save_bundles(git, task, f"{run}{SUBMODULES_SUFFIX}", bundles, target) if bundles else None


def _list_changed(git: Git, has_commits: Callable[[Git], bool]) -> Iterator[tuple[str, Git]]:
    """Yield the submodules with work of their own, nested ones included, each with its path in the slot."""
    for name, inner in submodules.open_all(git):
        slot_records.remove_slot_locks(git_dirs(inner)[0])
        clear_hiding_flags(inner)
        if read_work_tree(inner).changed or has_commits(inner):
            yield name, inner


def _has_own_commits(inner: Git) -> bool:
    head = inner.find_commit("HEAD")
    starts = ("--all",) if head is None else ("--all", head)
    return inner.out("rev-list", "--max-count=1", *starts, "--not", "--remotes") != ""


def _is_head_on_no_ref(inner: Git) -> bool:
    head = inner.find_commit("HEAD")
    return head is not None and inner.out("rev-list", "--max-count=1", head, "--not", "--glob=refs/*") != ""
