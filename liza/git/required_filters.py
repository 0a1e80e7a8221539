"""Required filters of the project (git-crypt, git-lfs) that work in the person's checkout and fail in a worktree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.runner import Git, describe_filter, show_filter_command
from liza.model.value_classes import Value


class FailingFilter(Value):
    """Why a filter fails, and the command that shows its configuration. ``is_local``: a clone has no such filter."""

    reason: str
    show_command: str
    is_local: bool


def find_failing_filters(git: Git, commit: str) -> Iterator[FailingFilter]:
    """Yield the required filters that fail for a file of ``commit`` in a linked worktree.

    Each filter is run on one of its files, in a temporary worktree of which git has no record. Raises GitFailed,
    OSError.
    """
    query = ("config", "--show-scope", "--type=bool", "--get-regexp", r"^filter\..*\.required$")
    rows = [row.split() for row in git.run(*query, codes=(0, 1)).stdout.decode("utf-8", "replace").splitlines()]
    scopes = {key: scope for scope, key, value in (row for row in rows if len(row) == 3) if value == "true"}
    if not scopes:
        return
    common = git_dirs(git)[1]
    with tempfile.TemporaryDirectory(prefix="liza-") as directory:
        git_dir, worktree = Path(directory) / "git", Path(directory) / "tree"
        git_dir.mkdir()
        worktree.mkdir()
        (git_dir / "commondir").write_text(f"{common}\n")
        (git_dir / "HEAD").write_text(f"{commit}\n")
        linked = git.with_git_dir(worktree, git_dir, common)
        linked.out("read-tree", commit)
        for key, scope in scopes.items():
            name = key.removeprefix("filter.").removesuffix(".required")
            files = linked.names("ls-files", "-z", "--", f":(attr:filter={name})")
            # Check the file out, then read it back as `git status` and `git add` do.
            for words in (("checkout-index",), ("diff-files", "--shortstat")) if files else ():
                result = linked.run(*words, "--", files[0])
                if result.code != 0:
                    yield FailingFilter(describe_filter(name, result), show_filter_command(name), scope == "local")
                    break
