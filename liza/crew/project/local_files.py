"""Local settings files such as ``.env``, which git ignores and which a new worktree therefore lacks."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Sequence

from liza.repo.runner import Git

_PATTERNS = (":(glob).env", ":(glob).env.*", ":(glob)*/.env", ":(glob)*/.env.*")
_NEVER_OFFERED = ("node_modules/*", ".venv/*", "venv/*")


def find_local_files(git: Git, copied: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the ignored ``.env`` files at the top and one directory below that no pattern of ``copied`` matches.

    Raises GitFailed.
    """
    names = git.names("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", *_PATTERNS)
    excluded = (*_NEVER_OFFERED, *copied)
    return tuple(sorted(name for name in names if not any(fnmatch.fnmatchcase(name, other) for other in excluded)))


def copy_options(names: Sequence[str]) -> str:
    """Return the options of ``liza init`` that copy these files into each worktree."""
    return " ".join(f"--copy {shlex.quote(name)}" for name in names)
