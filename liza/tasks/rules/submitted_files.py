"""Which files of a submission are outside the scope of its task, and which are no work at all. Pure.

A virtual environment, installed packages, and what the set-up left come into a commit by `git add .`. They would be
merged and published with the work.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from liza.model.value_classes import Value
from liza.tasks.rules.routing import scope_areas
from liza.text.counts import count_noun

MAX_NEW_FILES = 1000
"""A directory that the target branch does not have may get so many files more than the commit deletes elsewhere."""
_PACKAGE_DIRECTORIES = ("node_modules", "site-packages", "bower_components", "conda-meta")
_ENVIRONMENT_NAMES = (".venv", "venv", "env", "node_modules", "site-packages")
_MAX_DIRECTORIES = 5  # directories that the output of `submit` names


class SubmittedFiles(Value):
    """Files of a submission against its target branch.

    ``changed``: names of all; ``added``: new ones; ``deleted``: number of deleted ones. ``directories``: the
    directories that hold a tracked file on the target. ``hidden``: untracked names that git ignores in this worktree,
    because the set-up left or copied them; a directory ends with a slash. ``repositories``: new repositories inside
    the worktree, of which the commit has only the id of a commit, and that ``.gitmodules`` does not name. ``briefs``:
    new files that are empty, because they held only the brief of a session.
    """

    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    deleted: int = 0
    directories: frozenset[str] = frozenset()
    hidden: tuple[str, ...] = ()
    repositories: tuple[str, ...] = ()
    briefs: tuple[str, ...] = ()


class NoWork(Value):
    """A path of a submission that is no work of its task: ``reason`` says what it is, ``count`` how many files.

    ``is_hidden``: git ignores it in this worktree already. ``is_repository``: it is one of ``repositories``.
    """

    path: str
    reason: str
    count: int
    is_hidden: bool = False
    is_repository: bool = False

    def describe(self) -> str:
        """Return the message of the refusal."""
        return (
            f"the commit adds {self.path} ({count_noun(self.count, 'file')}): {self.reason}. If it belongs to the "
            "task, a person names it in the scope of the task: liza edit"
        )

    @property
    def hint(self) -> str:
        """Return the command that takes the path out of the commit and leaves the files where they are.

        A repository becomes a plain directory: its files come into the commit.
        """
        path = shlex.quote(self.path)
        steps = [f"git rm -r -q --cached -- {path}"]
        if self.is_repository:
            steps += [f'mv -- {path}/.git "$(mktemp -d)"', f"git add -- {path}"]
        elif not self.is_hidden:
            steps += [ignore_command(self.path)]
        return " && ".join((*steps, "git commit -q --amend --no-edit", "liza submit"))


def ignore_command(directory: str) -> str:
    """Return the command that makes git ignore a directory in this worktree, without a change of a tracked file."""
    return f"echo '*' > {shlex.quote(directory)}/.gitignore"


def find_untracked_environment(dirty: Iterable[str]) -> str | None:
    """Return the first of these untracked directories whose name says that a tool fills it with packages, or None."""
    names = (name.rstrip("/") for name in dirty if name.endswith("/"))
    return next((name for name in names if PurePosixPath(name).name in _ENVIRONMENT_NAMES), None)


def needs_directories(files: SubmittedFiles) -> bool:
    """Return whether ``find_no_work`` needs the directories of the target branch: most submissions add few files."""
    return len(files.added) > MAX_NEW_FILES or any(True for _ in _environments(files.added))


def find_no_work(files: SubmittedFiles, scope: str) -> NoWork | None:
    """Return what the submission must not add, or None. What the scope of the task names is allowed."""
    for path, reason in _candidates(files):
        count = sum(name == path or name.startswith(f"{path}/") for name in files.added)
        if not _is_named(path, scope):
            is_hidden = path in (*files.hidden, *files.briefs) or f"{path}/" in files.hidden
            return NoWork(path, reason, count, is_hidden, path in files.repositories)
    return None


def _candidates(files: SubmittedFiles) -> Iterator[tuple[str, str]]:
    for path in files.briefs:
        yield path, "it is empty: on the disk it has only the brief of the session, which git does not see"
    for path in files.repositories:
        yield path, "it is a git repository of its own, and the commit has no file of it. No .gitmodules names it"
    for name in files.hidden:
        path = name.rstrip("/")
        if any(other == path or other.startswith(f"{path}/") for other in files.added):
            yield path, "the set-up of the worktree left it"
    for path in _environments(files.added):
        if path not in files.directories:
            yield path, "it is a virtual environment or a directory of installed packages"
    for path, count in _count(_new_top(name, files.directories) for name in files.added).items():
        if path and count - files.deleted > MAX_NEW_FILES:
            yield path, f"it is new, with more than {MAX_NEW_FILES} files"


def _count(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, most first. ``collections.Counter`` would load another module for that."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _environments(added: Iterable[str]) -> Iterator[str]:
    """Yield the directories among the new files that tools fill with packages, each once."""
    names = [(name, PurePosixPath(name)) for name in added if re.search(r"pyvenv\.cfg$|" + _PACKAGES, name)]
    roots = {str(path.parent) for _, path in names if path.name == "pyvenv.cfg"} - {"."}
    for _, path in names:
        number = next((index for index, part in enumerate(path.parts[:-1]) if part in _PACKAGE_DIRECTORIES), None)
        if number is not None and not any(str(path).startswith(f"{root}/") for root in roots):
            roots.add("/".join(path.parts[: number + 1]))
    yield from sorted(roots)


_PACKAGES = "|".join(f"(^|/){name}/" for name in _PACKAGE_DIRECTORIES)


def _new_top(name: str, directories: frozenset[str]) -> str:
    """Return the highest directory of a new file that the target branch does not have; empty if it has all."""
    parents = [str(parent) for parent in PurePosixPath(name).parents][:-1]
    return next((parent for parent in reversed(parents) if parent not in directories), "")


def _is_named(path: str, scope: str) -> bool:
    """Return whether the scope names ``path`` or something in it. A directory above it is not enough."""
    return any(area == path or area.startswith(f"{path}/") for area in _named_paths(scope))


def _named_paths(scope: str) -> frozenset[str]:
    """Return the paths that a scope names, and its other words: ``Makefile`` may be one."""
    words = (word.strip("`'\"():,;").rstrip("/") for word in scope.split())
    return scope_areas(scope) | frozenset(word for word in words if word)


def count_outside(files: SubmittedFiles, scope: str) -> dict[str, int]:
    """Return how many changed files are outside the scope, by their directory at the top, most first.

    A file at the top is its own entry. A scope without a path says nothing about files: then the result is empty.
    """
    if not scope_areas(scope):
        return {}
    areas = _named_paths(scope)
    outside = [name for name in files.changed if not any(name == area or name.startswith(f"{area}/") for area in areas)]
    return _count(f"{name.split('/', 1)[0]}/" if "/" in name else name for name in outside)


def describe_outside(counts: dict[str, int]) -> str:
    """Describe the files outside the scope in one line, or return an empty text."""
    if not counts:
        return ""
    shown = [f"{name} {count}" for name, count in list(counts.items())[:_MAX_DIRECTORIES]]
    more = len(counts) - len(shown)
    text = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return f"outside the scope: {count_noun(sum(counts.values()), 'file')} ({text})"
