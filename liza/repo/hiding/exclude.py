"""Keeping Liza's own directories out of a person's ``git status``, without a change to any file they track."""

from __future__ import annotations

from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.hiding import marked_sections
from liza.repo.runner import Git

_CREW = "crew"
_LINES = ("/.liza", "/.worktrees")


def info(git: Git, name: str) -> Path:
    """``.git/info/<name>`` of the repository, its directory made. Raises GitFailed."""
    place = git_dirs(git)[1] / "info"
    place.mkdir(exist_ok=True)
    return place / name


def keep_out(git: Git) -> None:
    """Have ``.liza`` and ``.worktrees`` ignored in this clone. Repeatable. Raises GitFailed."""
    marked_sections.put(info(git, "exclude"), _CREW, _LINES)


def let_in(git: Git) -> None:
    """Undo ``keep_out``. Repeatable. Raises GitFailed."""
    marked_sections.take_out(info(git, "exclude"), _CREW)
