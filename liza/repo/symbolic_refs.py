"""Symbolic refs where plain refs are expected. A write to such a ref changes the ref that it points to: a person's
branch.
"""

from __future__ import annotations

import os
import shlex
import zlib
from pathlib import Path

from liza.repo.git_config import git_dirs
from liza.repo.runner import Git
from liza.rules.errors import NotRegularFile, Refused
from liza.rules.value_classes import Value
from liza.system import untrusted_files

LIZA_REFS = ("refs/heads/task/", "refs/liza/")
"""Prefixes of the refs that only Liza, and agents on their task branches, write."""
_SYMBOLIC_PREFIX = b"ref:"


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


def plain_ref_command(ref: str, commit: str) -> str:
    """Return the command that replaces a symbolic ref by a plain ref at ``commit``."""
    return shlex.join(["git", "update-ref", "--no-deref", ref, commit[:12]])


def find_symbolic(git: Git, branch: str | None = None) -> dict[str, str]:
    """Return the symbolic refs among Liza's refs and at ``branch``, each with its target. Raises GitFailed."""
    prefixes = [*(prefix.rstrip("/") for prefix in LIZA_REFS), *([] if branch is None else [f"refs/heads/{branch}"])]
    rows = git.lines("for-each-ref", "--format=%(refname) %(symref)", *prefixes)
    resolved = dict(row.split(" ", 1) for row in rows if not row.endswith(" "))
    # for-each-ref does not list a symbolic ref whose target does not exist.
    broken = {
        ref: target
        for ref in _loose_symbolic(git_dirs(git)[1], branch)
        if (target := symbolic_target(git, ref)) is not None
    }
    return dict(sorted({**broken, **resolved}.items()))


def stamp_symbolic(common: Path, branch: str) -> list[int]:
    """Return a stamp that changes when a symbolic ref is added or removed. Runs no git.

    It covers refs in files only. In a reftable repository the stamp of the table does it.
    """
    names = _loose_symbolic(common, branch)
    return [len(names), zlib.crc32("\n".join(names).encode("utf-8", "surrogateescape"))]


def _loose_symbolic(common: Path, branch: str | None) -> list[str]:
    """Return the symbolic refs that are files."""
    paths = [] if branch is None else [common / "refs" / "heads" / branch]
    for top in LIZA_REFS:
        paths += [Path(path) / name for path, _, names in os.walk(common / top) for name in names]
    return sorted(str(path.relative_to(common)) for path in paths if _is_symbolic(path))


def _is_symbolic(path: Path) -> bool:
    if path.suffix == ".lock":
        return False
    if path.is_symlink():
        return True
    try:
        with untrusted_files.open_to_read(path) as ref:
            return ref.read(len(_SYMBOLIC_PREFIX)) == _SYMBOLIC_PREFIX
    except (OSError, NotRegularFile):
        return False
