"""Several claimers at once on one task: one gets it, with its worktree, and the others are told why not."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from liza.crew.recorder import record_history
from liza.merging.merge_recovery import recover_if_dead
from liza.model.model import State
from liza.model.paths import TASK_LINKS
from liza.tasks import claim, task
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.campaign.scenes import add, fresh
from tests.conftest import worktree_of
from tests.journeys.crews import BIN, Crew, started

REFUSED = 1
SAME = 20
"""Races for one task before it is dropped and its slot goes to the next."""


def race(crew: Crew, task_id: str, agents: list[str]) -> list[int]:
    """All of ``agents`` claim the task at one moment, each in a process of its own; how each ended."""
    gate, go = os.pipe()

    def work(agent: str) -> None:
        os.close(go)
        os.read(gate, 1)
        claim.claim_task(fresh(crew.root), agent, task_id)

    racers = [forks.fork(lambda agent=agent: work(agent), quiet=crew.notes / "said") for agent in agents]  # type: ignore[misc]
    os.close(gate)
    os.close(go)
    return [forks.ended(racer) for racer in racers]


def owned_once(crew: Crew, state: State, task_id: str, agents: list[str], ends: list[int]) -> str:
    """The winner; everything that one race must leave, looked at without git."""
    told = (crew.notes / "said").read_text()
    assert sorted(ends) == [0] + [REFUSED] * (len(ends) - 1), told
    winner = agents[ends.index(0)]
    found = state.task(task_id)
    assert found is not None
    assert (found.status, found.assigned_to, found.reservation) == ("CLAIMED", winner, None)
    assert found.worktree == "s1", "a loser took a slot away"
    assert (crew.root / ".git/worktrees/s1/HEAD").read_text() == f"ref: refs/heads/task/{task_id}\n"
    assert (worktree_of(crew.root, task_id) / "README.md").is_file()
    assert {path.name for path in crew.paths.slots.iterdir() if path.is_dir()} == {"s1", TASK_LINKS}
    return winner


@pytest.mark.parametrize(
    ("racers", "rounds"), [(4, 3), *(pytest.param(racers, 200, marks=pytest.mark.campaign) for racers in (2, 4, 8))]
)
def test_exactly_one_of_several_claimers_owns_the_task_and_worktree(tmp_path: Path, racers: int, rounds: int) -> None:
    agents = [f"coder-{number + 1}" for number in range(racers)]
    winners: Counter[str] = Counter()
    begun = time.monotonic()
    with started(tmp_path) as crew:
        add(crew.root, *(f"task-{number}" for number in range(0, rounds, SAME)))
        for number in range(rounds):
            task_id = f"task-{number - number % SAME}"
            (crew.notes / "said").write_text("")
            ends = race(crew, task_id, agents)
            winners[owned_once(crew, crew.state(), task_id, agents, ends)] += 1
            if number % 25 == 0 or number == rounds - 1:
                assert recorded_problems(crew) == []
            if (number + 1) % SAME:
                task.release(fresh(crew.root), task_id)
            else:
                over(crew, task_id)
        runs = sum(agent.runs for agent in crew.state().agents.values())
    print(f"\n{racers} claimers, {rounds} races, {time.monotonic() - begun:.1f} s: {rounds} with one owner and its")
    print(f"worktree, {rounds * (racers - 1)} refused, {runs} runs; winners {dict(sorted(winners.items()))}")
    assert runs == rounds, "a loser was given a run"


def recorded_problems(crew: Crew) -> list[str]:
    record_history(fresh(crew.root))
    return problems(crew.root)


def over(crew: Crew, task_id: str) -> None:
    """The task is dropped, and its slot free for the next one."""
    found = crew.task(task_id)
    task.drop(fresh(crew.root), task_id, "the race is over", None, recover_if_dead)
    fresh(crew.root).worktrees.release(str(found.worktree), task_id, str(found.run))


@pytest.mark.parametrize("rounds", [1, pytest.param(12, marks=pytest.mark.campaign)])
def test_only_one_of_several_simultaneous_claim_commands_exits_0(tmp_path: Path, rounds: int) -> None:
    agents = ["coder-1", "coder-2", "coder-3"]
    begun = time.monotonic()
    with started(tmp_path) as crew:
        for number in range(rounds):
            task_id = f"task-{number}"
            add(crew.root, task_id)
            words = [[str(BIN / "liza"), "claim", task_id, "--agent", agent] for agent in agents]
            with (crew.notes / "said").open("w") as said:
                children = [
                    subprocess.Popen(one, cwd=crew.root, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
                    for one in words
                ]
                ends = [child.wait(timeout=90) for child in children]
            owned_once(crew, crew.state(), task_id, agents, ends)
            assert problems(crew.root) == []
            over(crew, task_id)
    print(f"\n{len(agents)} claim commands, {rounds} races, {time.monotonic() - begun:.1f} s: one exit 0 each")
