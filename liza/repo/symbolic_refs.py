"""Symbolic refs where plain refs belong. To write such a ref is to write the ref that it names, a person's branch."""

from __future__ import annotations

import os
import shlex
import zlib
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import Git
from liza.rules.errors import Refused

LIZA_REFS = ("refs/heads/task/", "refs/liza/")
"""Where only Liza, and agents on the branches of their tasks, write."""
_SYMBOLIC_PREFIX = b"ref:"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def symbolic_target(git: Git, ref: str) -> str | None:
    """The ref that ``ref`` names, there or not; None where it is a plain ref, or none. Raises GitFailed."""
    return git.run("symbolic-ref", "-q", ref, codes=(0, 1, 128)).stdout.decode().strip() or None


def refuse_symbolic(git: Git, ref: str) -> None:
    """Raises Refused where ``ref`` is symbolic, GitFailed."""
    named = symbolic_target(git, ref)
    if named is not None:
        raise Refused(describe_symbolic(ref, named), delete_command(ref))


def describe_symbolic(ref: str, named: str) -> str:
    """A sentence for people."""
    return f"{ref} is a symbolic ref to {named}, and liza follows none: what is written there would move {named}"


def delete_command(ref: str) -> str:
    """The command that removes a symbolic ref, and not what it names."""
    return shlex.join(["git", "symbolic-ref", "--delete", ref])


def plain_ref_command(ref: str, commit: str) -> str:
    """The command that has a plain ref at ``commit`` in place of a symbolic one."""
    return shlex.join(["git", "update-ref", "--no-deref", ref, commit[:12]])


def find_symbolic(git: Git, branch: str | None = None) -> dict[str, str]:
    """The symbolic refs among Liza's own refs, and at ``branch``, with the ref that each names. Raises GitFailed."""
    places = [*(one.rstrip("/") for one in LIZA_REFS), *([] if branch is None else [f"refs/heads/{branch}"])]
    rows = git.lines("for-each-ref", "--format=%(refname) %(symref)", *places)
    known = dict(row.split(" ", 1) for row in rows if not row.endswith(" "))
    # git lists none that leads nowhere.
    broken = {
        ref: named
        for ref in _loose_symbolic(git_dirs(git)[1], branch)
        if (named := symbolic_target(git, ref)) is not None
    }
    return dict(sorted({**broken, **known}.items()))


def stamp_symbolic(common: Path, branch: str) -> list[int]:
    """It changes when one comes or goes, and costs no git. Where refs are not files, their table has a stamp."""
    names = _loose_symbolic(common, branch)
    return [len(names), zlib.crc32("\n".join(names).encode("utf-8", "surrogateescape"))]


def _loose_symbolic(common: Path, branch: str | None) -> list[str]:
    """The symbolic refs that are files, as all are but in a table of refs."""
    places = [] if branch is None else [common / "refs" / "heads" / branch]
    for top in LIZA_REFS:
        places += [Path(place) / name for place, _, names in os.walk(common / top) for name in names]
    return sorted(str(place.relative_to(common)) for place in places if _is_symbolic(place))


def _is_symbolic(place: Path) -> bool:
    if place.suffix == ".lock":
        return False
    if place.is_symlink():
        return True
    try:
        with os.fdopen(os.open(place, _FLAGS), "rb") as ref:
            return ref.read(len(_SYMBOLIC_PREFIX)) == _SYMBOLIC_PREFIX
    except OSError:
        return False
