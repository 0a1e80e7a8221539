"""Run git in a box where it reads what an agent wrote: the files of a slot, and the git directory of a run.

A repository below the slot, such as a submodule, has a configuration of its own, which may name a program. In the box
that program can change nothing but what the agent can change itself, and has neither a network nor Liza's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liza.confinement.box import Box
from liza.confinement.run_mounts import Surroundings, build_git_box
from liza.repo import run_git
from liza.repo.runner import Git
from liza.rules.value_classes import Value

_READING: Final = {"add", "check-attr", "check-ignore", "diff", "diff-files", "diff-index", "ls-files", "status"}
"""Commands that may run git in a repository below the slot. The others start no program that its files name, and some
need the person's network and credentials, such as a checkout of files of LFS."""
_ADDING: Final = {"add"}
_SAFE_VARIABLES: Final = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|XDG_CONFIG_HOME|GIT_.*|LIZA_FAULT.*")
_ENV: Final = "/usr/bin/env"


class SlotBox(Value):
    """Runs git of one slot. ``git_dir``: that of the slot, or of its run; in the latter every command is boxed.

    ``shown``: the directories of the repository that git reads.
    """

    around: Surroundings
    slot: str
    git_dir: Path
    shown: tuple[Path, ...]

    def wrap(self, git: Git, args: Sequence[str], argv: Sequence[str]) -> list[str]:
        """Return the command line for ``argv``, in a box if ``args`` may lead git into files of an agent."""
        worktree, own = self.around.paths.slot(self.slot), self.around.paths.box(self.slot)
        command = next((arg for arg in args if not arg.startswith("-")), "")
        if git.git_dir != self.git_dir:
            inner = (git.git_dir,) if git.git_dir is not None else ()
            return self._run((worktree, own.git, *inner), argv)
        if self.git_dir == own.git:
            return self._run((worktree, own.git), argv)
        if command not in _READING:
            return list(argv)
        common = git.common_dir or self.git_dir
        # Filters of LFS write there.
        stores = (common / "lfs", *((self.git_dir, common / "objects") if command in _ADDING else ()))
        return self._run(stores, argv)

    def _run(self, writable: Sequence[Path], argv: Sequence[str]) -> list[str]:
        existing = [path for path in writable if path.is_dir()]
        return wrap_without_secrets(build_git_box(self.around, self.slot, existing, self.shown), argv)


def make_reader(around: Surroundings, slot: str, common: Path) -> Box:
    """Return the box in which git reads the objects of a run: nothing can be written."""
    return build_git_box(around, slot, (), shown_directories(common))


def shown_directories(common: Path) -> tuple[Path, ...]:
    """Return the directories of a repository that a boxed git reads. Raises OSError."""
    return (common, *run_git.find_stores(common))


def wrap_without_secrets(box: Box, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs ``argv`` in a box, with the variables of the environment that git needs.

    The others are removed from bubblewrap, too: its environment can be read in the box.
    """
    removed = sorted(name for name in os.environ if not _SAFE_VARIABLES.fullmatch(name))
    return [_ENV, *(word for name in removed for word in ("-u", name)), *box.wrap(argv)]
