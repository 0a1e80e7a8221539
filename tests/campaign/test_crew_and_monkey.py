"""A crew at work while a monkey kills, freezes, fills, edits and destroys; afterwards nothing is lost."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from liza.model.model import Status
from tests.campaign.crew_judge import losses, recorded
from tests.campaign.crew_run import Person, World, begin, is_quiet, report, world
from tests.campaign.monkey import Tally, rampage
from tests.conftest import git

SEED = int(os.environ.get("LIZA_SEED", "1"))
FAULTS = int(os.environ.get("LIZA_FAULTS", "5"))
CALM = 300.0
long = pytest.mark.campaign


@pytest.mark.parametrize(
    ("seed", "faults", "pause", "tasks", "lease"),
    [(SEED, FAULTS, 0.2, 2, 2), *(pytest.param(SEED + number, 250, 1.0, 5, 3, marks=long) for number in range(1, 5))],
)
@pytest.mark.needs("yq")
@pytest.mark.campaign
def test_a_crew_under_random_kills_and_edits_loses_nothing(
    tmp_path: Path, seed: int, faults: int, pause: float, tasks: int, lease: int
) -> None:
    tally = Tally()
    with world(tmp_path, seed, tasks, lease) as made:
        before = git(made.root, "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
        began = time.monotonic()
        person = begin(made)
        rampage(made, faults, tally, pause)
        made.end_all()
        rampaged = time.monotonic() - began
        _work_until_quiet(made, person)
        _go_home(made, person)
        found = losses(made, before)
        _print(made, tally, seed, rampaged, time.monotonic() - began, found)
        assert not found, "\n".join([f"seed {seed}", *found, report(made)])


def _work_until_quiet(made: World, person: Person) -> None:
    person.adding = False
    end = time.monotonic() + CALM
    while not is_quiet(made.state()):
        assert person.failed is None, person.failed
        assert time.monotonic() < end, "the crew does not come to its end\n" + report(made)
        made.pass_by(0.2)


def _go_home(made: World, person: Person) -> None:
    """What a person types last."""
    person.over.set()
    person.join()
    for keeper in made.keepers.values():
        keeper.over.set()
    assert person.type("down") == 0, report(made)
    assert person.type("doctor", "--fix") == 0, report(made)


def _print(made: World, tally: Tally, seed: int, rampaged: float, whole: float, found: list[str]) -> None:
    print(f"\nseed {seed}: {sum(tally.number.values())} faults in {rampaged:.0f} s, {whole:.0f} s in all")
    for kind in sorted(tally.number):
        print(f"  {kind:26} {tally.number[kind]:4} {tally.seconds[kind]:7.1f} s")
    for kind, why in sorted(tally.passed.items()):
        if kind not in tally.number:
            print(f"  {kind:26} left out: {why}")
    state = made.crew.state()
    merged = sum(task.status is Status.MERGED for task in state.tasks)
    restarts = sum(len(keeper.exits) for keeper in made.keepers.values())
    print(f"  {len(state.tasks)} tasks, {merged} merged; {recorded(made)} revisions; {restarts} ends of supervisors")
    print(f"  losses: {len(found)}")
