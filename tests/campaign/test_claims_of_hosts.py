"""Many claimers on several hosts, each in namespaces of its own: each task is given once, with its worktree there."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.model.model import Status
from liza.model.paths import Paths
from tests.campaign.host_claimers import AGENTS_EACH
from tests.conftest import git, make_remote
from tests.journeys.test_code_of_hosts import Clone
from tests.namespaces import unshared
from tests.postgresql import PostgreSQL

APART = ("-Urnupf", "--mount-proc")
"""A network, a name of the machine and pids of its own."""


class ManyHosts:
    """Clones of a project as hosts of one crew, whose tasks are all ready."""

    def __init__(self, base: Path, url: str, hosts: int, tasks: int) -> None:
        remote = make_remote(base)
        self.tasks = {f"task-{number}" for number in range(tasks)}
        self.clones: dict[str, Clone] = {}
        for number in range(hosts):
            name = f"h{number + 1}"
            (base / name / "notes").mkdir(parents=True)
            git(base, "clone", "-q", str(remote), str(base / name / "shop"))
            clone = self.clones[name] = Clone(base / name / "shop", base / name / "notes")
            if number:
                clone.liza("join", url, "--host", name)
            else:
                clone.liza("init", "A shop", "--board", url, "--host", name, "--no-test", "--confinement", "off")
        self.first.add(*sorted(self.tasks))

    @property
    def first(self) -> Clone:
        return self.clones["h1"]

    def claim_all(self, claimers: int) -> list[list[str]]:
        """All claimers of all hosts at once; the lines of all claims."""
        prefix = unshared(*APART)
        with ExitStack() as stack:
            processes = []
            for number, clone in enumerate(self.clones.values()):
                words = ["-m", "tests.campaign.host_claimers", str(clone.root), str(claimers // len(self.clones))]
                words.append(str(1 + number * claimers * AGENTS_EACH))
                process = subprocess.Popen(
                    [*prefix, sys.executable, *words],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )  # fmt: skip
                stack.callback(process.kill)
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                processes.append(process)
            for process in processes:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
            ends = [process.communicate(timeout=1500) for process in processes]
            assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(
                err[-2000:] for _, err in ends
            )
        return [line.split() for out, _ in ends for line in out.splitlines()]

    def find_problems(self, claims: list[list[str]]) -> list[str]:
        """What is wrong with a claim: given twice, to another than who got it, or without its worktree on its host."""
        state = find_crew(self.first.root).board.read()
        given = Counter(task for task, *_ in claims)
        wrong = [f"{task} was given {given[task]} times" for task in self.tasks if given[task] != 1]
        for name, run, slot, _ in claims:
            task = state.task(name)
            assert task is not None
            agent = run.rpartition(".")[0]
            host = state.agents[agent].host
            there = Paths(self.clones[host].root).slot(slot) if host in self.clones else Path("none")
            facts = (task.status, task.run, task.assigned_to, task.worktree, task.reservation)
            if facts != (Status.CLAIMED, run, agent, slot, None) or not slot.startswith(f"{host}-s"):
                wrong.append(f"{name} was given to {run} in {slot}, and the board has {facts}")
            elif not (there / "README.md").is_file() or git(there, "symbolic-ref", "HEAD") != f"refs/heads/task/{name}":
                wrong.append(f"{there} is not the worktree of {name}")
        slots = Counter(slot for _, _, slot, _ in claims)
        wrong += [f"the slot {slot} was given {count} times" for slot, count in slots.items() if count != 1]
        records = find_crew(self.first.root).board.records()
        claimed = Counter(record.task for record in records if record.event == "claim")
        wrong += [f"the journal has {claimed[task]} claims of {task}" for task in self.tasks if claimed[task] != 1]
        return wrong


@pytest.mark.needs("unshare")
@pytest.mark.parametrize(
    ("claimers", "hosts", "tasks"), [(4, 2, 6), pytest.param(64, 4, 500, marks=pytest.mark.campaign)]
)
def test_claimers_of_several_hosts_get_each_task_once(
    postgresql: PostgreSQL, database: str, tmp_path: Path, claimers: int, hosts: int, tasks: int
) -> None:
    unshared(*APART)
    crew = ManyHosts(tmp_path, postgresql.url(database), hosts, tasks)
    began = time.monotonic()
    claims = crew.claim_all(claimers)
    seconds = time.monotonic() - began
    waits = sorted(float(wait) for *_, wait in claims)
    by_host = Counter(slot.partition("-")[0] for _, _, slot, _ in claims)
    print(
        f"\n{claimers} claimers, {hosts} hosts, {tasks} tasks: {seconds:.1f} s, {len(claims) / seconds:.1f} claims/s,"
    )
    print(f"a claim {waits[len(waits) // 2]:.1f} s (median) to {waits[-1]:.1f} s; {dict(by_host)}")
    assert crew.find_problems(claims) == []
    assert crew.first.run("validate").returncode == 0
