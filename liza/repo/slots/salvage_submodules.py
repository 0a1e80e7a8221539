"""Save what exists only in the submodules of a slot, before the slot is removed.

git reports no change inside a submodule to Liza, because its configuration is not pinned, and ``git worktree remove``
deletes the repositories of the submodules with the slot. While a slot is reused, they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.slots import submodules
from liza.repo.slots.salvage import bundle_repository, save_bundles
from liza.repo.survey import read_work_tree


def salvage_submodules(git: Git, task: str, run: str) -> str | None:
    """Save the submodules of the slot of ``git`` as bundles. Return the ref, or None if none holds work of its own.

    Work is a changed or untracked file, or a commit that no remote branch contains. Raises GitFailed, OSError.
    """
    bundles = tuple((name, bundle_repository(git, inner)) for name, inner in _changed(git, ""))
    return save_bundles(git, task, f"{run}-submodules", bundles) if bundles else None


def _changed(git: Git, prefix: str) -> Iterator[tuple[str, Git]]:
    """Yield the submodules with work of their own, nested ones included, each with its path in the slot."""
    own = git_dirs(git)[0].resolve()
    for name, _ in submodules.list_submodules(git):
        repository = submodules.find_repository(git.directory / name, own)
        if repository is None:
            continue
        inner = git.with_git_dir(git.directory / name, repository, repository)
        if read_work_tree(inner).changed or _has_own_commits(inner):
            yield f"{prefix}{name}", inner
        yield from _changed(inner, f"{prefix}{name}/")


def _has_own_commits(inner: Git) -> bool:
    head = inner.find_commit("HEAD")
    starts = ("--all",) if head is None else ("--all", head)
    return inner.out("rev-list", "--max-count=1", *starts, "--not", "--remotes") != ""
