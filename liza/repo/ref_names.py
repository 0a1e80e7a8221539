"""Branches whose names keep git from having those of tasks: to git a ref is a file, or a directory of refs."""

from __future__ import annotations

import shlex
from pathlib import Path

from liza.rules.errors import Refused


def ref_conflict_error(name: str, branch: str) -> Refused:
    """The refusal where the branch ``name`` keeps git from having the branch ``branch``."""
    other = f"{name.replace('/', '-')}-old"
    text = f"the branch {name} is in the way: git cannot have {branch} beside it"
    return Refused(text, shlex.join(["git", "branch", "-m", name, other]))


def has_branch_named_task(common: Path) -> bool:
    """Whether there is a branch called ``task``, without asking git: for whoever looks often. Raises OSError."""
    place = common / "refs" / "heads" / "task"
    if place.is_dir() and any(place.iterdir()):
        return False
    if place.is_file():
        return True
    try:
        return b" refs/heads/task\n" in (common / "packed-refs").read_bytes()
    except FileNotFoundError:
        return False
