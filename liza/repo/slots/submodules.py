"""Empty the submodules of the slot in which candidates are tested. git's own commands keep changes in them.

No program that a submodule's own configuration names is run: git gets the repository and the worktree explicitly, and
the pins override the submodule's configuration as they do that of the project.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.git_dir_check import read_gitfile
from liza.repo.runner import COMMIT, Git

_SUBMODULE_MODE = "160000"


def empty(git: Git, options: Sequence[str] = ("-ffd",)) -> bool:
    """Reset every submodule, nested ones included, to the commit in the index and remove changed and untracked files.

    ``options`` are those of git-clean. Return False if the set-up must fetch a submodule again: its commit is missing,
    or its directory was not a submodule of this slot and was removed. Raises GitFailed, OSError.
    """
    own = git_dirs(git)[0].resolve()
    return _empty(git.with_timeout(600), own, options)


def _empty(git: Git, own: Path, options: Sequence[str]) -> bool:
    complete = True
    for name, commit in list_submodules(git):
        complete = _empty_submodule(git, own, git.directory / name, commit, options) and complete
    return complete


def list_submodules(git: Git) -> tuple[tuple[str, str], ...]:
    """Return the paths of the submodules in the index, fetched or not, each with its commit. Raises GitFailed."""
    rows = (row.partition("\t") for row in git.names("ls-files", "-s", "-z"))
    entries = ((name, *facts.split(" ")[:2]) for facts, _, name in rows)
    return tuple(
        (name, commit) for name, mode, commit in entries if mode == _SUBMODULE_MODE and COMMIT.fullmatch(commit)
    )


def _empty_submodule(git: Git, own: Path, path: Path, commit: str, options: Sequence[str]) -> bool:
    if not path.is_symlink() and (not path.exists() or (path.is_dir() and not any(path.iterdir()))):
        return True
    repository = find_repository(path, own)
    if repository is None or path.resolve() != git.directory.resolve() / path.relative_to(git.directory):
        _remove(git.directory, path)
        return False
    inner = git.with_git_dir(path, repository, repository)
    has_commit = inner.run("cat-file", "-e", f"{commit}^{{commit}}", codes=(0, 1, 128)).code == 0
    if has_commit:
        inner.out("checkout", "--quiet", "--force", "--detach", commit)
    inner.out("reset", "--hard", "--quiet")
    inner.out("clean", *options, "--quiet")
    return _empty(inner, own, options) and has_commit


def find_repository(path: Path, own: Path) -> Path | None:
    """Return the repository of a submodule if git created it for this slot, else None.

    An agent can put another repository there.
    """
    entry = path / ".git"
    if entry.is_symlink() or path.is_symlink():
        return None
    if entry.is_dir():
        return entry.resolve()
    git_dir = read_gitfile(entry)
    if git_dir is None:
        return None
    repository = git_dir.resolve()
    return repository if repository.is_relative_to(own / "modules") and repository.is_dir() else None


def _remove(top: Path, path: Path) -> None:
    """Replace a submodule's path by an empty directory, without following a link."""
    if path.parent.resolve() != top.resolve() / path.parent.relative_to(top):
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    else:
        shutil.rmtree(path)
    path.mkdir()
