"""Sparse checkouts: what a worktree leaves out, and how a merge slot becomes full.

`git worktree add` copies the patterns of the person's sparse checkout to a new worktree. Only the patterns of the slot
are changed here: the configuration, which the person's checkout may share, is not.
"""

from __future__ import annotations

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import GitFailed
from liza.system import atomic

_ALL = b"/*\n"
"""A pattern file that includes every file, in cone mode too."""
_CONE_HEADER = ("/*", "!/*/")


def list_included(git: Git) -> tuple[str, ...]:
    """Return what a sparse checkout includes: directories in cone mode, else patterns. Empty if all is checked out.

    Raises GitFailed, OSError.
    """
    path = git_dirs(git)[0] / "info" / "sparse-checkout"
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return ()
    if not git.ok("config", "--type=bool", "--get", "core.sparseCheckout") or not list_absent(git):
        return ()
    patterns = [line for line in lines if line and not line.startswith("#")]
    if tuple(patterns[:2]) == _CONE_HEADER:
        excluded = {line.removeprefix("!").removesuffix("*/") for line in patterns if line.startswith("!")}
        cone = [line for line in patterns[2:] if not line.startswith("!") and line not in excluded]
        return tuple(line.strip("/") for line in cone) or (".",)
    return tuple(patterns)


def list_absent(git: Git) -> tuple[str, ...]:
    """Return the tracked files that a sparse checkout leaves out. Raises GitFailed."""
    return tuple(row[2:] for row in git.names("ls-files", "-t", "-z") if row.startswith("S "))


def make_full(git: Git) -> None:
    """Check out all files of a slot whose checkout is sparse. Does nothing else.

    Raises GitFailed, also if the remote of a partial clone cannot be reached, OSError.
    """
    path = git_dirs(git)[0] / "info" / "sparse-checkout"
    patterns = path.read_bytes() if path.is_file() else _ALL
    if patterns == _ALL:
        return
    absent = list_absent(git)
    atomic.write(path, _ALL, sync=False)
    if absent:
        # Patterns are read only if the setting is on. Patterns of directories and of files mean the same here.
        full = git.with_config(("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false"))
        try:
            full.with_timeout(1800).out("read-tree", "-m", "-u", "HEAD")
        except GitFailed as error:
            atomic.write(path, patterns, sync=False)
            raise GitFailed(f"there is no full checkout: {error.message}", "liza config set checkout sparse") from error


def count_missing_objects(git: Git, commit: str) -> int:
    """Return how many objects of a commit a partial clone has to fetch; 0 for a complete clone. Raises GitFailed."""
    if not git.ok("config", "--get-regexp", r"^remote\..*\.promisor$"):
        return 0
    words = ("rev-list", "--objects", "--no-walk", "--no-object-names", "--missing=print", commit)
    return sum(line.startswith("?") for line in git.with_timeout(600).lines(*words))
