"""Save the branches and stashes that a session made in its own git directory, before that is replaced."""

from __future__ import annotations

import re
from contextlib import suppress

from liza.git.git_config import git_dirs
from liza.git.run_refs import ImportRefused
from liza.git.runner import COMMIT, Git
from liza.git.slots.salvage import REFS_SUFFIX, SalvageTarget, keep_commit, salvage_ref
from liza.model.errors import GitFailed, NotRegularFile
from liza.system import untrusted_files

MAX_REFS = 50
"""Maximum number of commits that are saved in this way for one run."""
_MAX_LOG = 1 << 20
_STASH_LINE = re.compile(rb"(?m)^[0-9a-f]+ ([0-9a-f]+) ")


def salvage_refs(git: Git, task: str, run: str, target: SalvageTarget) -> None:
    """Save the commits at branches and stashes of ``git`` that the repository of ``target`` does not have.

    What a box has damaged is left out. Raises GitFailed.
    """
    own = set(target.git.lines("for-each-ref", "--format=%(objectname)"))
    missing = [name for name in _list_commits(git) if name not in own and not _is_reachable(target.git, name)]
    for name in missing[:MAX_REFS]:
        with suppress(ImportRefused):
            keep_commit(git, f"{salvage_ref(task, run)}{REFS_SUFFIX}", name, target)


def _list_commits(git: Git) -> list[str]:
    """Return the commits at branches, and those of all stashes: only the first of them has a ref."""
    names: list[str] = []
    with suppress(GitFailed):
        names += git.lines("for-each-ref", "--format=%(objectname)", "refs/heads", "refs/stash")
    with suppress(NotRegularFile, NotADirectoryError, PermissionError):
        log = untrusted_files.read_below(git_dirs(git)[0], "logs/refs/stash", _MAX_LOG) or b""
        names += (match[1].decode() for match in _STASH_LINE.finditer(log))
    return [name for name in dict.fromkeys(names) if COMMIT.fullmatch(name)]


def _is_reachable(git: Git, commit: str) -> bool:
    result = git.run("rev-list", "--max-count=1", commit, "--not", "--all")
    return result.code == 0 and not result.stdout
