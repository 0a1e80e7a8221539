"""Keeping Liza's own directories out of a person's ``git status``, without a change to any file they track."""

from __future__ import annotations

from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.hiding import marked_sections
from liza.repo.runner import Git

_SECTION = "crew"
_PATTERNS = ("/.liza", "/.worktrees")


def info_file(git: Git, name: str) -> Path:
    """``.git/info/<name>`` of the repository, its directory made. Raises GitFailed."""
    place = git_dirs(git)[1] / "info"
    place.mkdir(exist_ok=True)
    return place / name


def ignore_liza_dirs(git: Git) -> None:
    """Have ``.liza`` and ``.worktrees`` ignored in this clone. Repeatable. Raises GitFailed."""
    marked_sections.write_section(info_file(git, "exclude"), _SECTION, _PATTERNS)


def unignore_liza_dirs(git: Git) -> None:
    """Undo ``keep_out``. Repeatable. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "exclude"), _SECTION)
