"""Two hosts of a crew with real agents: one writes, the other reviews, and the code goes through the bare remote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from liza.crew.crew import Crew as LizaCrew
from liza.crew.crew import find_crew
from liza.git.rules.publications import TERM_REF, Publication, parse_publication
from liza.model.model import State
from liza.system.locks import Lock, find_holder
from tests.conftest import git, make_remote, until
from tests.journeys.crews import APPROVE, BIN, QUICK, WORK, Crew
from tests.postgresql import PostgreSQL


class Clone(Crew):
    """A clone of the project that is a host of the crew."""

    def tell(self, *words: str | Path) -> Any:
        """What a command answers with --json."""
        return json.loads(self.liza(*words, "--json"))

    @cached_property
    def opened(self) -> LizaCrew:
        """The crew as this process opens it; its connection is kept."""
        return find_crew(self.root)

    def state(self) -> State:
        return self.opened.board.read()

    def statuses(self) -> dict[str, str]:
        return {task.id: task.status.value for task in self.state().tasks}

    def up(self, *agents: str, **programs: str) -> None:
        """Start agents, each role with a script."""
        words = [f"--program={role.replace('_', '-')}={self.script(role, text)}" for role, text in programs.items()]
        self.liza("up", *agents, *words, "--detach")


class Hosts:
    """Two hosts, ``h1`` and ``h2``, and their remote."""

    def __init__(self, base: Path, postgresql: PostgreSQL, database: str) -> None:
        self.postgresql, self.database, url = postgresql, database, postgresql.url(database)
        self.remote = make_remote(base)
        self.h1, self.h2 = self.clone(base / "h1"), self.clone(base / "h2")
        self.h1.prepare("init", "A shop", "--board", url, "--host", "h1", "--no-test", "--confinement", "off")
        self.h1.configure(**QUICK)
        self.h2.prepare("join", url, "--host", "h2")
        self.no_api = [Lock(host.paths.server_start_lock) for host in (self.h1, self.h2)]
        for lock in self.no_api:
            lock.acquire()

    def clean(self) -> None:
        """End whatever a test left."""
        for host in (self.h1, self.h2):
            host.clean()
        for lock in self.no_api:
            lock.release()

    def lose(self, name: str) -> None:
        """A host is not heard for so long that a person gives it up."""
        host = getattr(self, name)
        process = find_holder(host.paths.host_lock)
        assert process is not None
        os.kill(process, signal.SIGKILL)
        sql = f"UPDATE host SET seen = seen - interval '1 hour' WHERE name = '{name}'"
        self.postgresql.run_sql(sql, database=self.database)
        other = self.h2 if name == "h1" else self.h1
        other.prepare("host", "forget", name)

    def clone(self, base: Path) -> Clone:
        (base / "notes").mkdir(parents=True)
        git(base, "clone", "-q", str(self.remote), str(base / "shop"))
        return Clone(base / "shop", base / "notes")

    def publications(self) -> list[Publication]:
        messages = git(self.remote, "log", "--reverse", "--first-parent", "--format=%B%x00", TERM_REF).split("\0")
        return [each for each in map(parse_publication, messages) if each is not None]

    def check_remote(self, *tasks: str) -> None:
        """The remote has exactly these tasks, each as its approved and tested commit, in the order of the journal."""
        shown = {name: self.h1.task(name) for name in tasks}
        chain = git(self.remote, "log", "--reverse", "--first-parent", "--format=%H", "main..integration").split()
        published = [name for each in self.publications() for name in each.tasks]
        assert sorted(published) == sorted(tasks)
        assert [shown[name].merge_commit for name in published] == chain
        for name in tasks:
            assert shown[name].tested is not None
            assert git(self.remote, "rev-parse", f"{shown[name].merge_commit}^2") == shown[name].review_commit
            assert git(self.remote, "rev-parse", f"task/{name}") == shown[name].review_commit


@pytest.fixture
def hosts(postgresql: PostgreSQL, database: str, tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path, postgresql, database)
    yield hosts
    hosts.clean()


def has_fetched_no_task(host: Clone) -> bool:
    """Whether a clone has nothing of branches of tasks that it fetched."""
    return git(host.root, "for-each-ref", "refs/liza/fetched/task") == ""


def test_a_task_passes_from_host_to_host_until_it_is_merged(hosts: Hosts) -> None:
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=WORK)
    hosts.h1.up("code-reviewer-1", code_reviewer=APPROVE)
    until(lambda: hosts.h2.status("first") == "MERGED", "the task is merged")
    hosts.check_remote("first")
    assert {each.host for each in hosts.publications()} <= {"h1", "h2"}
    for host in (hosts.h1, hosts.h2):
        assert {alert["kind"] for alert in host.tell("status")["alerts"]} == {"untested_merges"}
        assert git(host.root, "status", "--porcelain") == ""
        assert git(host.root, "symbolic-ref", "HEAD") == "refs/heads/main"
        until(partial(has_fetched_no_task, host), "nothing is kept of what was fetched for closed tasks")


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["publish.push#2", "merge.tested", "publish.pushed#2"])
def test_the_remote_has_only_what_was_approved_and_tested(hosts: Hosts, point: str) -> None:
    for task in ("first", "second"):
        there = hosts.h1.work_by_hand(task)
        hosts.h1.prepare("submit", cwd=there)
        hosts.h2.prepare("verdict", "approve", "read it", "--task", task)
    with stopped_merger(hosts.h1, "first", point) as merger:
        hosts.lose("h1")
        hosts.h2.liza("merge", "second")
        os.kill(merger.pid, signal.SIGCONT)
        assert merger.wait(60) != 0
        assert hosts.publications()[-1].host == "h2"
    if hosts.h2.statuses()["first"] != "MERGED":
        hosts.h2.liza("merge", "first")
    assert hosts.h1.statuses() == {"first": "MERGED", "second": "MERGED"}
    hosts.check_remote("first", "second")
    assert [each.term for each in hosts.publications()] == sorted(each.term for each in hosts.publications())


@contextmanager
def stopped_merger(host: Clone, task: str, point: str) -> Iterator[subprocess.Popen[bytes]]:
    """A merger that is stopped at a point. It is killed in the end, if it still is there."""
    env = {**os.environ, "LIZA_FAULT": f"{point}:stop"}
    merger = subprocess.Popen(
        [sys.executable, "-P", "-m", "liza", "merge", task], cwd=host.root, env=env, start_new_session=True
    )
    try:
        stat = Path(f"/proc/{merger.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"it is stopped at {point}")
        yield merger
    finally:
        merger.kill()
        merger.wait()


def test_a_submission_without_the_remote_counts_as_no_try(hosts: Hosts) -> None:
    away = hosts.remote.with_name("away.git")
    once = (
        f'[ -e "{hosts.remote.parent}/once" ] || {{ touch "{hosts.remote.parent}/once"; mv {hosts.remote} {away}; }}\n'
    )
    hosts.h1.add("first")
    hosts.h2.up("coder-1", coder=once + WORK)

    until(lambda: "held up" in hosts.h1.heard("first"), "the session is held up")
    task = hosts.h1.task("first")
    assert (task.status, task.review_commit) == ("CLAIMED", None)
    away.rename(hosts.remote)
    until(lambda: "submit" in hosts.h1.heard("first"), "it is submitted")
    assert hosts.h1.task("first").review_commit == git(hosts.remote, "rev-parse", "task/first")
    assert "crash" not in hosts.h1.heard("first")


def test_a_clone_cannot_join_as_a_host_that_is_alive(hosts: Hosts) -> None:
    words = [str(BIN / "liza"), "host", "run"]
    hosts.h1.children.append(subprocess.Popen(words, cwd=hosts.h1.root, start_new_session=True))
    until(hosts.h1.paths.host_lease.exists, "the host runs")
    other = hosts.clone(hosts.remote.parent / "h3")
    refused = other.liza("join", hosts.postgresql.url(hosts.database), "--host", "h1", code=1)
    assert "h1 is the name of the host at" in refused
    assert str(hosts.h1.root) in refused
    other.liza("join", hosts.postgresql.url(hosts.database), "--host", "h3")


def test_a_branch_of_one_host_is_reviewed_and_merged_on_another(hosts: Hosts) -> None:
    git(hosts.h1.root, "switch", "-q", "-c", "fix", "integration")
    for text in ("wrong", "right"):
        (hosts.h1.root / "fix.txt").write_text(text)
        git(hosts.h1.root, "add", "-A")
        git(hosts.h1.root, "commit", "-q", *(("--amend",) if text == "right" else ()), "-m", "Fix it")
        commit = hosts.h1.tell("submit", ".")["commit"]
        assert git(hosts.remote, "rev-parse", "task/fix") == commit
        assert hosts.h2.tell("diff", "fix")["commit"] == commit
        if text == "wrong":
            hosts.h2.liza("verdict", "reject", "the text", "--task", "fix")
    assert "fix.md" in hosts.h2.opened.board.pages()
    hosts.h2.liza("verdict", "approve", "read it", "--task", "fix")
    hosts.h2.liza("merge", "fix")
    hosts.check_remote("fix")
