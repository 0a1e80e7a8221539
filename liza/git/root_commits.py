"""The root commits of a repository: they tell clones of it from other repositories."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from liza.git.runner import Git
from liza.model.errors import Refused


def read_root_commits(git: Git, revision: str = "HEAD") -> tuple[str, ...]:
    """Return the root commits of a revision, sorted. Raises Refused in a shallow clone, which lacks them, GitFailed."""
    if is_shallow(git):
        raise Refused("this clone is shallow: without its first commits it cannot be compared", unshallow_command(git))
    return tuple(sorted(git.lines("rev-list", "--max-parents=0", revision, "--")))


def find_missing_commits(git: Git, commits: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``commits`` that the repository lacks. Raises GitFailed."""
    return tuple(commit for commit in commits if git.find_commit(commit) is None)


def is_shallow(git: Git) -> bool:
    """Return whether the clone has only a part of the history. Raises GitFailed."""
    return git.out("rev-parse", "--is-shallow-repository") == "true"


def unshallow_command(git: Git) -> str:
    """Return the command that fetches the rest of the history."""
    remotes = git.lines("remote")
    return shlex.join(["git", "fetch", "--unshallow", *remotes[:1]])


def choose_remote(git: Git) -> str:
    """Return the remote through which the hosts of a crew exchange commits. Raises Refused without one, GitFailed."""
    remotes = git.lines("remote")
    if "origin" in remotes or len(remotes) == 1:
        return "origin" if "origin" in remotes else remotes[0]
    if remotes:
        names = ", ".join(remotes)
        raise Refused(
            f"the remotes are {names}, and none is origin: the hosts of a crew exchange commits through origin",
            shlex.join(["git", "remote", "rename", remotes[0], "origin"]),
        )
    text = "the repository has no remote: the hosts of a crew exchange commits through one"
    raise Refused(text, 'git remote add origin "…" && git push origin HEAD')
