"""Symbolic refs in place of branches that Liza moves, such as an alias `master` of `main`. They are refused."""

from __future__ import annotations

import shlex

from liza.git.runner import Git
from liza.model.errors import Refused
from liza.model.value_classes import Value


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
