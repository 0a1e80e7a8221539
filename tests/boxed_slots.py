"""Slots whose sessions run in boxes: claim one, run commands in the box of its session, look at what came out."""

from __future__ import annotations

import os
import subprocess
from functools import cached_property
from pathlib import Path

from liza.box import slot_directories
from liza.box.box import Mount, MountKind
from liza.box.run_mounts import Surroundings, build_slot_box
from liza.box.support import find_program
from liza.box.surroundings import read_surroundings
from liza.git import hiding, run_git
from liza.git.runner import Git
from liza.git.worktrees import Worktrees
from liza.model.paths import BoxPaths, Paths
from tests.conftest import git


class BoxedSlots:
    """A repository with one slot, ``s1``, which the task ``t`` has."""

    def __init__(self, repo: Path, slots: Path | None = None, task: str = "t") -> None:
        self.repo, self.task = repo, task
        self.paths = Paths(repo, slots)
        self.slot = self.paths.slot("s1")
        self.own: BoxPaths = self.paths.box("s1")
        self.run_name = "coder-1.1"

    def prepare(self) -> BoxedSlots:
        """Create the branch integration and the directories of the crew, and claim the slot."""
        if not git(self.repo, "branch", "--list", "integration"):
            git(self.repo, "branch", "integration")
        self.paths.locks.mkdir(parents=True, exist_ok=True)
        hiding.ignore_liza_dirs(Git(self.repo))
        hiding.install_filter(Git(self.repo))
        self.claim(self.task, self.run_name)
        return self

    @cached_property
    def trees(self) -> Worktrees:
        plain = Git(self.repo).with_git_dir(self.repo, self.repo / ".git", self.repo / ".git")
        return Worktrees(self.paths, plain, find_surroundings=self.surroundings)

    def surroundings(self) -> Surroundings:
        program = find_program()
        assert program is not None
        return read_surroundings(program, self.paths, os.environ)

    def claim(self, task: str, run: str) -> None:
        self.trees.prepare("s1", task, run)
        self.trees.finish("s1", task, run)
        self.task, self.run_name = task, run

    def begin(self, run: str | None = None) -> None:
        """Make what the box of a session contains."""
        self.run_name = run or self.run_name
        slot_directories.prepare_directories(self.paths, "s1", Path.home())
        run_git.make_run_git(self.trees.slot_git("s1"), self.own, self.run_name, salvages_of=self.task)

    def inside(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the box of the session."""
        stores = run_git.find_stores(self.repo / ".git")
        shared = tuple(Mount(MountKind.READ_ONLY, store) for store in stores)
        box = build_slot_box(self.surroundings(), "s1", shared=shared)
        return subprocess.run(
            box.wrap(["bash", "-c", f"cd {self.slot.as_posix()!r} && {script}"]),
            capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def do(self, script: str) -> str:
        """Run a script in the box, which must succeed, and return its output."""
        done = self.inside(f"set -e; {script}")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def commit(self, name: str, text: str = "new\n") -> str:
        """Commit a file in the box and return the commit."""
        (self.slot / name).write_text(text)
        return self.do(f"git add -A && git commit -qm {name!r} && git rev-parse HEAD")

    def tip(self, branch: str | None = None) -> str:
        return git(self.repo, "rev-parse", f"refs/heads/{branch or f'task/{self.task}'}")

    def salvages(self) -> list[str]:
        return git(self.repo, "for-each-ref", "--format=%(refname)", "refs/liza/salvage").splitlines()
