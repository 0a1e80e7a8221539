"""Bringing unfinished work back from a salvage: uncommitted as it was, onto wherever the branch stands now."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from liza.repo.merge.merges import merge_trees
from liza.repo.runner import Git
from liza.repo.slots.salvage import create_commit, head_commit, join_nul


@dataclass(frozen=True)
class RestoredFiles:
    """Names laid back as uncommitted changes, and names left out because the branch changed the same lines."""

    files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def restore_salvage(git: Git, ref: str) -> RestoredFiles:
    """Put the uncommitted, not ignored files of a salvage into the work tree of ``git`` as uncommitted changes.

    Where HEAD is another than it was then, they are merged; a file that conflicts is left as the branch has it.
    Raises GitFailed.
    """
    base, work = _split_salvage(git, ref)
    head = head_commit(git)
    if head is None or base is None:
        return RestoredFiles()
    files = git.names("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, work)
    conflicts: tuple[str, ...] = ()
    if files and head != base:
        work, conflicts = _merge_changes(git, base, head, work)
        files = git.names("diff-tree", "-r", "-z", "--name-only", "--no-renames", head, work)
    chosen = tuple(name for name in files if name not in conflicts)
    if chosen:
        git.out(
            "restore",
            f"--source={work}",
            "--worktree",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=join_nul(chosen),
            env={"GIT_LITERAL_PATHSPECS": "1"},
        )
    return RestoredFiles(chosen, conflicts)


def list_uncommitted(git: Git, ref: str) -> tuple[str, ...]:
    """Names of the uncommitted, not ignored files in a salvage: what ``lay_back`` would bring. Raises GitFailed."""
    base, work = _split_salvage(git, ref)
    if base is None:
        return git.names("ls-tree", "-r", "-z", "--name-only", work)
    return git.names("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, work)


def find_unrestored(git: Git, task: str) -> str | None:
    """The newest salvage of a task that was not laid back yet. Raises GitFailed."""
    places = (f"refs/liza/salvage/{task}/", _restored_ref(task))
    rows = git.lines("for-each-ref", "--sort=-committerdate", "--format=%(refname) %(objectname)", *places)
    found = dict(row.split(" ", 1) for row in rows)
    laid = found.pop(_restored_ref(task), None)
    name = next(iter(found), None)
    return None if name is None or found[name] == laid else name


def mark_restored(git: Git, task: str, ref: str) -> None:
    """Remember that a salvage went back into the work, so that it does not go there twice. Raises GitFailed."""
    git.out("update-ref", _restored_ref(task), git.out("rev-parse", "--verify", ref))


def _restored_ref(task: str) -> str:
    return f"refs/liza/laid-back/{task}"


def _split_salvage(git: Git, ref: str) -> tuple[str | None, str]:
    """The HEAD under a salvage, and its tree without the extras."""
    rows = git.out("log", "--max-count=1", "--format=%T %P", ref).split()
    tree, base, extra = rows[0], *([*rows[1:3], None, None][:2])
    if extra is None or base is None:
        return base, str(tree)
    extras = git.names("ls-tree", "-r", "-z", "--name-only", extra)
    with tempfile.TemporaryDirectory(prefix="liza-salvage-") as folder:
        aside = git.with_environment(GIT_INDEX_FILE=str(Path(folder) / "index"))
        aside.out("read-tree", str(tree))
        aside.out("update-index", "--force-remove", "-z", "--stdin", stdin=join_nul(extras))
        return base, aside.out("write-tree")


def _merge_changes(git: Git, base: str, head: str, work: str) -> tuple[str, tuple[str, ...]]:
    """The changes base → work put onto ``head``: a tree, and the names that conflict."""
    # merge-tree wants commits with a common parent; these three are made for it and kept by nothing.
    root = create_commit(git, git.out("rev-parse", f"{base}^{{tree}}"), (), "base\n")
    ours = git.out("rev-parse", f"{head}^{{tree}}")
    return merge_trees(git, create_commit(git, ours, (root,), "ours\n"), create_commit(git, work, (root,), "theirs\n"))
