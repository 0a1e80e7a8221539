"""The refs about a merge: commits under review, candidates that may be published, and what tests did to other refs."""

from __future__ import annotations

from liza.repo.runner import Git
from liza.rules.merging.merge_rules import RefChange

_REVIEW, _TESTED = "refs/liza/review/", "refs/liza/tested/"


def review_ref(task: str) -> str:
    """The ref that keeps the commit of a task that is under review, or approved, from being collected."""
    return _REVIEW + task


def tested_ref(task: str) -> str:
    """The ref that names the candidate of a task that may be published: its tests passed, or there are none."""
    return _TESTED + task


def write_review_ref(git: Git, task: str, commit: str) -> None:
    """Keep the reviewed commit of a task. Raises GitFailed."""
    git.out("update-ref", review_ref(task), commit)


def list_reviewed(git: Git) -> dict[str, str]:
    """The commits that are kept for review, by task. Raises GitFailed."""
    return refs_below(git, _REVIEW)


def delete_review_ref(git: Git, task: str) -> None:
    """Let the reviewed commit of a closed task go; nothing happens where there is none. Raises GitFailed."""
    git.out("update-ref", "-d", review_ref(task))


def write_tested_ref(git: Git, task: str, candidate: str) -> None:
    """Record that this candidate may be published, before the branch moves. Raises GitFailed."""
    git.out("update-ref", tested_ref(task), candidate)


def list_tested(git: Git) -> dict[str, str]:
    """The candidates that may be published, by task. Raises GitFailed."""
    return refs_below(git, _TESTED)


def snapshot_refs(git: Git) -> dict[str, str]:
    """Every ref with the object that it names, and with the ref where it is symbolic. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(symref)")
    return {name: value.rstrip() for name, _, value in (row.partition(" ") for row in rows)}


def find_ref_changes(
    git: Git, before: dict[str, str], candidate: str, made: frozenset[str] = frozenset()
) -> list[RefChange]:
    """The refs that are elsewhere than in ``before``, and how they stand to the candidate, and to the commits that
    were ``made`` where it is tested. Raises GitFailed."""
    after = snapshot_refs(git)
    found = []
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) == after.get(name):
            continue
        old, new = (known[name].partition(" ")[0] if name in known else None for known in (before, after))
        symbolic = " " in after.get(name, "")
        built_on = new is not None and (new in made or _is_in_history(git, new, candidate))
        rewound = None not in (old, new) and not built_on and not _is_in_history(git, str(new), str(old))
        found.append(RefChange(name, built_on=built_on, gone=new is None, rewound=rewound, symbolic=symbolic))
    return found


def list_commits_made(there: Git) -> frozenset[str]:
    """The commits that were made in a work tree, on whatever branch, as far as git's log of its HEAD tells."""
    rows = there.run("reflog", "show", "--format=%H %gs", "HEAD", codes=(0, 128)).stdout.decode("utf-8", "replace")
    found = (row.partition(" ") for row in rows.split("\n"))
    return frozenset(commit for commit, _, how in found if not how.startswith(("checkout:", "reset:")))


def has_commit(git: Git, commit: str) -> bool:
    """Whether the repository has this commit. Raises GitFailed."""
    return git.run("cat-file", "-e", f"{commit}^{{commit}}").code == 0


def is_readable(git: Git, branch: str) -> bool:
    """Whether git can read this repository: only then does it prove anything that a commit is not found."""
    return has_commit(git, f"refs/heads/{branch}")


def has_merge_base(git: Git, commit: str, other: str) -> bool:
    """Whether two commits have a merge base; so they are taken to where ``other`` does not exist."""
    return git.run("merge-base", commit, other).code != 1


def _is_in_history(git: Git, ref: str, commit: str) -> bool:
    """Whether ``commit`` is in the history of ``ref``; not where ``ref`` is no commit."""
    return git.run("merge-base", "--is-ancestor", commit, ref).code == 0


def refs_below(git: Git, prefix: str) -> dict[str, str]:
    """The commits that the refs below ``prefix`` name. A symbolic ref is no record of Liza's. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname) %(symref)", prefix.rstrip("/"))
    found = (row.split(" ") for row in rows)
    return {name.removeprefix(prefix): commit for name, commit, named in found if not named}
