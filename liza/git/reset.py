"""Empty a worktree and strip briefs from it. The caller has saved its content first."""

from __future__ import annotations

from pathlib import Path

from liza.git import hiding
from liza.git.runner import Git
from liza.git.survey import find_operation
from liza.system import atomic

MAX_BRIEF_FILE = 1 << 23
"""Maximum size of an instructions file, in bytes. A larger file is not read."""


def end_operations(git: Git, git_dir: Path) -> bool:
    """End a merge, rebase, am, cherry-pick, revert or bisect in progress. Return whether there was one.

    A merge, cherry-pick or revert ends only with the ``discard_changes`` that has to follow. Raises GitFailed.
    """
    operation = find_operation(git_dir)
    if (git_dir / "rebase-apply" / "applying").exists():
        git.out("am", "--quit")
    elif (git_dir / "rebase-merge").exists() or (git_dir / "rebase-apply").exists():
        git.out("rebase", "--quit")
    if (git_dir / "sequencer").exists():
        # `reset --hard` leaves a list of more than one commit, and git then switches to no branch.
        git.out("cherry-pick", "--quit")
    for path in git_dir.glob("BISECT_*"):
        path.unlink(missing_ok=True)
    return operation is not None


def strip_briefs(git: Git) -> bool:
    """Remove brief blocks from instructions files. Return whether there was one. Raises GitFailed, OSError."""
    stripped = [name for name in hiding.list_bound_files(git) if _strip_brief(git, name)]
    return bool(stripped)


def discard_changes(git: Git) -> None:
    """Reset to HEAD and remove untracked files. Ignored files stay: a reused slot is faster because of them.

    Raises GitFailed.
    """
    git.out("reset", "--hard", "--quiet")
    git.out("clean", "-ffd", "--quiet")


def is_only_brief(git: Git, name: str) -> bool:
    """Return whether a changed or untracked file differs only by a brief's block. Raises GitFailed."""
    path = git.directory / name
    if name.endswith("/") or path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    stripped = hiding.remove_blocks(git, text)
    if stripped == text:
        return False
    rows = git.names("--literal-pathspecs", "ls-files", "-s", "-z", "--", name)
    if not rows:
        return not stripped.strip()
    stored = git.out("hash-object", f"--path={name}", "--stdin", stdin=stripped)
    committed = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1)).stdout.decode().strip()
    return len(rows) == 1 and rows[0].split(" ")[1] == stored == committed


def _strip_brief(git: Git, name: str) -> bool:
    """Remove the block of a dead run from a file: the clean filter hides it, so git would not reset it.

    Return whether there was one.
    """
    path = git.directory / name
    is_inside = path.resolve().is_relative_to(git.directory.resolve())
    if path.is_symlink() or not path.is_file() or not is_inside or path.stat().st_size > MAX_BRIEF_FILE:
        return False
    text = path.read_bytes()
    stripped = hiding.remove_blocks(git, text)
    if stripped == text:
        return False
    if not stripped and not hiding.is_tracked(git, name):
        path.unlink()
        return True
    atomic.write(path, stripped, path.stat().st_mode & 0o777, sync=False)
    return True
