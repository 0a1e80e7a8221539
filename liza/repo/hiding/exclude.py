"""Exclude Liza's own directories from ``git status`` without changing a tracked file."""

from __future__ import annotations

from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.hiding import marked_sections
from liza.repo.runner import Git

_SECTION = "crew"
_PATTERNS = ("/.liza", "/.worktrees")


def info_file(git: Git, name: str) -> Path:
    """Return the path of ``.git/info/<name>``. Creates its directory. Raises GitFailed."""
    directory = git_dirs(git)[1] / "info"
    directory.mkdir(exist_ok=True)
    return directory / name


def ignore_liza_dirs(git: Git) -> None:
    """Ignore ``.liza`` and ``.worktrees`` in this clone. Idempotent. Raises GitFailed."""
    marked_sections.write_section(info_file(git, "exclude"), _SECTION, _PATTERNS)


def unignore_liza_dirs(git: Git) -> None:
    """Undo ``ignore_liza_dirs``. Idempotent. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "exclude"), _SECTION)
