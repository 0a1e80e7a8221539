"""Run git in a box where it reads what an agent wrote: the files of a slot, and the git directory of a run.

A repository below the slot, such as a submodule, has a configuration of its own, which may name a program. In the box
that program can change nothing but what the agent can change itself, and has neither a network nor Liza's environment.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import Surroundings, build_git_box
from liza.git import run_git
from liza.git.hiding import FILTER_KEY
from liza.git.runner import Git
from liza.model.errors import GitFailed
from liza.model.value_classes import Value, replace

_READING: Final = {"check-attr", "check-ignore", "diff", "diff-files", "diff-index", "ls-files", "status"}
"""Commands that may run git in a repository below the slot. The others start no program but filters."""
_FILTERING: Final = {
    "add", "checkout", "checkout-index", "hash-object", "read-tree", "reset", "restore", "stash", "switch",
    "update-index",
}  # fmt: skip
"""Commands outside of a box that run filters. A filter may be a program of the worktree, such as ``./tools/clean``."""
_LFS: Final = re.compile(r"git[ -]lfs (clean|smudge|filter-process)( --skip)?( --)?( %f)?")
"""Filters that run no program of the worktree, and need the person's network and credentials."""
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
        if command in _READING:
            return self._read(git.common_dir or self.git_dir, argv)
        return [*argv[:1], *self._box_filters(git), *argv[1:]] if command in _FILTERING else list(argv)

    def _read(self, common: Path, argv: Sequence[str]) -> list[str]:
        """Run a command that changes nothing. What a filter of LFS stores for a comparison stays in the box."""
        box = build_git_box(self.around, self.slot, (), self.shown)
        stored, private = common / "lfs", self.around.paths.box(self.slot).tmp
        if stored.is_dir():
            mount = Mount(MountKind.WRITABLE, stored, private) if private.is_dir() else Mount(MountKind.EMPTY, stored)
            box = replace(box, mounts=(*box.mounts, mount))
        return wrap_without_secrets(box, argv)

    def _box_filters(self, git: Git) -> list[str]:
        pairs = list_boxed_filters(self.around, self.slot, git.with_box(None), self.shown)
        return [word for key, command in pairs for word in ("-c", f"{key}={command}")]

    def _run(self, writable: Sequence[Path], argv: Sequence[str]) -> list[str]:
        existing = [path for path in writable if path.is_dir()]
        return wrap_without_secrets(build_git_box(self.around, self.slot, existing, self.shown), argv)


def list_boxed_filters(
    around: Surroundings, slot: str, git: Git, shown: tuple[Path, ...]
) -> tuple[tuple[str, str], ...]:
    """Return settings of git with which each configured filter runs in a box of the slot that can write nothing.

    ``git`` runs in no box. Raises GitFailed.
    """
    words = ("config", "--null", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$")
    rows = git.run(*words, codes=(0, 1)).stdout.decode("utf-8", "surrogateescape").split("\0")
    settings = {key: command for key, _, command in (row.partition("\n") for row in rows) if command}
    worktree = around.paths.slot(slot)
    box = build_git_box(around, slot, (), shown)
    if not worktree.is_dir():  # git makes it before it runs a filter.
        box = replace(box, mounts=(*box.mounts, Mount(MountKind.READ_ONLY, worktree)))
    box = replace(box, directory=worktree)
    return tuple(
        (key, _box_filter(key, command, box))
        for key, command in settings.items()
        if key != FILTER_KEY and not _LFS.fullmatch(command)
    )


def _box_filter(key: str, command: str, box: Box) -> str:
    if "=" in key:
        raise GitFailed(f"{key} has a name with =, so git cannot run it in a box", f"git config --unset {key}")
    # Git replaces %f by the quoted name of the file. The shell in the box gets that name as its first argument.
    is_process = key.endswith(".process")
    script = command if is_process else command.replace("%f", '"$1"')
    boxed = shlex.join(wrap_without_secrets(box, ["/bin/sh", "-c", script, "sh"]))
    return boxed if is_process else f"{boxed.replace('%', '%%')} %f"


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
