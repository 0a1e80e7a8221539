"""Save uncommitted work of a worktree before it is reset, and restore it on the current tip of the branch.

A salvage is a commit under ``refs/liza/salvage/<task>/<run>``. Its first parent is the HEAD of the worktree. Its tree
holds everything that was not committed: changed, untracked and small ignored files, and nested repositories as bundles.
Ignored files and bundles are also in the tree of the second parent, because they are not restored. A trailer says which
operation of git was in progress.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from liza.git import git_refs, leftovers
from liza.git.candidates import merge_trees
from liza.git.git_config import git_dirs
from liza.git.rules.git_operations import GitOperation
from liza.git.run_git import ImportRefused
from liza.git.runner import COMMIT, Git, find_remedy, join_nul, summarize_error
from liza.git.survey import copy_index, find_operation, find_scratch, read_unfinished, read_work_tree
from liza.model.errors import GitFailed, NotRegularFile
from liza.model.value_classes import Value
from liza.system import untrusted_files

MAX_IGNORED_SIZE = 10 * 1024 * 1024  # bytes of ignored files in one salvage
BUNDLE_DIRECTORY = ".liza-nested"
UNFINISHED_TRAILER = "Liza-Unfinished"
SUBMODULES_SUFFIX = "-submodules"
"""End of the name of a salvage that has only bundles of submodules. It has no files of the task to restore."""
REFS_SUFFIX = "-refs"
"""End of the name of a salvage that is a branch or a stash of a run, as it was."""
SALVAGE_PREFIX = "refs/liza/salvage/"
EARLIER_PREFIX = "refs/liza/earlier/"
"""Prefix of the salvages of earlier crews of the repository, with a number for each crew. No task restores them."""
_TIME_LIMIT = 1800.0  # seconds; a large tree is hashed completely
_DEPTH = 3  # levels of nested repositories that are saved


def has_files(ref: str) -> bool:
    """Return whether a salvage may have files of its task to restore."""
    name = ref.rpartition("/")[2]
    return SUBMODULES_SUFFIX not in name and REFS_SUFFIX not in name


class SalvageTarget(Value):
    """Where a salvage goes that is made in the git directory of a run: ``take`` copies a commit to ``git``."""

    git: Git
    take: Callable[[str], None]


class _Extras(Value):
    """Content that git does not show as a change.

    Ignored files, bundles (path, blob), salvages of nested worktrees, and the names of ignored files that were omitted.
    """

    ignored: tuple[str, ...]
    bundles: tuple[tuple[str, str], ...]
    worktree_salvages: tuple[str, ...]
    omitted: tuple[str, ...]


def salvage_ref(task: str, run: str) -> str:
    """Return the ref of a salvage. A second, different salvage of the same run gets the suffix ``+2``."""
    return f"{SALVAGE_PREFIX}{task}/{run}"


def salvage_if_needed(
    git: Git,
    task: str,
    run: str,
    kept_in: Sequence[str] = ("refs/heads/integration",),
    target: SalvageTarget | None = None,
) -> str | None:
    """Save the content of the worktree of ``git`` if necessary. Return the ref, or None.

    ``target``: the repository that gets the salvage and has ``kept_in``, if not that of ``git``.

    It is necessary if a file is changed or untracked, if an operation of git is in progress, or if none of the refs or
    commits ``kept_in`` contains HEAD.
    Raises GitFailed.
    """
    clear_hiding_flags(git)
    return salvage_new_changes(git, task, run, kept_in, target)


def salvage_new_changes(
    git: Git, task: str, run: str, kept_in: Sequence[str], target: SalvageTarget | None = None
) -> str | None:
    """Save as ``salvage_if_needed`` does, without clearing the hiding flags: the last salvage cleared them. Raises
    GitFailed.
    """
    state = read_work_tree(git)
    repository = git if target is None else target.git
    is_kept = state.head is None or any(_is_contained(repository, state.head, ref) for ref in kept_in)
    if not state.changed and is_kept and find_operation(git.git_dir or git_dirs(git)[0]) is None:
        return None
    return create_salvage(git, task, run, target)


def create_salvage(git: Git, task: str, run: str, target: SalvageTarget | None = None) -> str:
    """Save the content of the worktree of ``git`` and return the ref. The same state is saved only once.

    Raises GitFailed; then the caller must not reset the worktree.
    """
    return _create_salvage(git.with_timeout(_TIME_LIMIT), task, run, _DEPTH, target)


def clear_hiding_flags(git: Git) -> None:
    """Clear the index flags that make git ignore changed files (``--assume-unchanged``, ``--skip-worktree``)."""
    rows = git.names("ls-files", "-v", "-z")
    unchanged = [row[2:] for row in rows if row[0].islower()]
    skipped = [row[2:] for row in rows if row[0] in "Ss" and os.path.lexists(git.directory / row[2:])]
    for option, names in (("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)):
        if names:
            git.out("update-index", option, "-z", "--stdin", stdin=join_nul(names))


def _create_salvage(git: Git, task: str, run: str, depth: int, target: SalvageTarget | None = None) -> str:
    """Create a salvage. ``depth`` is the number of levels of nested repositories that may follow."""
    head = git.find_commit("HEAD")
    with copy_index(git) as git_copy:
        # The order matters: each step adds to the same copy of the index.
        staged = _staged_tree(git_copy)
        _add_changes(git_copy, head)
        extras = _find_extras(git_copy, task, run, depth, target)
        work = git_copy.out("write-tree")
        _add_extras(git_copy, extras)
        tree = git_copy.out("write-tree")
    message = _message(task, run, extras, read_unfinished(git))
    repository = git if target is None else target.git
    salvage = _find_same_salvage(repository, salvage_ref(task, run), head, tree)
    if salvage:
        return salvage
    parents = [head] if head else []
    # Content that was staged and then changed or deleted exists only in the index.
    staged_only = staged is not None and staged not in (work, _tree_of_commit(git, head))
    if tree != work or staged_only:
        parents.append(create_commit(git, _extras_tree(git, extras), (), f"Ignored and nested files of {run}\n"))
    if staged is not None and staged_only:
        parents.append(create_commit(git, staged, parents[:1], f"Staged files of {run}\n"))
    return keep_commit(git, salvage_ref(task, run), create_commit(git, tree, parents, message), target)


def keep_commit(git: Git, ref: str, commit: str, target: SalvageTarget | None) -> str:
    """Create a ref for a salvage, which a target first gets from ``git``. Return its name. Raises GitFailed."""
    if target is None:
        return _create_ref(git, ref, commit)
    target.take(commit)
    return _create_ref(target.git, ref, commit)


def save_bundles(
    git: Git, task: str, run: str, bundles: Sequence[tuple[str, str]], target: SalvageTarget | None = None
) -> str:
    """Save the blobs of bundles, each with the path of its repository, and return the ref. Raises GitFailed."""
    extras = _Extras((), tuple((f"{BUNDLE_DIRECTORY}/{path}.bundle", blob) for path, blob in bundles), (), ())
    head = git.find_commit("HEAD")
    message = _message(task, run, extras, None)
    commit = create_commit(git, _extras_tree(git, extras), (head,) if head else (), message)
    return keep_commit(git, salvage_ref(task, run), commit, target)


def create_commit(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """Create a commit with Liza's identity, on no ref. Raises GitFailed."""
    options = [word for parent in parents for word in ("-p", parent)]
    return git.with_identity().out("commit-tree", tree, *options, "-F", "-", stdin=message)


def _tree_of_commit(git: Git, head: str | None) -> str | None:
    return git.out("rev-parse", f"{head}^{{tree}}") if head else None


def _staged_tree(git_copy: Git) -> str | None:
    """Return the tree of the index, or None if it holds a conflict: then it has no tree."""
    return None if git_copy.names("ls-files", "-u", "-z") else git_copy.out("write-tree")


def _add_changes(git_copy: Git, head: str | None) -> None:
    """Add to the index: changed, deleted and untracked files, but no nested repositories."""
    if git_copy.names("ls-files", "-u", "-z"):
        # The parents hold both sides of a conflict; the file holds the agent's resolution.
        git_copy.out("read-tree", head or "--empty")
    # Not `add --update`: it runs `git status` in each submodule, with the filters of the submodule's own config.
    changed = git_copy.names("diff-files", "-z", "--name-only", "--no-renames")
    if changed:
        git_copy.out("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=join_nul(changed))
    untracked = [
        name for name in git_copy.names("ls-files", "--others", "--exclude-standard", "-z") if not name.endswith("/")
    ]
    if untracked:
        git_copy.out("update-index", "--add", "--replace", "-z", "--stdin", stdin=join_nul(untracked))


def _find_extras(git_copy: Git, task: str, run: str, depth: int, target: SalvageTarget | None) -> _Extras:
    """Save nested repositories, choose the ignored files that fit, and return all of it."""
    omitted: list[str] = []
    bundles: list[tuple[str, str]] = []
    worktree_salvages: list[str] = []
    for name in git_copy.names("ls-files", "--others", "--exclude-standard", "-z"):
        if name.endswith("/"):
            nested = _nested_git(git_copy, name, depth)
            if git_dirs(nested)[1] == git_dirs(git_copy)[1]:
                # A worktree of this repository that the agent added: the salvage goes into the same repository.
                worktree_salvages.append(_create_salvage(nested, task, f"{run}-nested", depth - 1, target))
            else:
                bundles.append((f"{BUNDLE_DIRECTORY}/{name[:-1]}.bundle", bundle_repository(git_copy, nested, depth)))
    bytes_left = MAX_IGNORED_SIZE
    ignored: list[str] = []
    rows = git_copy.names("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    for name in sorted(rows, key=lambda row: (row.endswith("/"), row)):
        files, size = _ignored_files(git_copy.directory, name, bytes_left)
        if files is None:
            omitted.append(name)
        else:
            ignored += files
            bytes_left -= size
    return _Extras(tuple(ignored), tuple(bundles), tuple(worktree_salvages), tuple(omitted))


def _ignored_files(top: Path, name: str, max_size: int) -> tuple[list[str] | None, int]:
    """Return the files below an ignored name and their size in bytes.

    The files are None if they are larger than ``max_size`` bytes or contain a repository.
    """
    if not name.endswith("/"):
        size = (top / name).lstat().st_size
        return ([name], size) if size <= max_size else (None, 0)
    names: list[str] = []
    total = 0
    for folder, folders, files in os.walk(top / name):
        links = [entry for entry in folders if (Path(folder) / entry).is_symlink()]
        for entry in [*files, *links]:
            path = Path(folder) / entry
            if path.is_symlink() or path.is_file():
                names.append(str(path.relative_to(top)))
                total += path.lstat().st_size
        if total > max_size or ".git" in folders or ".git" in files:
            return None, 0
    return names, total


def _nested_git(git_copy: Git, name: str, depth: int) -> Git:
    """Return git for a nested repository. Raises GitFailed below the depth limit."""
    if depth == 0:
        raise GitFailed(f"{git_copy.directory / name} is nested in more than {_DEPTH} repositories and cannot be saved")
    path = git_copy.directory / name.rstrip("/")
    return Git(path, git_copy.timeout, ceiling=path.parent, box=git_copy.box)


def bundle_repository(git_copy: Git, nested: Git, depth: int = _DEPTH, *, only_work: bool = False) -> str:
    """Return the blob of a bundle of a nested repository. Its uncommitted files are saved in it first.

    ``only_work``: only these files and HEAD, without commits that a remote branch contains. Raises GitFailed, OSError.
    """
    ref = _create_salvage(nested, "nested", "work", depth - 1)
    revisions = (ref, "--not", "--remotes") if only_work else ("--all",)
    with tempfile.TemporaryDirectory(prefix="liza-bundle-", dir=find_scratch(nested)) as folder:
        path = Path(folder) / "bundle"
        nested.out("bundle", "create", "--quiet", str(path), *revisions)
        return git_copy.out("hash-object", "-w", "--no-filters", "--", str(path))


def _add_extras(git_copy: Git, extras: _Extras) -> None:
    """Add the extras to the index."""
    if extras.ignored:
        git_copy.out("update-index", "--add", "--replace", "-z", "--stdin", stdin=join_nul(extras.ignored))
    if extras.bundles:
        rows = [f"100644 {blob}\t{path}" for path, blob in extras.bundles]
        git_copy.out("update-index", "--add", "-z", "--index-info", stdin=join_nul(rows))


def _extras_tree(git: Git, extras: _Extras) -> str:
    """Return a tree that holds only the extras."""
    with tempfile.TemporaryDirectory(prefix="liza-salvage-", dir=find_scratch(git)) as folder:
        alone = git.with_environment(GIT_INDEX_FILE=str(Path(folder) / "index"))
        _add_extras(alone, extras)
        return alone.out("write-tree")


def _find_same_salvage(git: Git, ref: str, head: str | None, tree: str) -> str | None:
    """Return the ref of this run's salvage that has the same parent and the same tree, or None."""
    rows = git.lines("for-each-ref", "--format=%(refname)%00%(tree)%00%(parent)", ref, f"{ref}+*")
    for row in rows:
        name, row_tree, parents = row.split("\0")
        if row_tree == tree and parents.split(" ")[0] == (head or ""):
            return name
    return None


def _create_ref(git: Git, ref: str, commit: str) -> str:
    """Create a new ref at a commit, and return its name. An earlier salvage is never overwritten. Raises GitFailed."""
    name, number = ref, 1
    while True:
        args = ("update-ref", name, commit, "0" * len(commit))
        result = git.run(*args)
        if result.code == 0:
            return name
        if not _is_taken(git, name):
            break
        number += 1
        name = f"{ref}+{number}"
    # The name is free, so git failed for another reason: a lock that a killed git left, a full disk, a file in the way.
    if not leftovers.remove_stale_locks(git, (name,)):
        reason, hint = summarize_error(result), find_remedy(result.stderr)
        raise GitFailed(f"{name} could not be written: {reason}", hint or "git for-each-ref refs/liza/salvage")
    git.out(*args)
    return name


def _is_taken(git: Git, name: str) -> bool:
    """Return whether there is a ref of that name, or one below it: to git a ref is a file or a directory of refs."""
    return git.find_commit(name) is not None or git.out("for-each-ref", "--count=1", "--format=%(refname)", name) != ""


def _message(task: str, run: str, extras: _Extras, unfinished: GitOperation | None) -> str:
    lines = [f"Salvage of {task} after {run}", "", "What was not committed when its work tree was reset."]
    lines += [f"Nested repository as a bundle: {json.dumps(path)}" for path, _ in extras.bundles]
    lines += [f"Nested work tree, saved as {ref}" for ref in extras.worktree_salvages]
    lines += [f"Ignored, and too large to be saved: {json.dumps(name)}" for name in extras.omitted[:50]]
    if len(extras.omitted) > 50:
        lines.append(f"… and {len(extras.omitted) - 50} more ignored names")
    left = [f"{UNFINISHED_TRAILER}: {unfinished.describe_left(task)}"] if unfinished is not None else []
    return "\n".join([*lines, "", f"Liza-Task: {task}", f"Liza-Run: {run}", *left, ""])


def _is_contained(git: Git, head: str, ref: str) -> bool:
    """Return whether ``ref`` contains ``head``; False if ``ref`` does not exist, so that HEAD is saved."""
    return head == ref or git.run("merge-base", "--is-ancestor", head, ref, codes=(0, 1, 128)).code == 0


MAX_REFS = 50
"""Maximum number of commits that are saved in this way for one run."""
_MAX_LOG = 1 << 20
_STASH_LINE = re.compile(rb"(?m)^[0-9a-f]+ ([0-9a-f]+) ")


def salvage_refs(git: Git, task: str, run: str, target: SalvageTarget) -> None:
    """Save the commits at branches and stashes of ``git`` that the repository of ``target`` does not have.

    What a box has damaged is left out. Raises GitFailed.
    """
    own = set(target.git.lines("for-each-ref", "--format=%(objectname)"))
    missing = [name for name in _list_commits(git) if name not in own and not _is_reachable(target.git, name)]
    for name in missing[:MAX_REFS]:
        with suppress(ImportRefused):
            keep_commit(git, f"{salvage_ref(task, run)}{REFS_SUFFIX}", name, target)


def _list_commits(git: Git) -> list[str]:
    """Return the commits at branches, and those of all stashes: only the first of them has a ref."""
    names: list[str] = []
    with suppress(GitFailed):
        names += git.lines("for-each-ref", "--format=%(objectname)", "refs/heads", "refs/stash")
    with suppress(NotRegularFile, NotADirectoryError, PermissionError):
        log = untrusted_files.read_below(git_dirs(git)[0], "logs/refs/stash", _MAX_LOG) or b""
        names += (match[1].decode() for match in _STASH_LINE.finditer(log))
    return [name for name in dict.fromkeys(names) if COMMIT.fullmatch(name)]


def _is_reachable(git: Git, commit: str) -> bool:
    result = git.run("rev-list", "--max-count=1", commit, "--not", "--all")
    return result.code == 0 and not result.stdout


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


def rename_earlier(git: Git) -> str | None:
    """Rename the salvages that an earlier crew left, so that no task of a new crew with the same id restores them.

    All or none are renamed. Return the prefix of their new names; None if there is no salvage. Raises GitFailed.
    """
    salvages = git_refs.refs_below(git, SALVAGE_PREFIX)
    if not salvages:
        return None
    numbers = [name.partition("/")[0] for name in git_refs.refs_below(git, EARLIER_PREFIX)]
    prefix = f"{EARLIER_PREFIX}{max((int(number) for number in numbers if number.isdecimal()), default=0) + 1}/"
    lines = [
        f"create {prefix}{name} {commit}\ndelete {SALVAGE_PREFIX}{name} {commit}\n" for name, commit in salvages.items()
    ]
    git.with_identity().out("update-ref", "--stdin", stdin="".join(lines))
    return prefix


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
