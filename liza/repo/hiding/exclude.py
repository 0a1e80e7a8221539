"""Exclude Liza's own directories from ``git status`` without changing a tracked file."""

from __future__ import annotations

from pathlib import Path

from liza.repo.config_pins import git_dirs
from liza.repo.hiding import marked_sections
from liza.repo.runner import Git
from liza.rules.paths import Paths

_SECTION = "crew"


def info_file(git: Git, name: str) -> Path:
    """Return the path of ``.git/info/<name>``. Creates its directory. Raises GitFailed."""
    directory = git_dirs(git)[1] / "info"
    directory.mkdir(exist_ok=True)
    return directory / name


def ignore_liza_dirs(git: Git, paths: Paths) -> None:
    """Ignore ``.liza`` in this clone, and the slots if they are in the repository. Idempotent. Raises GitFailed."""
    patterns = ("/.liza", "/.worktrees") if paths.slots.is_relative_to(paths.root) else ("/.liza",)
    marked_sections.write_section(info_file(git, "exclude"), _SECTION, patterns)


def unignore_liza_dirs(git: Git) -> None:
    """Undo ``ignore_liza_dirs``. Idempotent. Raises GitFailed."""
    marked_sections.remove_section(info_file(git, "exclude"), _SECTION)
