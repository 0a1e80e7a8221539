"""Candidates: merge commits that are built without a checkout, so that they can be tested before a branch moves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence

from liza.git import git_refs
from liza.git.runner import Git, find_remedy, summarize_error
from liza.model.errors import GitFailed, MergeConflict
from liza.model.value_classes import Value
from liza.text.undecoded import escape_name, list_names


def candidate_ref(task: str) -> str:
    """Return the ref that protects a task's candidate from garbage collection."""
    return f"refs/liza/candidates/{task}"


class ConflictingMerge(Value):
    """A merge of ``theirs`` into ``expected`` with conflicts in ``files``, which have conflict markers in ``tree``."""

    expected: str
    theirs: str
    tree: str
    files: tuple[str, ...]

    @property
    def text(self) -> str:
        """The message of the conflict."""
        return f"{self.theirs[:10]} conflicts with {self.expected[:10]} in {list_names(self.files)}"


class ResolvedMerge(Value):
    """The tree of a merge without conflicts, and lines about it for the end of the message of its commit."""

    tree: str
    trailers: tuple[str, ...]


Resolve = Callable[[ConflictingMerge], ResolvedMerge | None]
"""Resolve a conflict; None if only a person or a coder can. Raises MergeConflict if that was tried, and failed."""


def build_candidate(
    git: Git,
    commit: str,
    expected: str,
    message: str,
    task: str,
    landed: str | None = None,
    resolve: Resolve | None = None,
) -> str:
    """Merge ``commit`` into ``expected``, the tip of integration, and return the merge commit.

    ``landed`` is the commit of integration whose work ``commit`` has, from a squash: the merge base then. No branch and
    no worktree changes, unless ``resolve`` changes one. Raises MergeConflict with the names of the files, GitFailed.
    """
    theirs = commit
    if landed is not None:
        # git finds the merge base among ancestors, and merge-tree takes one by name only since git 2.40.
        identified = git.with_identity()
        theirs = identified.out("commit-tree", f"{commit}^{{tree}}", "-p", landed, "-F", "-", stdin="landed\n")
    resolution = _merge_or_resolve(git, expected, theirs, resolve)
    args = ("commit-tree", resolution.tree, "-p", expected, "-p", commit, "-F", "-")
    merge_commit = git.with_identity().out(*args, stdin=_add_trailers(message, resolution.trailers))
    git.out("update-ref", candidate_ref(task), merge_commit)
    return merge_commit


def _merge_or_resolve(git: Git, expected: str, theirs: str, resolve: Resolve | None) -> ResolvedMerge:
    # Read attributes from the target branch, not from a person's checkout.
    tree, files = merge_trees(git.with_environment(GIT_ATTR_SOURCE=expected), expected, theirs)
    if not files:
        return ResolvedMerge(tree, ())
    merge = ConflictingMerge(expected, theirs, tree, files)
    resolution = None if resolve is None else resolve(merge)
    if resolution is None:
        raise MergeConflict(merge.text, files)
    return resolution


def _add_trailers(message: str, trailers: Sequence[str]) -> str:
    lines = "".join(f"{line}\n" for line in trailers)
    return message.removesuffix("\n") + "\n" + (f"\n{lines}" if lines else "")


def build_revert(
    git: Git, merge: str, expected: str, message: str, name: str, resolve: Resolve | None = None
) -> str | None:
    """Take back from ``expected``, the tip of a branch, what ``merge`` changed against its first parent. Return the
    commit; None if ``expected`` has nothing of that change any more.

    ``expected`` contains ``merge``. No branch and no worktree changes, unless ``resolve`` changes one. Raises
    MergeConflict with the names of the files, GitFailed.
    """
    resolution = _merge_or_resolve(git, expected, _commit_before(git, merge), resolve)
    if resolution.tree == git.out("rev-parse", f"{expected}^{{tree}}"):
        return None
    args = ("commit-tree", resolution.tree, "-p", expected, "-F", "-")
    commit = git.with_identity().out(*args, stdin=_add_trailers(message, resolution.trailers))
    git.out("update-ref", candidate_ref(name), commit)
    return commit


def _commit_before(git: Git, merge: str) -> str:
    """Return a commit with the tree from before a merge, on top of it: git finds the merge as the common ancestor."""
    words = ("commit-tree", f"{merge}^1^{{tree}}", "-p", merge, "-F", "-")
    return git.with_identity().out(*words, stdin="before\n")


def is_revert_of(git: Git, commit: str, merge: str, is_generated: Callable[[str], bool]) -> bool:
    """Return whether ``commit`` is exactly its parent without the change of ``merge``; conflicts in generated files may
    be resolved. Raises GitFailed."""
    parent = git.find_commit(f"{commit}^1")
    if parent is None or git.find_commit(f"{commit}^2") is not None:
        return False
    return _is_merged_tree(git, f"{commit}^{{tree}}", parent, _commit_before(git, merge), is_generated)


def merge_trees(git: Git, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """Return the tree of two merged commits and the names of its conflicting files. Raises GitFailed."""
    result = git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    tree, *names = result.stdout.decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
    # Exit 1 is a conflict, and also "not something we can merge": only the first has a tree.
    if result.code not in (0, 1) or not tree:
        message = f"git merge-tree {ours[:10]} {theirs[:10]} failed ({result.code}): {summarize_error(result)}"
        raise GitFailed(message, find_remedy(result.stderr))
    return tree, tuple(dict.fromkeys(name for name in names if name))


def is_merge_of(git: Git, candidate: str, expected: str, commit: str, is_generated: Callable[[str], bool]) -> bool:
    """Return whether ``candidate`` is exactly the merge of ``commit`` into ``expected``; conflicts in generated files
    may be resolved. Raises GitFailed."""
    result = git.run("rev-list", "--no-walk", "--format=%T %P", "--end-of-options", candidate)
    lines = result.stdout.decode().splitlines()
    if result.code != 0 or not lines:
        return False
    tree, *parents = lines[-1].split(" ")
    return parents == [expected, commit] and _is_merged_tree(git, tree, expected, commit, is_generated)


def _is_merged_tree(git: Git, tree: str, ours: str, theirs: str, is_generated: Callable[[str], bool]) -> bool:
    """Return whether a tree is the merge of two commits. If it conflicts in generated files only, it may differ from
    the merge in such files, and in no others."""
    merged, files = merge_trees(git.with_environment(GIT_ATTR_SOURCE=ours), ours, theirs)
    if not files:
        return merged == git.out("rev-parse", tree)
    changed = git.names("diff-tree", "-r", "-z", "--name-only", "--no-renames", merged, tree)
    return all(map(is_generated, (*files, *changed)))


def take_files_of_target(git: Git, merge: ConflictingMerge) -> str | None:
    """Return a commit of a conflicting merge in which the conflicting files are those of ``expected``. It is on no ref.

    None if one of them is no regular file in both commits: whether a file is to be there is for a person to decide.
    Raises GitFailed, OSError.
    """
    ours, theirs = (_list_regular(git, commit, merge.files) for commit in (merge.expected, merge.theirs))
    if ours.keys() != {*merge.files} or theirs.keys() != {*merge.files}:
        return None
    with tempfile.TemporaryDirectory(prefix="liza-merge-") as folder:
        # Only an index is read, not the files of a worktree.
        own = git.with_environment(GIT_INDEX_FILE=f"{folder}/index")
        own.out("read-tree", merge.tree)
        own.out("update-index", "-z", "--index-info", stdin="".join(f"{row}\0" for row in ours.values()))
        tree = own.out("write-tree", "--missing-ok")
    parents = ("-p", merge.expected, "-p", merge.theirs)
    return git.with_identity().out("commit-tree", tree, *parents, "-F", "-", stdin="generated files are due\n")


def _list_regular(git: Git, commit: str, files: Sequence[str]) -> dict[str, str]:
    """Return the entries of those files that are regular files of a commit, by name."""
    rows = git.names("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *files)
    return {row.partition("\t")[2]: row for row in rows if row.startswith("100")}


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
