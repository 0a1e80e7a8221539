"""Refs of a merge: commits under review, tested candidates, and refs that tests have changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liza.git.runner import Git
from liza.model.value_classes import Value

_SUBMODULE_MODE = "160000 "
_REVIEW, _TESTED = "refs/liza/review/", "refs/liza/tested/"
_MERGE_REFS = ("refs/liza/candidates/", "refs/liza/tested/", "refs/liza/targets/", "refs/liza/integration")
_FOREIGN_REFS = ("refs/liza/", "refs/heads/task/", "refs/remotes/", "refs/stash")


class RefChange(Value):
    """A ref that changed while tests ran.

    ``built_on``: it now contains the candidate. ``gone``: it was deleted. ``rewound``: it lost commits.
    ``symbolic``: it is now a symbolic ref.
    """

    name: str
    built_on: bool = False
    gone: bool = False
    rewound: bool = False
    symbolic: bool = False


def refs_moved_by_tests(changes: Iterable[RefChange]) -> tuple[str, ...]:
    """Return the refs that the tests moved, or may have moved, among those that changed while they ran.

    Only the tests have the candidate checked out. Meanwhile agents and people commit on their own branches, so a branch
    that only gained commits is not reported. No other process writes Liza's merge refs while the merge lock is held.
    """
    return tuple(
        change.name
        for change in changes
        if change.built_on
        or (change.symbolic and not change.name.startswith("refs/remotes/"))
        or change.name.startswith(_MERGE_REFS)
        or (not change.name.startswith(_FOREIGN_REFS) and (change.gone or change.rewound))
    )


def is_sure(changes: Iterable[RefChange]) -> bool:
    """Return whether only the tests can have moved the refs that ``refs_moved_by_tests`` returns.

    There is no such evidence for a branch that was deleted or moved back: git records no process, and a person may have
    done it at the same time.
    """
    listed = list(changes)
    proved = [change for change in listed if change.built_on or change.symbolic or change.name.startswith(_MERGE_REFS)]
    return len(refs_moved_by_tests(proved)) == len(refs_moved_by_tests(listed))


def is_branch_rewound(changes: Iterable[RefChange], branch: str) -> bool:
    """Return whether ``branch`` was deleted or moved back by any process: it then lacks commits that were merged."""
    return any(change.name == branch and (change.gone or change.rewound) for change in changes)


def review_ref(task: str) -> str:
    """Return the ref that protects the reviewed or approved commit of a task from garbage collection."""
    return _REVIEW + task


def tested_ref(task: str) -> str:
    """Return the ref of a task's candidate that may be published: its tests passed, or there are none."""
    return _TESTED + task


def write_review_ref(git: Git, task: str, commit: str) -> None:
    """Protect the reviewed commit of a task by a ref. Raises GitFailed."""
    git.out("update-ref", review_ref(task), commit)


def list_reviewed(git: Git) -> dict[str, str]:
    """Return the commits that have a review ref, by task. Raises GitFailed."""
    return refs_below(git, _REVIEW)


def delete_review_ref(git: Git, task: str) -> None:
    """Delete the review ref of a closed task, if it exists. Raises GitFailed."""
    git.out("update-ref", "-d", review_ref(task))


def write_tested_ref(git: Git, task: str, candidate: str) -> None:
    """Record that this candidate may be published. Must happen before the branch moves. Raises GitFailed."""
    git.out("update-ref", tested_ref(task), candidate)


def write_tested_refs(git: Git, tasks: Iterable[str], commit: str) -> None:
    """Record, in one transaction of git, that this commit may be published for each of the tasks. Must happen before
    the branch moves. Raises GitFailed."""
    git.out("update-ref", "--stdin", stdin="".join(f"update {tested_ref(task)} {commit}\n" for task in tasks))


def list_changed_paths(git: Git, before: str, after: str) -> tuple[str, ...]:
    """Return the paths of the files that differ between two commits; a submodule ends in a slash. Raises GitFailed."""
    fields = iter(git.names("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after))
    return tuple(f"{name}/" if _SUBMODULE_MODE in facts else name for facts, name in zip(fields, fields, strict=True))


def list_branch_paths(git: Git, branch: str, commit: str) -> tuple[str, ...]:
    """Return the paths of the files that ``commit`` changes since it left ``branch``. Raises GitFailed."""
    words = ("--no-ext-diff", "--no-textconv", "--no-renames", "--name-only", "-z")
    return tuple(git.names("diff", *words, f"refs/heads/{branch}...{commit}"))


def list_merged_paths(git: Git, merges: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths that each merge commit changed on its branch, by commit. Commits that are gone are left out.

    Raises GitFailed.
    """
    if not merges:
        return {}
    words = ("-m", "--first-parent", "--name-only", "-z", "--no-renames", "--ignore-missing", "--no-walk=unsorted")
    text = git.out("log", *words, "--format=%x01%H", "--stdin", stdin="\n".join(dict.fromkeys(merges)) + "\n")
    rows = [row.partition("\0")[::2] for row in text.split("\1") if row]
    return {commit: tuple(name.strip("\n") for name in names.split("\0") if name.strip("\n")) for commit, names in rows}


def list_tested(git: Git) -> dict[str, str]:
    """Return the candidates that may be published, by task. Raises GitFailed."""
    return refs_below(git, _TESTED)


def snapshot_refs(git: Git) -> dict[str, str]:
    """Return every ref with its object and, if it is symbolic, its target. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    return {name: value.rstrip() for name, _, value in (row.partition(" ") for row in rows)}


def find_ref_changes(
    git: Git, before: dict[str, str], candidate: str, commits_made: frozenset[str] = frozenset()
) -> list[RefChange]:
    """Return the refs that differ from ``before``, and their relation to the candidate.

    ``commits_made`` are the commits that were created in the worktree of the tests. Raises GitFailed.
    """
    after = snapshot_refs(git)
    changes = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        old, new = (refs[name].partition(" ")[0] if name in refs else None for refs in (before, after))
        symbolic = " " in after.get(name, "")
        built_on = new is not None and (new in commits_made or _is_in_history(git, new, candidate))
        rewound = None not in (old, new) and not built_on and not _is_in_history(git, str(new), str(old))
        changes.append(RefChange(name, built_on=built_on, gone=new is None, rewound=rewound, symbolic=symbolic))
    return changes


def list_commits_made(worktree_git: Git) -> frozenset[str]:
    """Return the commits that were created in a worktree, on any branch, according to the reflog of HEAD."""
    rows = worktree_git.run("reflog", "show", "--format=%H %gs", "HEAD", codes=(0, 128)).stdout.decode(
        "utf-8", "replace"
    )
    entries = (row.partition(" ") for row in rows.split("\n"))
    return frozenset(commit for commit, _, action in entries if not action.startswith(("checkout:", "reset:")))


def has_commit(git: Git, commit: str) -> bool:
    """Return whether the repository has this commit. Raises GitFailed."""
    return git.run("cat-file", "-e", f"{commit}^{{commit}}").code == 0


def is_contained(git: Git, commit: str, tip: str) -> bool:
    """Return whether ``tip`` contains ``commit``; False if that was never fetched. Raises GitFailed."""
    return has_commit(git, commit) and git.ok("merge-base", "--is-ancestor", commit, tip)


def is_readable(git: Git, branch: str) -> bool:
    """Return whether git can read this repository. Only then a missing commit is evidence."""
    return has_commit(git, f"refs/heads/{branch}")


def has_merge_base(git: Git, commit: str, other: str) -> bool:
    """Return whether two commits have a merge base; True if ``other`` does not exist."""
    return find_merge_base(git, commit, other) is not None


def find_merge_base(git: Git, commit: str, other: str) -> str | None:
    """Return the merge base of two commits, or None if they have none; empty if ``other`` does not exist."""
    result = git.run("merge-base", commit, other)
    return None if result.code == 1 else result.stdout.decode().strip()


def _is_in_history(git: Git, ref: str, commit: str) -> bool:
    """Return whether the history of ``ref`` contains ``commit``; False if ``ref`` is not a commit."""
    return git.run("merge-base", "--is-ancestor", commit, ref).code == 0


def refs_below(git: Git, prefix: str) -> dict[str, str]:
    """Return the commits of the refs below ``prefix``, without symbolic refs: Liza writes none. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(symref)", prefix.rstrip("/"))
    fields = (row.split(" ") for row in rows)
    return {name.removeprefix(prefix): commit for name, commit, target in fields if not target}
