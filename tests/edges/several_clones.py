"""A crew whose code goes through a bare remote, in two clones: its hosts. Both work on the board of the first."""

from __future__ import annotations

import shutil
from contextlib import chdir
from pathlib import Path

from liza.crew.crew import Crew, find_crew
from liza.landing.remotes import accept_origin
from liza.model.model import Task
from liza.model.value_classes import replace
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import git


class Host:
    """A clone of the project with its own slots; its crew has the board of the clone ``board``."""

    def __init__(self, root: Path, board: Path) -> None:
        self.root, self._board = root, board

    @property
    def crew(self) -> Crew:
        crew = replace(find_crew(self.root), remote_name="origin")
        vars(crew)["board"] = find_crew(self._board).board
        return crew

    def ref(self, name: str) -> str:
        """The commit of a branch, or of a ref with its full name, in this clone; empty without it."""
        return git(
            self.root, "for-each-ref", "--format=%(objectname)", name if name[:5] == "refs/" else f"refs/heads/{name}"
        )

    def add(self, *tasks: str) -> None:
        add(self.crew, [TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md") for task in tasks])

    def claim(self, task: str, agent: str) -> Path:
        claim(self.crew, agent, task)
        return self.crew.paths.slot(str(self.task(task).worktree))

    def work(self, task: str, agent: str, text: str = "") -> Path:
        """Claim a task and commit its file; its worktree."""
        there = self.claim(task, agent)
        self.commit(there, f"{task}.txt", text or f"{task}\n")
        return there

    def commit(self, there: Path, name: str, text: str) -> str:
        """Commit a file in a worktree; the commit."""
        (there / name).write_text(text)
        git(there, "add", "-A")
        git(there, "commit", "-q", "-m", f"work on {name}")
        return git(there, "rev-parse", "HEAD")

    def submit(self, there: Path) -> None:
        with chdir(there):
            submit(self.crew)

    def reject(self, task: str) -> None:
        verdict(self.crew, "reject", "not yet", task_id=task)

    def approve(self, *tasks: str) -> None:
        for task in tasks:
            verdict(self.crew, "approve", "fine", task_id=task)

    def task(self, name: str) -> Task:
        task = self.crew.board.read().task(name)
        assert task is not None
        return task


class Hosts:
    """Two hosts ``a`` and ``b`` of one crew, and their bare remote."""

    def __init__(self, made: Path, tmp_path: Path) -> None:
        self.remote = tmp_path / "remote.git"
        git(tmp_path, "clone", "-q", "--bare", str(made), str(self.remote))
        self.a, self.b = (Host(tmp_path / name, tmp_path / "a") for name in "ab")
        for host in (self.a, self.b):
            shutil.copytree(made, host.root, symlinks=True)
            git(host.root, "remote", "add", "origin", str(self.remote))
            accept_origin(host.crew, str(self.remote))

    def tip(self, name: str) -> str:
        """The commit of a branch, or of a ref with its full name, of the remote; empty without it."""
        return git(
            self.remote, "for-each-ref", "--format=%(objectname)", name if name[:5] == "refs/" else f"refs/heads/{name}"
        )

    def push(self, tmp_path: Path, branch: str, name: str) -> str:
        """A person pushes a commit on top of a branch of the remote; the commit."""
        there = tmp_path / f"person-{name}"
        git(tmp_path, "clone", "-q", "-b", branch, str(self.remote), str(there))
        (there / name).write_text(f"{name}\n")
        git(there, "add", "-A")
        git(there, "commit", "-q", "-m", f"a person writes {name}")
        git(there, "push", "-q", "origin", branch)
        return git(there, "rev-parse", "HEAD")
