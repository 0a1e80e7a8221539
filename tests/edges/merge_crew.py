"""A crew whose tasks are approved in a moment, for tests of merges; what its test command is to do is a script."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from liza.alarms.current_alarms import find_alarms
from liza.crew.crew import Crew, find_crew
from liza.merging.merge import merge
from liza.model.errors import LizaError
from liza.model.model import Task
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.tasks.claim import claim
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import GIT_CONFIG, commit_all, git


@contextmanager
def prepared(
    factory: pytest.TempPathFactory,
    ignored: str = "",
    goal: str = "Everything is there",
    files: Mapping[str, str] | None = None,
) -> Iterator[Path]:
    """The root of a repository with a crew, for a fixture of a module: it has its own HOME and git configuration,
    for those of a test come later. ``ignored`` is the project's ``.gitignore``; ``files``: more of its files."""
    root, home = factory.mktemp("made") / "repo", factory.mktemp("home")
    (home / ".gitconfig").write_text(GIT_CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LIZA_", "GIT_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        (root / "README.md").write_text("# A project\n")
        for name, text in {".gitignore": ignored, **(files or {})}.items():
            (root / name).write_text(text)
        commit_all(root, "first")
        init(root, InitOptions(goal=goal, no_test=True))
        yield root


class Merges:
    """A crew, its root, and the script ``check`` outside of the repository that stands for the project's tests."""

    def __init__(self, root: Path, notes: Path) -> None:
        self.root, self.check = root, notes / "check"
        self.tests("exit 0")
        self.configure(integration_command=f"sh {self.check}", restart_after_crash=30.0)

    @property
    def crew(self) -> Crew:
        return find_crew(self.root)

    def configure(self, **settings: object) -> None:
        with self.crew.change("human:test", "edit") as tx:
            tx.state = replace(tx.state, config=replace(tx.state.config, **settings))

    def tests(self, script: str) -> None:
        """What the tests do from now on; HERE is the project, and they run in the merger's slot."""
        self.check.write_text(f'HERE="{self.root}"\n{script}\n')

    def claimed(self, task: str, agent: str = "coder-1", target: str | None = None) -> Path:
        """A task with its file committed on its branch; its worktree."""
        add(self.crew, [TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md", target=target)])
        return self.worked(task, agent)

    def worked(self, task: str, agent: str = "coder-1", file: str = "", text: str = "") -> Path:
        """A task of the board with a file committed on its branch; its worktree."""
        claim(self.crew, agent, task)
        there = self.crew.paths.task_link(task).resolve()
        commit_all(there, f"work on {task}", {file or f"{task}.txt": text or f"{task}\n"})
        return there

    def approve(self, task: str, there: Path) -> None:
        """Submit what is committed in the worktree of the task, and approve it."""
        self.submitted(there)
        verdict(self.crew, "approve", "fine", task_id=task)

    def submitted(self, there: Path) -> None:
        with chdir(there):
            submit(self.crew)

    def approved(self, *tasks: str, work: Callable[[Path], None] | None = None, target: str | None = None) -> Path:
        """Approved tasks; the worktree of the last one. ``work`` is done there before it is submitted."""
        there = self.root
        for number, task in enumerate(tasks):
            there = self.claimed(task, f"coder-{number + 1}", target)
            if work is not None:
                work(there)
            self.approve(task, there)
        return there

    def merge(self, task: str | None = None) -> str:
        """``liza merge``; what it failed with, or nothing."""
        try:
            merge(self.crew, task)
        except LizaError as error:
            return error.message
        return ""

    def task(self, name: str) -> Task:
        found = self.crew.board.read().task(name)
        assert found is not None
        return found

    def files(self, branch: str = "integration") -> set[str]:
        """The files of a branch beside those that the project had."""
        return set(git(self.root, "ls-tree", "--name-only", branch).split()) - {"README.md", ".gitignore"}

    def status(self, name: str) -> str:
        return self.task(name).status.value

    def failure(self, name: str) -> str:
        """What the history says of the last merge that failed."""
        return next((one.detail or "" for one in reversed(self.task(name).history) if one.event == "merge failed"), "")

    def alarms(self) -> dict[str, str]:
        """What `status`, `watch` and the alerts show: kind to message."""
        state = self.crew.board.read()
        found = find_alarms(self.crew, state, gather_evidence(self.crew, state))
        return {one.kind: f"{one.message} → {one.next}" for one in found}

    def alerts(self) -> str:
        place = self.crew.paths.alerts
        return place.read_text() if place.exists() else ""

    def tip(self, name: str = "integration") -> str:
        return git(self.root, "rev-parse", name)

    def clone_is_green(self, at: Path) -> bool:
        """Whether the tests pass on a clean clone of integration."""
        import subprocess

        git(at.parent, "clone", "-q", "-b", "integration", str(self.root), str(at))
        return subprocess.run(["sh", str(self.check)], cwd=at, check=False).returncode == 0


MergesT = TypeVar("MergesT", bound=Merges)


def copied(made: Path, tmp_path: Path, kind: type[MergesT] = Merges) -> MergesT:
    """The crew of a test: a copy of the repository that ``prepared`` made for the module."""
    shutil.copytree(made, tmp_path / "repo", symlinks=True)
    (tmp_path / "notes").mkdir()
    return kind(tmp_path / "repo", tmp_path / "notes")
