"""Candidates: merge commits that are built without a checkout, so that they can be tested before a branch moves."""

from __future__ import annotations

from collections.abc import Sequence

from liza.git import git_refs
from liza.git.runner import Git, find_remedy, summarize_error
from liza.model.errors import GitFailed, MergeConflict
from liza.text.undecoded import escape_name, list_names


def candidate_ref(task: str) -> str:
    """Return the ref that protects a task's candidate from garbage collection."""
    return f"refs/liza/candidates/{task}"


def build_candidate(git: Git, commit: str, expected: str, message: str, task: str, landed: str | None = None) -> str:
    """Merge ``commit`` into ``expected``, the tip of integration, and return the merge commit.

    ``landed`` is the commit of integration whose work ``commit`` has, from a squash: the merge base then. No branch and
    no worktree changes. Raises MergeConflict with the names of the files, GitFailed.
    """
    # Read attributes from the target branch, not from a person's checkout.
    merging, theirs = git.with_environment(GIT_ATTR_SOURCE=expected), commit
    if landed is not None:
        # git finds the merge base among ancestors, and merge-tree takes one by name only since git 2.40.
        identified = git.with_identity()
        theirs = identified.out("commit-tree", f"{commit}^{{tree}}", "-p", landed, "-F", "-", stdin="landed\n")
    tree, files = merge_trees(merging, expected, theirs)
    if files:
        raise MergeConflict(f"{commit[:10]} conflicts with {expected[:10]} in {list_names(files)}", files)
    args = ("commit-tree", tree, "-p", expected, "-p", commit, "-F", "-")
    merge_commit = git.with_identity().out(*args, stdin=message if message.endswith("\n") else message + "\n")
    git.out("update-ref", candidate_ref(task), merge_commit)
    return merge_commit


def build_revert(git: Git, merge: str, expected: str, message: str, name: str) -> str | None:
    """Take back from ``expected``, the tip of a branch, what ``merge`` changed against its first parent. Return the
    commit; None if ``expected`` has nothing of that change any more.

    ``expected`` contains ``merge``. No branch and no worktree changes. Raises MergeConflict with the names of the
    files, GitFailed.
    """
    tree, files = _revert_tree(git, merge, expected)
    if files:
        raise MergeConflict(f"{expected[:10]} without {merge[:10]} conflicts in {list_names(files)}", files)
    if tree == git.out("rev-parse", f"{expected}^{{tree}}"):
        return None
    commit = git.with_identity().out("commit-tree", tree, "-p", expected, "-F", "-", stdin=message)
    git.out("update-ref", candidate_ref(name), commit)
    return commit


def _revert_tree(git: Git, merge: str, expected: str) -> tuple[str, tuple[str, ...]]:
    """Return the tree without the change, and the files that conflict. Raises GitFailed."""
    # A commit with the tree from before, on top of the merge: git finds the merge as the common ancestor.
    words = ("commit-tree", f"{merge}^1^{{tree}}", "-p", merge, "-F", "-")
    before = git.with_identity().out(*words, stdin="before\n")
    return merge_trees(git.with_environment(GIT_ATTR_SOURCE=expected), expected, before)


def is_revert_of(git: Git, commit: str, merge: str) -> bool:
    """Return whether ``commit`` is exactly its parent without the change of ``merge``. Raises GitFailed."""
    parent = git.find_commit(f"{commit}^1")
    if parent is None or git.find_commit(f"{commit}^2") is not None:
        return False
    return _revert_tree(git, merge, parent) == (git.out("rev-parse", f"{commit}^{{tree}}"), ())


def merge_trees(git: Git, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """Return the tree of two merged commits and the names of its conflicting files. Raises GitFailed."""
    result = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = result.stdout.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    # Exit 1 is a conflict, and also "not something we can merge": only the first has a tree.
    if result.code not in (0, 1) or not tree:
        message = f"git merge-tree {ours[:10]} {theirs[:10]} failed ({result.code}): {summarize_error(result)}"
        raise GitFailed(message, find_remedy(result.stderr))
    return tree, tuple(dict.fromkeys(name for name in names if name))


def is_merge_of(git: Git, candidate: str, expected: str, commit: str) -> bool:
    """Return whether ``candidate`` is exactly the merge of ``commit`` into ``expected``. Raises GitFailed."""
    result = git.run("rev-list", "--no-walk", "--format=%T %P", "--end-of-options", candidate)
    lines = result.stdout.decode().splitlines()
    if result.code != 0 or not lines:
        return False
    tree, *parents = lines[-1].split(" ")
    if parents != [expected, commit]:
        return False
    return merge_trees(git.with_environment(GIT_ATTR_SOURCE=expected), expected, commit) == (tree, ())


def delete_candidate(git: Git, task: str, *, closed: bool = False) -> None:
    """Delete the refs of a task's candidate, if they exist.

    If the task is ``closed``, delete the ref of its reviewed commit, too. Raises GitFailed.
    """
    refs = [candidate_ref(task), git_refs.tested_ref(task), *([git_refs.review_ref(task)] if closed else [])]
    git.out("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs))


def list_candidates(git: Git) -> dict[str, str]:
    """Return the candidates that have a ref, by task. Raises GitFailed."""
    return git_refs.refs_below(git, candidate_ref(""))


MAX_LINES, MAX_WIDTH = 60, 200


def read_conflict_hunks(git: Git, base: str, commit: str, files: Sequence[str]) -> str:
    """Return the conflicting parts of ``files`` with git's conflict markers, at most MAX_LINES lines.

    ``base`` is the side above the line of equal signs. Empty if there are none, as for a file that one side deleted.
    Raises GitFailed.
    """
    merging = git.with_environment(GIT_ATTR_SOURCE=base)
    result = merging.run("merge-tree", "--write-tree", "--no-messages", base, commit, codes=(0, 1))
    tree = result.stdout.decode("utf-8", "backslashreplace").split("\n", 1)[0]
    lines: list[str] = []
    for name in files:
        blob = git.run("cat-file", "blob", f"{tree}:{name}", codes=(0, 128))
        if blob.code == 0:
            hunks = _conflict_lines(blob.stdout.decode("utf-8", "backslashreplace"))
            lines += [f"--- {escape_name(name)}", *hunks] if hunks else []
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"… {len(lines) - MAX_LINES} more lines: git merge {base[:10]}"]
    return "\n".join(line[:MAX_WIDTH] for line in lines)


def _conflict_lines(text: str) -> list[str]:
    """Return the lines from each ``<<<<<<<`` to its ``>>>>>>>``."""
    lines: list[str] = []
    is_inside = False
    for line in text.splitlines():
        is_inside = is_inside or line.startswith("<<<<<<< ")
        if is_inside:
            lines.append(line)
        is_inside = is_inside and not line.startswith(">>>>>>> ")
    return lines
