"""Branch names that exclude the branches of tasks: to git a ref is a file or a directory of refs, not both."""

from __future__ import annotations

import shlex
from pathlib import Path

from liza.rules.errors import Refused


def ref_conflict_error(name: str, branch: str) -> Refused:
    """Return the error for a branch ``name`` that excludes the branch ``branch``."""
    new_name = f"{name.replace('/', '-')}-old"
    message = f"the branch {name} is in the way: git cannot have {branch} beside it"
    return Refused(message, shlex.join(["git", "branch", "-m", name, new_name]))


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
