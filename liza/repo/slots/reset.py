"""Emptying a work tree and putting it elsewhere. Who calls this has saved what was in it."""

from __future__ import annotations

import os
from pathlib import Path

from liza.repo.hiding import brief_filter
from liza.repo.runner import Git
from liza.repo.survey import find_operation

MAX_BRIEF_FILE = 1 << 23
"""Bytes of a file that may be one with a brief in it: what is larger is no instructions file, and is not read."""


def end_operations(git: Git, admin: Path) -> bool:
    """End a merge, rebase, am, cherry-pick or bisect where it stands; whether there was one. Raises GitFailed.

    A merge or cherry-pick ends with the ``wipe`` that has to follow.
    """
    found = find_operation(admin)
    if (admin / "rebase-apply" / "applying").exists():
        git.out("am", "--quit")
    elif found == "rebase" or (admin / "rebase-merge").exists() or (admin / "rebase-apply").exists():
        git.out("rebase", "--quit")
    for left in admin.glob("BISECT_*"):
        left.unlink(missing_ok=True)
    return found is not None


def strip_briefs(git: Git) -> bool:
    """Take the blocks of dead runs out of instructions files; whether there was one. Raises GitFailed, OSError."""
    stripped = [name for name in brief_filter.list_bound_files(git) if _strip_brief(git, name)]
    return bool(stripped)


def discard_changes(git: Git) -> None:
    """Have nothing but the files of HEAD and ignored ones: those make a used slot quicker than a new one.

    Raises GitFailed.
    """
    git.out("reset", "--hard", "--quiet")
    git.out("clean", "-ffd", "--quiet")


def is_only_brief(git: Git, name: str) -> bool:
    """Whether a file that git calls changed or untracked differs by a brief's block alone. Raises GitFailed."""
    path = git.directory / name
    if name.endswith("/") or path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    outside = brief_filter.strip_blocks(text)
    if outside == text:
        return False
    rows = git.names("--literal-pathspecs", "ls-files", "-s", "-z", "--", name)
    if not rows:
        return not outside.strip()
    stored = git.out("hash-object", f"--path={name}", "--stdin", stdin=outside)
    committed = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1)).stdout.decode().strip()
    return len(rows) == 1 and rows[0].split(" ")[1] == stored == committed


def _strip_brief(git: Git, name: str) -> bool:
    """Take a dead run's block out of an instructions file: through the filter, git sees nothing to reset there.

    Says whether there was one.
    """
    path = git.directory / name
    inside = path.resolve().is_relative_to(git.directory.resolve())
    if path.is_symlink() or not path.is_file() or not inside or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    outside = brief_filter.strip_blocks(text)
    if outside == text:
        return False
    if not outside and not brief_filter.is_tracked(git, name):
        path.unlink()
        return True
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(outside)
    aside.chmod(path.stat().st_mode & 0o777)
    aside.replace(path)
    return True
