"""Groups of claimers killed at any moment, with and without their gits: then a claim is whole, or is not there."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from liza.merging.merge_recovery import recover_if_dead
from liza.recovery.doctor import doctor
from liza.system import processes
from liza.tasks import claim, task
from tests.campaign import forks
from tests.campaign.consistency import commits_of_everyone, problems
from tests.campaign.scenes import add, fresh
from tests.conftest import git, variant, worktree_of
from tests.journeys.crews import Crew, started

SEED = int(os.environ.get("LIZA_SEED") or 3)
KINDS = ("all claimers", "one claimer", "claimers and gits", "gits alone")
LAPSE = 4000.0
"""Seconds after which every lease of the round before has lapsed."""


class Rounds:
    """Two tasks that go from agent to agent; each leaves a commit and an uncommitted note, and both go on."""

    def __init__(self, crew: Crew, chance: random.Random) -> None:
        self.crew, self.chance = crew, chance
        self.ahead = 0.0
        self.tasks: tuple[str, str] = ("", "")
        self.notes: dict[str, str] = {}
        self.commits: list[str] = []
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.duration = 0.0
        self.takers = [("coder-5", "coder-6"), ("coder-7", "coder-8")]

    def new_tasks(self, number: int) -> None:
        """The old ones are dropped; now and then the slots are gone too, so that a claim makes a new one."""
        for one in filter(None, self.tasks):
            task.drop(fresh(self.crew.root), one, "enough", None, recover_if_dead)
        self.tasks, self.notes = (f"a-{number}", f"b-{number}"), {}
        add(self.crew.root, *self.tasks)
        if self.chance.random() < 0.7:
            fresh(self.crew.root).worktrees.remove_all()

    def measure(self) -> None:
        """How long a group takes that nobody kills."""
        begun = time.monotonic()
        ends = [forks.ended(racer) for racer in self._race(4)]
        self.duration = time.monotonic() - begun
        assert ends.count(0) == 2, self._said()

    def _race(self, size: int) -> list[int]:
        gate, go = os.pipe()
        self.ahead += LAPSE

        def work(agent: str, task_id: str) -> None:
            os.close(go)
            os.read(gate, 1)
            claim.claim_task(fresh(self.crew.root, self.ahead), agent, task_id)

        racers = [
            forks.fork(
                lambda agent=f"coder-{number + 1}", one=self.tasks[number % 2]: work(agent, one),  # type: ignore[misc]
                quiet=self.crew.notes / "said",
            )
            for number in range(size)
        ]
        os.close(gate)
        os.close(go)
        return racers

    def killed(self, number: int) -> None:
        """One group, killed; then the doctor, the judge, and somebody else who takes both tasks."""
        kind = self.chance.choice(KINDS)
        (self.crew.notes / "said").write_text("")
        racers = self._race(self.chance.randint(2, 4))
        time.sleep(self.chance.random() * self.duration)
        strike(kind, racers, self.chance)
        ends = [forks.ended(racer) for racer in racers]
        if forks.BROKEN in ends:
            self.wrong.append(f"round {number}, {kind}: {self._said()}")
        self.found.update(f"{kind}: {what}" for what in self._states())
        self._settled(f"round {number}, {kind}")

    def _states(self) -> list[str]:
        told = []
        for one in self.tasks:
            entry = self.crew.task(one)
            place = worktree_of(self.crew.root, one) / "README.md"
            laid_out = "with" if place.is_file() else "without"
            told.append("reserved" if entry.reservation else f"{entry.status} {laid_out} a worktree")
        return told

    def _settled(self, when: str) -> None:
        code = forks.run(lambda: doctor(self.crew.root, fix=True), quiet=self.crew.notes / "said")
        if code != 0:
            self.wrong.append(f"{when}: the doctor ended with {code}: {self._said()}")
        self.wrong += [f"{when}: {sentence}" for sentence in problems(self.crew.root)]
        self.ahead += LAPSE
        self.takers = self.takers[::-1]
        for agent, one in zip(self.takers[0], self.tasks, strict=True):
            code = forks.run(lambda agent=agent, one=one: self._work(agent, one), quiet=self.crew.notes / "said")  # type: ignore[misc]
            if code != 0:
                self.wrong.append(f"{when}: {one} cannot be claimed again ({code}): {self._said()}")

    def _work(self, agent: str, one: str) -> None:
        """Take a task over, find the note of the one before, leave a commit and another note."""
        claim.claim_task(fresh(self.crew.root, self.ahead), agent, one)
        place = worktree_of(self.crew.root, one)
        before = place / "note.txt"
        assert (before.read_text() if before.is_file() else "") == self.notes.get(one, ""), "the note is lost"

    def leave_work(self) -> None:
        """What the agents of this round made; half of the time they are sent away, and the task is free."""
        for one in self.tasks:
            place = worktree_of(self.crew.root, one)
            if self.crew.task(one).status != "CLAIMED" or not place.is_dir():
                continue
            self.notes[one] = f"{one} {self.ahead}\n"
            (place / "note.txt").write_text(self.notes[one])
            if self.chance.random() < 0.2:
                (place / f"{self.ahead:.0f}.txt").write_text("work\n")
                git(place, "add", f"{self.ahead:.0f}.txt")
                git(place, "commit", "-q", "-m", "work")
                self.commits.append(git(place, "rev-parse", "HEAD"))
            if self.chance.random() < 0.5:
                task.release(fresh(self.crew.root, self.ahead), one)

    def _said(self) -> str:
        return (self.crew.notes / "said").read_text()


def strike(kind: str, racers: list[int], chance: random.Random) -> None:
    """Kill -9 of what ``kind`` says; the gits of a claimer are its children, in sessions of their own."""
    victims = [chance.choice(racers)] if kind == "one claimer" else racers
    if kind in ("claimers and gits", "gits alone"):
        for racer in racers:
            os.kill(racer, signal.SIGSTOP)
        identities = [processes.identify_process(racer) for racer in racers]
        gits = [pid for racer in identities if racer is not None for pid in processes.find_descendants(racer)]
        victims = gits if kind == "gits alone" else [*racers, *gits]
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    for racer in racers:
        with suppress(ProcessLookupError):
            os.kill(racer, signal.SIGCONT)


@pytest.mark.parametrize(("kills", "number"), [variant(2, 0), variant(250, 1), variant(250, 2)])
def test_claimers_killed_at_any_moment_leave_no_half_claim(tmp_path: Path, kills: int, number: int) -> None:
    seed = SEED + number
    begun = time.monotonic()
    with started(tmp_path) as crew:
        rounds = Rounds(crew, random.Random(seed))
        for one in range(kills):
            if one % 15 == 0:
                rounds.new_tasks(one)
                rounds.measure()
                rounds.leave_work()
            rounds.killed(one)
            rounds.leave_work()
        lost = commits_of_everyone(crew.root, rounds.commits)
    print(f"\nseed {seed}: {kills} kills in {time.monotonic() - begun:.1f} s;", end=" ")
    print(f"of {len(rounds.commits)} commits {len(lost)} lost; found after the kill:")
    for what, count in sorted(rounds.found.items()):
        print(f"  {count:5}  {what}")
    assert not rounds.wrong, "\n".join(rounds.wrong)
    assert lost == []
