"""Refs and commits: names of branches, refs of a merge, how commits are related, and commits made without a worktree.

A tag, a file or a remote may have the name of a branch, so git is asked by the full name, ``refs/heads/…``. To git a
ref is a file or a directory of refs, not both: ``a`` and ``a/b`` exclude each other.
"""

from __future__ import annotations

import itertools
import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model import targets
from liza.model.errors import Refused
from liza.model.value_classes import Value

HEADS = "refs/heads/"
_USUAL_BRANCHES = ("main", "master", "trunk", "develop")


def current_branch(git: Git) -> str | None:
    """Return the branch at HEAD, whether or not it exists; None if HEAD is detached. Raises GitFailed."""
    output = git.run("symbolic-ref", "-q", "HEAD", codes=(0, 1)).stdout
    ref = output.decode("utf-8", "surrogateescape").removesuffix("\n")
    return ref.removeprefix(HEADS) if ref.startswith(HEADS) else None


def list_branches(git: Git, *words: str) -> tuple[str, ...]:
    """Return all branches, or those that the options ``words`` of for-each-ref select. Raises GitFailed."""
    refs = git.lines("for-each-ref", "--format=%(refname)", *words, HEADS)
    return tuple(ref.removeprefix(HEADS) for ref in refs)


def suggest_branch(git: Git, integration: str, *words: str) -> str | None:
    """Return one of the person's branches, for a command in a hint; None if the person has no branch.

    ``words``: options as of ``list_branches``. Raises GitFailed.
    """
    branches = list_branches(git, "--sort=-committerdate", *words)
    own = [branch for branch in branches if branch != integration and targets.is_target_name(branch)]
    return next((name for name in (*_USUAL_BRANCHES, *own) if name in own), None)


def branch_command(git: Git, command: str, integration: str) -> str:
    """Return ``command`` with one of the person's branches, or `liza status` if the person has no branch. Raises
    GitFailed."""
    branch = suggest_branch(git, integration)
    return f"{command} {shlex.quote(branch)}" if branch else "liza status"


def type_revision(git: Git, branch: str) -> str:
    """Return the branch as a person can type it in any git command, quoted: in full if its short name has two meanings.

    Raises GitFailed.
    """
    short = git.out("for-each-ref", "--count=1", "--format=%(refname:short)", HEADS + branch) or branch
    is_file = os.path.lexists(git.directory / short)
    return shlex.quote(HEADS + branch if short != branch or is_file or branch.startswith("-") else branch)


def find_excluding(name: str, names: Collection[str], *, ignore_case: bool = False) -> str | None:
    """Return the first of ``names`` that git cannot have beside ``name``; None without one."""
    fold = str.casefold if ignore_case else str
    own = f"{fold(name)}/"
    others = ((other, f"{fold(other)}/") for other in sorted(names) if other != name)
    return next((other for other, key in others if own.startswith(key) or key.startswith(own)), None)


def find_free_name(name: str, names: Collection[str]) -> str:
    """Return ``name``, with a number if needed, so that none of ``names`` is equal to it or excludes it."""
    flat = name.replace("/", "-")
    numbered = (f"{flat}-{number}" for number in itertools.count(2))
    return next(
        free for free in itertools.chain([flat], numbered) if free not in names and find_excluding(free, names) is None
    )


def ref_conflict_error(name: str, branch: str, branches: Collection[str] = ()) -> Refused:
    """Return the error for a branch ``name`` that excludes the branch ``branch``. ``branches``: all that exist."""
    message = f"the branch {name} is in the way: git cannot have {branch} beside it"
    new_name = find_free_name(f"{name}-old", branches)
    return Refused(message, shlex.join(["git", "branch", "-m", name, new_name]))


def remove_empty_directory(git: Git) -> None:
    """Remove the directory of ``refs/liza``, which git leaves behind its last ref. Raises GitFailed."""
    with suppress(OSError):  # a ref is in it, or it is not there
        (git_dirs(git)[1] / "refs" / "liza").rmdir()


def has_branch_named_task(common: Path) -> bool:
    """Return whether a branch named ``task`` exists. Runs no git, because it is polled. Raises OSError."""
    ref = common / "refs" / "heads" / "task"
    if ref.is_dir() and any(ref.iterdir()):
        return False
    if ref.is_file():
        return True
    try:
        return b" refs/heads/task\n" in (common / "packed-refs").read_bytes()
    except FileNotFoundError:
        return False


def find_commits(git: Git, *refs: str) -> list[str | None]:
    """Return the commit of each of ``refs``, which begin with ``refs/``, None for a missing one, with one git unless a
    ref is damaged or names a tag. Raises GitFailed."""
    result = git.run("for-each-ref", "--format=%(refname) %(objecttype) %(objectname)", *refs)
    rows = [row.split(" ") for row in result.stdout.decode("utf-8", "surrogateescape").splitlines()]
    listed = {ref: (object_type, commit) for ref, object_type, commit in (row for row in rows if len(row) == 3)}
    is_complete = result.code == 0 and not result.stderr  # git warns of a damaged ref

    def find(ref: str) -> str | None:
        object_type, commit = listed.get(ref, ("", None))
        if object_type == "commit" or (not object_type and is_complete):
            return commit
        return git.find_commit(ref)

    return [find(ref) for ref in refs]


_SUBMODULE_MODE = "160000 "
_REVIEW, _TESTED = "refs/liza/review/", "refs/liza/tested/"
_MERGE_REFS = ("refs/liza/candidates/", "refs/liza/tested/", "refs/liza/targets/", "refs/liza/integration")
_FOREIGN_REFS = ("refs/liza/", "refs/heads/task/", "refs/remotes/", "refs/stash")


class RefChange(Value):
    """A ref that changed while tests ran.

    ``built_on``: it now contains the candidate. ``gone``: it was deleted. ``rewound``: it lost commits.
    """

    name: str
    built_on: bool = False
    gone: bool = False
    rewound: bool = False


def refs_moved_by_tests(changes: Iterable[RefChange]) -> tuple[str, ...]:
    """Return the refs that the tests moved, or may have moved, among those that changed while they ran.

    Only the tests have the candidate checked out. Meanwhile agents and people commit on their own branches, so a branch
    that only gained commits is not reported. No other process writes Liza's merge refs while the merge lock is held.
    """
    return tuple(
        change.name
        for change in changes
        if change.built_on
        or change.name.startswith(_MERGE_REFS)
        or (not change.name.startswith(_FOREIGN_REFS) and (change.gone or change.rewound))
    )


def is_sure(changes: Iterable[RefChange]) -> bool:
    """Return whether only the tests can have moved the refs that ``refs_moved_by_tests`` returns.

    There is no such evidence for a branch that was deleted or moved back: git records no process, and a person may have
    done it at the same time.
    """
    listed = list(changes)
    proved = [change for change in listed if change.built_on or change.name.startswith(_MERGE_REFS)]
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


_MAX_SAVED = 8
_saved_changes: dict[tuple[frozenset[str], frozenset[str], frozenset[tuple[str, str]]], dict[str, frozenset[str]]] = {}
"""Results of ``_read_changes`` by its arguments. They never change: many are asked for while no branch moves."""


def list_branch_changes(
    git: Git, tips: Mapping[str, str], targets: Sequence[str], below: Mapping[str, Sequence[str]]
) -> dict[str, frozenset[str]]:
    """Return the files that the commits of each tip change which no target has, by the keys of ``tips``.

    A tip is a ref or a commit. One that is gone, and a target that is gone, is left out. ``below``: for keys other ones
    whose commits do not count. Raises GitFailed.
    """
    refs = [name for name in (*tips.values(), *targets) if name.startswith("refs/")]
    if not tips or not refs:
        return {}
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname)", "--", *refs)
    present = dict(row.split(" ") for row in rows)
    commits = {key: present.get(tip, tip) for key, tip in tips.items() if tip in present or tip not in refs}
    wanted, bases = frozenset(commits.values()), frozenset(present[name] for name in targets if name in present)
    pairs = ((commits.get(key), commits.get(other)) for key, others in below.items() for other in others)
    stacked = frozenset((top, lower) for top, lower in pairs if top and lower)
    files = _saved_changes.get((wanted, bases, stacked))
    if files is None:
        files = _read_changes(git, wanted, bases, stacked)
        # A commit that is not here may be fetched later.
        if all(tip in refs or tip in files for tip in tips.values()):
            if len(_saved_changes) >= _MAX_SAVED:
                _saved_changes.clear()
            _saved_changes[wanted, bases, stacked] = files
    return {key: files[commit] for key, commit in commits.items() if commit in files}


def _read_changes(
    git: Git, tips: frozenset[str], targets: frozenset[str], stacked: frozenset[tuple[str, str]]
) -> dict[str, frozenset[str]]:
    """Return the files that each tip has changed, without tips that are gone or that a target has.

    ``stacked``: pairs of a tip and a lower one, whose commits are not its own.
    """
    words = ("--name-only", "-z", "--no-renames", "--ignore-missing")
    revisions = (*tips, *(f"^{target}" for target in targets))
    text = git.out("log", *words, "--format=%x01%H %P", "--stdin", stdin="\n".join(revisions) + "\n")
    parents: dict[str, list[str]] = {}
    files: dict[str, list[str]] = {}
    for head, _, names in (row.partition("\0") for row in text.split("\1") if row):
        commit, *parents[commit] = head.split()
        files[commit] = [name.strip("\n") for name in names.split("\0") if name.strip("\n")]
    changes = {}
    for tip in tips & files.keys():
        lower = _reach([low for top, low in stacked if top == tip and low in files], parents)
        changes[tip] = frozenset(name for commit in _reach([tip], parents) - lower for name in files[commit])
    return changes


def _reach(tips: list[str], parents: Mapping[str, list[str]]) -> set[str]:
    """Return these commits and all before them that are listed."""
    reached, todo = set(tips), tips
    while todo:
        fresh = {parent for parent in parents[todo.pop()] if parent in parents} - reached
        reached |= fresh
        todo += fresh
    return reached


def list_tested(git: Git) -> dict[str, str]:
    """Return the candidates that may be published, by task. Raises GitFailed."""
    return refs_below(git, _TESTED)


def snapshot_refs(git: Git) -> dict[str, str]:
    """Return every ref with its object. Raises GitFailed."""
    rows = git.lines("for-each-ref", "--format=%(refname) %(objectname)")
    return {name: commit for name, _, commit in (row.partition(" ") for row in rows)}


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
        old, new = before.get(name), after.get(name)
        built_on = new is not None and (new in commits_made or _is_in_history(git, new, candidate))
        rewound = None not in (old, new) and not built_on and not _is_in_history(git, str(new), str(old))
        changes.append(RefChange(name, built_on=built_on, gone=new is None, rewound=rewound))
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


def was_tip(git: Git, branch: str, commit: str) -> bool:
    """Return whether the branch of this clone was at ``commit`` before, as far as its reflog says. Raises GitFailed."""
    return commit in git.lines("reflog", "show", "--format=%H", HEADS + branch)


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


def commit_files(git: Git, parent: str, texts: Mapping[str, str], message: str) -> str:
    """Return a new commit on ``parent`` in which tracked files have other ``texts``. No ref and no worktree changes.

    Raises GitFailed, OSError.
    """
    names = sorted(texts)
    with tempfile.TemporaryDirectory(prefix="liza-commit-") as folder:
        # Only an index is read, not the files of a worktree, and a box does not show this directory.
        own = git.with_box(None).with_environment(GIT_INDEX_FILE=f"{folder}/index")
        own.out("read-tree", parent)
        modes = {row.partition("\t")[2]: row.partition(" ")[0] for row in own.names("ls-files", "-s", "-z")}
        paths = []
        for number, name in enumerate(names):
            paths.append(Path(folder) / str(number))
            paths[-1].write_text(texts[name], "utf-8", "surrogateescape", newline="")
        blobs = own.out(
            "hash-object", "-w", "--no-filters", "--stdin-paths", stdin="".join(f"{path}\n" for path in paths)
        )
        rows = [f"{modes[name]} {blob}\t{name}\0" for name, blob in zip(names, blobs.split("\n"), strict=True)]
        own.out("update-index", "-z", "--index-info", stdin="".join(rows))
        tree = own.out("write-tree", "--missing-ok")
    return git.with_identity().out("commit-tree", tree, "-p", parent, "-m", message)


def read_files(git: Git, commit: str, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of those files that ``commit`` has, each decoded as UTF-8. Raises GitFailed."""
    if not names:
        return {}
    wanted = [name for name in names if "\n" not in name]
    output = git.raw("cat-file", "--batch", stdin="".join(f"{commit}:{name}\n" for name in wanted))
    texts: dict[str, str] = {}
    for name in wanted:
        head, _, output = output.partition(b"\n")
        words = head.split()
        if len(words) != 3 or words[1] not in (b"blob", b"tree", b"commit", b"tag"):
            continue  # the line `NAME missing`
        size = int(words[2])
        if words[1] == b"blob":
            texts[name] = output[:size].decode("utf-8", "surrogateescape")
        output = output[size + 1 :]
    return texts
