"""A crew whose code goes through a bare remote, in two clones: its hosts. Both work on the board of the first."""

from __future__ import annotations

import shutil
from contextlib import chdir
from datetime import UTC, datetime
from pathlib import Path

from liza.crew.crew import Crew, find_crew
from liza.git.rules.publications import TERM_REF, Publication, parse_publication
from liza.landing.remotes import accept_origin
from liza.merging.merge import merge
from liza.model.errors import LizaError
from liza.model.model import Task
from liza.model.value_classes import Value, replace
from liza.tasks.claim import claim
from liza.tasks.rules import claims
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import commit_all, git


class Term(Value):
    """The duty to merge of a host, as a board would say it."""

    host: str
    number: int
    held: bool = True
    is_newest: bool = False
    """Whether the board gives this host the duty, also if the remote knows a newer term."""

    def is_held(self) -> bool:
        return self.held

    def raised_above(self, number: int) -> Term | None:
        return Term(self.host, number + 1) if self.is_newest else None


class Host:
    """A clone of the project with its own slots; its crew has the board of the clone ``board``."""

    def __init__(self, root: Path, board: Path) -> None:
        self.root, self._board = root, board
        self.term: Term | None = None

    @property
    def crew(self) -> Crew:
        crew = replace(find_crew(self.root), host=self.root.name, remote_name="origin", merge_term=self.term)
        vars(crew)["board"] = find_crew(self._board).board
        return crew

    def ref(self, name: str) -> str:
        """The commit of a branch, or of a ref with its full name, in this clone; empty without it."""
        return git(
            self.root, "for-each-ref", "--format=%(objectname)", name if name[:5] == "refs/" else f"refs/heads/{name}"
        )

    def add(self, *tasks: str, epic: str | None = None) -> None:
        add(
            self.crew,
            [TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md", epic=epic) for task in tasks],
        )

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
        return commit_all(there, f"work on {name}", {name: text})

    def submit(self, there: Path) -> None:
        with chdir(there):
            submit(self.crew)

    def approved(self, *tasks: str, epic: str | None = None) -> None:
        """Tasks with their own files, submitted and approved on this host."""
        self.add(*tasks, epic=epic)
        for number, task in enumerate(tasks):
            self.submit(self.work(task, f"coder-{number + 1}"))
        self.approve(*tasks)

    def leads(self, number: int) -> Host:
        """Give this host the duty to merge, with a number."""
        self.term = Term(self.root.name, number)
        return self

    def merge(self, task: str | None = None) -> str:
        """``liza merge``; what it failed with, or nothing."""
        try:
            merge(self.crew, task)
        except LizaError as error:
            return error.message
        return ""

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
            git(host.root, "remote", "add", "origin", "nowhere")
        self.use_address(str(self.remote))
        self.check = tmp_path / "check"
        self.tests("exit 0")
        self.configure(integration_command=f"sh {self.check}", restart_after_crash=30.0)

    def use_address(self, url: str) -> None:
        """Let both hosts reach the remote at an address, which a person accepts."""
        for host in (self.a, self.b):
            git(host.root, "remote", "set-url", "origin", url)
            accept_origin(host.crew, url)

    def tests(self, script: str) -> None:
        """What the tests of the project do from now on."""
        self.check.write_text(f"{script}\n")

    def configure(self, **settings: object) -> None:
        with find_crew(self.a.root).change("human:test", "edit") as tx:
            tx.state = replace(tx.state, config=replace(tx.state.config, **settings))  # type: ignore[arg-type]

    def publications(self) -> list[Publication]:
        """What the remote says that mergers published, the oldest first."""
        if not self.tip(TERM_REF):
            return []
        messages = git(self.remote, "log", "--reverse", "--first-parent", "--format=%B%x00", TERM_REF).split("\0")
        return [each for each in map(parse_publication, messages) if each is not None]

    def check_remote(self) -> None:
        """The remote has exactly the approved and tested commits, in the order of the journal."""
        crew = find_crew(self.a.root)
        tasks = {task.id: task for task in crew.board.read().tasks if task.merge_commit is not None}
        published = [each for each in self.publications() if each.commit]
        assert [record.task for record in reversed(list(crew.board.records())) if record.event == "merge"] == [
            each.tasks[0] for each in published
        ]
        chain = git(self.remote, "log", "--reverse", "--first-parent", "--format=%H", "main..integration").split()
        assert [tasks[name].merge_commit for each in published for name in each.tasks] == chain
        assert sorted(tasks) == sorted(name for each in published for name in each.tasks)
        assert [each.commit for each in published] == [tasks[each.tasks[-1]].merge_commit for each in published]
        for task in tasks.values():
            assert task.tested is not None
            assert git(self.remote, "rev-parse", f"{task.merge_commit}^2") == task.review_commit

    def take_over(self, task: str) -> None:
        """The lease of a task of host a ends, and host b claims it."""
        with find_crew(self.a.root).change("human:test", "edit") as tx:
            state = tx.state.task(task)
            assert state is not None
            tx.state = claims.release(tx.state, task, str(state.run), datetime.now(UTC), "human:test")
        self.b.claim(task, "coder-2")

    def tip(self, name: str) -> str:
        """The commit of a branch, or of a ref with its full name, of the remote; empty without it."""
        return git(
            self.remote, "for-each-ref", "--format=%(objectname)", name if name[:5] == "refs/" else f"refs/heads/{name}"
        )

    def push(self, tmp_path: Path, branch: str, name: str) -> str:
        """A person pushes a commit on top of a branch of the remote; the commit."""
        there = tmp_path / f"person-{name}"
        tmp_path.mkdir(exist_ok=True)
        git(tmp_path, "clone", "-q", "-b", branch, str(self.remote), str(there))
        commit_all(there, f"a person writes {name}", {name: f"{name}\n"})
        git(there, "push", "-q", "origin", branch)
        return git(there, "rev-parse", "HEAD")
