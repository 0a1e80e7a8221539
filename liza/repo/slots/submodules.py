"""Emptying the submodules of the slot in which candidates are tested. git's own commands leave a changed one as it is.

Nothing that a submodule's own configuration names runs: git is told which directory is its repository and which its
work tree, and the pins lie over its configuration as over that of the project.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.runner import COMMIT, Git

_LINK = "160000"
_LONGEST_PATH = 4096 + 16


def empty(git: Git, options: Sequence[str] = ("-ffd",)) -> bool:
    """Have each submodule, nested ones too, at the commit that the index names, with no changed or untracked file.

    ``options`` are those of git-clean. False where the set-up has to fetch one again: its commit is not there, or what
    stood in its place was no submodule of this slot and was removed. Raises GitFailed, OSError.
    """
    own = git_dirs(git)[0].resolve()
    return _empty(git.with_timeout(600), own, options)


def _empty(git: Git, own: Path, options: Sequence[str]) -> bool:
    whole = True
    for row in git.names("ls-files", "-s", "-z"):
        facts, _, name = row.partition("\t")
        mode, commit, _ = facts.split(" ")
        if mode == _LINK and COMMIT.fullmatch(commit):
            whole = _one(git, own, git.directory / name, commit, options) and whole
    return whole


def _one(git: Git, own: Path, place: Path, commit: str, options: Sequence[str]) -> bool:
    if not place.is_symlink() and (not place.exists() or (place.is_dir() and not any(place.iterdir()))):
        return True
    repository = _repository(place, own)
    if repository is None or place.resolve() != git.directory.resolve() / place.relative_to(git.directory):
        _remove(git.directory, place)
        return False
    inner = git.with_git_dir(place, repository, repository)
    there = inner.run("cat-file", "-e", f"{commit}^{{commit}}", codes=(0, 1, 128)).code == 0
    if there:
        inner.out("checkout", "--quiet", "--force", "--detach", commit)
    inner.out("reset", "--hard", "--quiet")
    inner.out("clean", *options, "--quiet")
    return _empty(inner, own, options) and there


def _repository(place: Path, own: Path) -> Path | None:
    """The repository of a submodule, if it is one that git made for this slot; else it may be anybody's."""
    entry = place / ".git"
    if entry.is_symlink() or place.is_symlink():
        return None
    if entry.is_dir():
        return entry.resolve()
    if not entry.is_file() or entry.stat().st_size > _LONGEST_PATH:
        return None
    named = entry.read_text(errors="surrogateescape").removeprefix("gitdir: ").rstrip("\n")
    found = (place / named).resolve()
    return found if found.is_relative_to(own / "modules") and found.is_dir() else None


def _remove(top: Path, place: Path) -> None:
    """Leave an empty directory in the place of a submodule; nothing through a link."""
    if place.parent.resolve() != top.resolve() / place.parent.relative_to(top):
        return
    if place.is_symlink() or not place.is_dir():
        place.unlink()
    else:
        shutil.rmtree(place)
    place.mkdir()
