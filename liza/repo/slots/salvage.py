"""Saving what lies in a work tree before anything resets it; ``layback`` brings the unfinished part of it back.

A salvage is a commit under ``refs/liza/salvage/<task>/<run>``. Its first parent is the HEAD that was there, its tree
everything that was not committed: changed, untracked, small ignored files, nested repositories as bundles. What git
would not show as a change (ignored files, bundles) is in the tree of its second parent, too, and is not laid back.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.repo.survey import read_work_tree
from liza.rules.errors import GitFailed

MAX_IGNORED_SIZE = 10 * 1024 * 1024
BUNDLE_DIRECTORY = ".liza-nested"
_TIME_LIMIT = 1800.0
_DEPTH = 3


@dataclass(frozen=True)
class _Extras:
    """What git would not show as a change: files to keep, bundles (path, blob), refs of their own, names left out."""

    ignored: tuple[str, ...]
    bundles: tuple[tuple[str, str], ...]
    worktree_salvages: tuple[str, ...]
    omitted: tuple[str, ...]


def salvage_ref(task: str, run: str) -> str:
    """Where a salvage is kept; a second and different one of the same run gets ``+2`` behind it."""
    return f"refs/liza/salvage/{task}/{run}"


def salvage_if_needed(
    git: Git, task: str, run: str, kept_in: Sequence[str] = ("refs/heads/integration",)
) -> str | None:
    """Save what lies in the work tree of ``git``; the ref, or None where nothing needs saving.

    Saving is needed when anything is changed or untracked, or HEAD is in none of the refs or commits ``kept_in``.
    Raises GitFailed.
    """
    clear_hiding_flags(git)
    return salvage_new_changes(git, task, run, kept_in)


def salvage_new_changes(git: Git, task: str, run: str, kept_in: Sequence[str]) -> str | None:
    """``salvage`` of what came since the last one, which took off the marks that hide changes. Raises GitFailed."""
    seen = read_work_tree(git)
    if not seen.changed and (seen.head is None or any(_is_contained(git, seen.head, place) for place in kept_in)):
        return None
    return create_salvage(git, task, run)


def create_salvage(git: Git, task: str, run: str) -> str:
    """Save what lies in the work tree of ``git``, and give the ref. The same state twice is one salvage.

    Raises GitFailed: then nothing may be reset.
    """
    return _create_salvage(git.with_timeout(_TIME_LIMIT), task, run, _DEPTH)


def salvage_head(git: Git, task: str, run: str, kept_in: Sequence[str]) -> None:
    """Keep the commit at HEAD as a salvage if it is in none of the refs or commits ``kept_in``. Raises GitFailed."""
    head = head_commit(git)
    if head is not None and not any(_is_contained(git, head, place) for place in kept_in):
        _create_ref(git, salvage_ref(task, run), head)


def clear_hiding_flags(git: Git) -> None:
    """Take marks off the index that make git overlook changed files (``--assume-unchanged`` and the like)."""
    rows = git.names("ls-files", "-v", "-z")
    unchanged = [row[2:] for row in rows if row[0].islower()]
    skipped = [row[2:] for row in rows if row[0] in "Ss" and os.path.lexists(git.directory / row[2:])]
    for option, names in (("--no-assume-unchanged", unchanged), ("--no-skip-worktree", skipped)):
        if names:
            git.out("update-index", option, "-z", "--stdin", stdin=join_nul(names))


def _create_salvage(git: Git, task: str, run: str, depth: int) -> str:
    head = head_commit(git)
    with _index_copy(git) as aside:
        staged = _staged_tree(aside)
        _add_changes(aside, head)
        extras = _find_extras(aside, task, run, depth)
        work = aside.out("write-tree")
        _add_extras(aside, extras)
        tree = aside.out("write-tree")
    known = _find_same_salvage(git, salvage_ref(task, run), head, tree)
    if known:
        return known
    parents = [head] if head else []
    # What was staged, then changed or deleted again, is in no file any more.
    lost = staged is not None and staged not in (work, _tree_of_commit(git, head))
    if tree != work or lost:
        parents.append(create_commit(git, _extras_tree(git, extras), (), f"Ignored and nested files of {run}\n"))
    if staged is not None and lost:
        parents.append(create_commit(git, staged, parents[:1], f"Staged files of {run}\n"))
    return _create_ref(git, salvage_ref(task, run), create_commit(git, tree, parents, _message(task, run, extras)))


def create_commit(git: Git, tree: str, parents: Sequence[str], message: str) -> str:
    """A commit of Liza's own, on no ref yet. Raises GitFailed."""
    words = [word for parent in parents for word in ("-p", parent)]
    return git.with_identity().out("commit-tree", tree, *words, "-F", "-", stdin=message)


def _tree_of_commit(git: Git, head: str | None) -> str | None:
    return git.out("rev-parse", f"{head}^{{tree}}") if head else None


def _staged_tree(aside: Git) -> str | None:
    """The tree of the index as it was; None where it holds a conflict, which has no tree."""
    return None if aside.names("ls-files", "-u", "-z") else aside.out("write-tree")


@contextmanager
def _index_copy(git: Git) -> Iterator[Git]:
    """git on a copy of the index: the copy remembers file times, so nothing unchanged is read again."""
    with tempfile.TemporaryDirectory(prefix="liza-salvage-") as folder:
        index = Path(folder) / "index"
        own = git.git_dir or git_dirs(git)[0]
        if (own / "index").exists():
            shutil.copyfile(own / "index", index)
        yield git.with_environment(GIT_INDEX_FILE=str(index))


def _add_changes(aside: Git, head: str | None) -> None:
    """Into the index: changed and deleted files, and untracked ones that are not repositories of their own."""
    if aside.names("ls-files", "-u", "-z"):
        # Both sides of a conflict are in the parents; what the agent made of it is in the file.
        aside.out("read-tree", head or "--empty")
    # Not `add --update`: that runs a status of its own in every submodule, with whatever filters it names itself.
    known = aside.names("diff-files", "-z", "--name-only", "--no-renames")
    if known:
        aside.out("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=join_nul(known))
    new = [name for name in aside.names("ls-files", "--others", "--exclude-standard", "-z") if not name.endswith("/")]
    if new:
        aside.out("update-index", "--add", "--replace", "-z", "--stdin", stdin=join_nul(new))


def _find_extras(aside: Git, task: str, run: str, depth: int) -> _Extras:
    left_out: list[str] = []
    bundles: list[tuple[str, str]] = []
    linked: list[str] = []
    for name in aside.names("ls-files", "--others", "--exclude-standard", "-z"):
        if name.endswith("/"):
            nested = _nested_git(aside, name, depth)
            if git_dirs(nested)[1] == git_dirs(aside)[1]:
                # A work tree that the agent added here itself: the same repository can keep it.
                linked.append(_create_salvage(nested, task, f"{run}-nested", depth - 1))
            else:
                bundles.append((f"{BUNDLE_DIRECTORY}/{name[:-1]}.bundle", _bundle(aside, nested, depth)))
    room = MAX_IGNORED_SIZE
    ignored: list[str] = []
    rows = aside.names("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    for name in sorted(rows, key=lambda row: (row.endswith("/"), row)):
        files, size = _ignored_files(aside.directory, name, room)
        if files is None:
            left_out.append(name)
        else:
            ignored += files
            room -= size
    return _Extras(tuple(ignored), tuple(bundles), tuple(linked), tuple(left_out))


def _ignored_files(top: Path, name: str, room: int) -> tuple[list[str] | None, int]:
    """The files of an ignored name and their size; None where they are more than ``room`` or hold a repository."""
    if not name.endswith("/"):
        size = (top / name).lstat().st_size
        return ([name], size) if size <= room else (None, 0)
    found: list[str] = []
    total = 0
    for folder, folders, files in os.walk(top / name):
        links = [entry for entry in folders if (Path(folder) / entry).is_symlink()]
        for entry in [*files, *links]:
            path = Path(folder) / entry
            if path.is_symlink() or path.is_file():
                found.append(str(path.relative_to(top)))
                total += path.lstat().st_size
        if total > room or ".git" in folders or ".git" in files:
            return None, 0
    return found, total


def _nested_git(aside: Git, name: str, depth: int) -> Git:
    if depth == 0:
        raise GitFailed(f"{aside.directory / name} is a repository inside too many others to be saved")
    place = aside.directory / name.rstrip("/")
    return Git(place, aside.pins, aside.timeout, ceiling=place.parent)


def _bundle(aside: Git, nested: Git, depth: int) -> str:
    """A nested repository, its uncommitted files saved in it first, as the blob of a bundle."""
    _create_salvage(nested, "nested", "work", depth - 1)
    with tempfile.TemporaryDirectory(prefix="liza-bundle-") as folder:
        path = Path(folder) / "bundle"
        nested.out("bundle", "create", "--quiet", str(path), "--all")
        return aside.out("hash-object", "-w", "--no-filters", "--", str(path))


def _add_extras(aside: Git, extras: _Extras) -> None:
    if extras.ignored:
        aside.out("update-index", "--add", "--replace", "-z", "--stdin", stdin=join_nul(extras.ignored))
    if extras.bundles:
        rows = [f"100644 {blob}\t{path}" for path, blob in extras.bundles]
        aside.out("update-index", "--add", "-z", "--index-info", stdin=join_nul(rows))


def _extras_tree(git: Git, extras: _Extras) -> str:
    """A tree of nothing but the extras."""
    with tempfile.TemporaryDirectory(prefix="liza-salvage-") as folder:
        alone = git.with_environment(GIT_INDEX_FILE=str(Path(folder) / "index"))
        _add_extras(alone, extras)
        return alone.out("write-tree")


def _find_same_salvage(git: Git, ref: str, head: str | None, tree: str) -> str | None:
    """The salvage of this run that has this parent and this tree already."""
    rows = git.lines("for-each-ref", "--format=%(refname)%00%(tree)%00%(parent)", ref, f"{ref}+*")
    for row in rows:
        name, found, parents = row.split("\0")
        if found == tree and parents.split(" ")[0] == (head or ""):
            return name
    return None


def _create_ref(git: Git, ref: str, made: str) -> str:
    """Put a new ref on ``made``: an older salvage is never written over."""
    for number in range(1, 1000):
        name = ref if number == 1 else f"{ref}+{number}"
        if git.run("update-ref", name, made, "0" * len(made)).code == 0:
            return name
    raise GitFailed(f"{ref} could not be written", "git for-each-ref refs/liza/salvage")


def _message(task: str, run: str, extras: _Extras) -> str:
    lines = [f"Salvage of {task} after {run}", "", "What was not committed when its work tree was reset."]
    lines += [f"Nested repository as a bundle: {json.dumps(path)}" for path, _ in extras.bundles]
    lines += [f"Nested work tree, saved as {ref}" for ref in extras.worktree_salvages]
    lines += [f"Ignored, and too large to be saved: {json.dumps(name)}" for name in extras.omitted[:50]]
    if len(extras.omitted) > 50:
        lines.append(f"… and {len(extras.omitted) - 50} more ignored names")
    return "\n".join([*lines, "", f"Liza-Task: {task}", f"Liza-Run: {run}", ""])


def head_commit(git: Git) -> str | None:
    """The commit at HEAD; None before the first. Raises GitFailed."""
    done = git.run("rev-parse", "-q", "--verify", "HEAD^{commit}", codes=(0, 1))
    return done.stdout.decode().strip() or None


def _is_contained(git: Git, head: str, place: str) -> bool:
    """Whether ``head`` is in ``place``; not, where there is no such place: then it is saved."""
    return head == place or git.run("merge-base", "--is-ancestor", head, place, codes=(0, 1, 128)).code == 0


def join_nul(names: Sequence[str]) -> str:
    """``names`` as a git with ``-z --stdin`` reads them."""
    return "".join(f"{name}\0" for name in names)
