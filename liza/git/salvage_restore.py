"""Restore unfinished work from a salvage as uncommitted changes on the current tip of the branch."""

from __future__ import annotations

import tempfile
from pathlib import Path

from liza.git.merges import merge_trees
from liza.git.runner import Git
from liza.git.salvage import UNFINISHED_TRAILER, create_commit, has_files, join_nul
from liza.model.value_classes import Value


class RestoredFiles(Value):
    """Names restored as uncommitted changes, and names left out because the branch changed the same lines."""

    files: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def restore_salvage(git: Git, ref: str) -> RestoredFiles:
    """Restore the uncommitted, not ignored files of a salvage in the worktree of ``git``.

    If HEAD has moved since the salvage, the changes are merged; a file that conflicts keeps the branch's version.
    Raises GitFailed.
    """
    base, work = _split_salvage(git, ref)
    head = git.find_commit("HEAD")
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
    """Return the names of the uncommitted, not ignored files of a salvage, which ``restore_salvage`` restores. Raises
    GitFailed.
    """
    base, work = _split_salvage(git, ref)
    if base is None:
        return git.names("ls-tree", "-r", "-z", "--name-only", work)
    return git.names("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, work)


class LastSalvage(Value):
    """The newest salvage of a task: the HEAD that it was made at, and which operation of git was in progress then.

    With an operation its files are not restored: without it they would be changes of the next session.
    """

    ref: str
    head: str
    unfinished: str

    @property
    def run(self) -> str:
        """The run whose work it is."""
        return self.ref.rpartition("/")[2].partition("+")[0]


def find_last_salvage(git: Git, task: str) -> LastSalvage | None:
    """Return the newest salvage of a task, or None. Raises GitFailed."""
    fields = f"%(refname) %(parent) %00%(contents:trailers:key={UNFINISHED_TRAILER},valueonly)%00"
    text = git.out("for-each-ref", "--sort=-committerdate", f"--format={fields}", f"refs/liza/salvage/{task}/")
    parts = text.split("\0")
    for names, unfinished in zip(parts[::2], parts[1::2], strict=False):
        ref, *parents = names.split()
        if parents and has_files(ref):
            return LastSalvage(ref, parents[0], unfinished.strip())
    return None


def find_unrestored(git: Git, task: str) -> str | None:
    """Return the newest salvage of a task, or None if it was restored already. Raises GitFailed."""
    prefixes = (f"refs/liza/salvage/{task}/", _restored_ref(task))
    rows = git.lines("for-each-ref", "--sort=-committerdate", "--format=%(refname) %(objectname)", *prefixes)
    salvages = dict(row.split(" ", 1) for row in rows)
    restored_commit = salvages.pop(_restored_ref(task), None)
    newest = next((ref for ref in salvages if has_files(ref)), None)
    return None if newest is None or salvages[newest] == restored_commit else newest


def mark_restored(git: Git, task: str, ref: str) -> None:
    """Record that a salvage was restored, so that it is not restored twice. Raises GitFailed."""
    git.out("update-ref", _restored_ref(task), git.out("rev-parse", "--verify", ref))


def _restored_ref(task: str) -> str:
    return f"refs/liza/laid-back/{task}"


def _split_salvage(git: Git, ref: str) -> tuple[str | None, str]:
    """Return the parent HEAD of a salvage, and its tree without the extras."""
    rows = git.out("log", "--max-count=1", "--format=%T %P", ref).split()
    tree, base, extra = rows[0], *([*rows[1:3], None, None][:2])
    if extra is None or base is None:
        return base, str(tree)
    extras = git.names("ls-tree", "-r", "-z", "--name-only", extra)
    with tempfile.TemporaryDirectory(prefix="liza-salvage-") as folder:
        git_copy = git.with_environment(GIT_INDEX_FILE=str(Path(folder) / "index"))
        git_copy.out("read-tree", str(tree))
        git_copy.out("update-index", "--force-remove", "-z", "--stdin", stdin=join_nul(extras))
        return base, git_copy.out("write-tree")


def _merge_changes(git: Git, base: str, head: str, work: str) -> tuple[str, tuple[str, ...]]:
    """Apply the changes base → work to ``head``. Return the tree and the names that conflict."""
    # merge-tree needs commits with a common parent. These three commits are on no ref.
    root = create_commit(git, git.out("rev-parse", f"{base}^{{tree}}"), (), "base\n")
    ours = git.out("rev-parse", f"{head}^{{tree}}")
    return merge_trees(git, create_commit(git, ours, (root,), "ours\n"), create_commit(git, work, (root,), "theirs\n"))
