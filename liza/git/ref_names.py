"""Names of branches: the branch at HEAD, a branch on a command line, and branches that exclude each other.

A tag, a file or a remote may have the name of a branch, so git is asked by the full name, ``refs/heads/…``. To git a
ref is a file or a directory of refs, not both: ``a`` and ``a/b`` exclude each other.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Collection
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


def symbolic_target(git: Git, ref: str) -> str | None:
    """Return the target of a symbolic ref, existing or not; None if ``ref`` is plain or missing. Raises GitFailed."""
    return git.run("symbolic-ref", "-q", ref, codes=(0, 1, 128)).stdout.decode().strip() or None


class RefValue(Value):
    """What a ref names. ``commit`` is None for a missing ref, ``target`` is None for a ref that is not symbolic."""

    commit: str | None
    target: str | None


def read_refs(git: Git, *refs: str) -> list[RefValue]:
    """Return the commit and the target of each of ``refs``, with one git if all of them exist. Raises GitFailed."""
    result = git.run("for-each-ref", "--format=%(refname) %(objecttype) %(objectname) %(symref)", *refs)
    rows = [row.split(" ") for row in result.stdout.decode("utf-8", "surrogateescape").splitlines()]
    commits = {
        ref: RefValue(commit, target or None)
        for ref, object_type, commit, target in (row for row in rows if len(row) == 4)
        if object_type == "commit" and result.code == 0
    }
    # Not listed: a missing ref, a symbolic ref whose target does not exist, a damaged ref, a tag.
    return [commits.get(ref) or RefValue(git.find_commit(ref), symbolic_target(git, ref)) for ref in refs]


def refuse_symbolic(git: Git, ref: str) -> None:
    """Raise Refused if ``ref`` is symbolic. Raises GitFailed."""
    target = symbolic_target(git, ref)
    if target is not None:
        raise Refused(describe_symbolic(ref, target), delete_command(ref))


def describe_symbolic(ref: str, target: str) -> str:
    """Return the message about a symbolic ref."""
    return f"{ref} is a symbolic ref to {target}, and liza does not follow it: a write to it would move {target}"


def delete_command(ref: str) -> str:
    """Return the command that deletes a symbolic ref and keeps its target."""
    return shlex.join(["git", "symbolic-ref", "--delete", ref])
