"""kill -9 at every step of a claim, and of what puts its leftovers right: nothing is lost, and all is settled."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from liza.crew.recorder import record_history
from liza.model.paths import Paths
from liza.recovery.doctor import doctor
from tests.campaign import forks
from tests.campaign.consistency import commits_of_everyone, problems
from tests.campaign.scenes import SCENES, TASK, Scene, fresh
from tests.conftest import git, variant, worktree_of
from tests.journeys.crews import started

KILLED = -9


def lost(scene: Scene) -> list[str]:
    """What agents had made and nobody can find any more."""
    told = [f"the commit {sha} is lost" for sha in commits_of_everyone(scene.root, scene.commits)]
    kept = set(git(scene.root, "rev-list", "--all", "--objects", "--no-object-names").split())
    for name, text in scene.uncommitted.items():
        data = text.encode()
        blob = hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()
        places = (scene.root / ".worktrees" / ".slots").glob(f"*/{name}")
        if blob not in kept and not any(place.read_bytes() == data for place in places):
            told.append(f"the uncommitted {name} is lost")
    return told


def found(scene: Scene) -> str:
    """What a kill left, before anybody looked after it, in words for the table."""
    task = scene.state().task(TASK)
    assert task is not None
    if task.reservation:
        return "reserved"
    if task.review_run:
        owner = fresh(scene.root).worktrees.owner(str(task.reviewing_by))
        return "review, laid out" if owner and owner[1] == task.review_run else "review, not laid out"
    laid_out = Paths(scene.root).task_link(TASK).is_symlink()
    return f"{task.status}{', linked' if laid_out else ''}"


def settled(scene: Scene, said: Path) -> list[str]:
    """What is wrong after the doctor came, and after somebody else took the task."""
    wrong = []
    for what, work in (("doctor --fix", _fix(scene.root)), ("the next claim", lambda: scene.again(scene.root))):
        code = forks.run(work, quiet=said)
        if code != 0:
            return [*wrong, f"{what} ended with {code}: {said.read_text()}"]
        record_history(fresh(scene.root))
        wrong += [f"after {what}: {sentence}" for sentence in (*problems(scene.root), *lost(scene))]
    for name in scene.laid_back:
        if (worktree_of(scene.root, TASK) / name).read_text() != scene.uncommitted[name]:
            wrong.append(f"the next claim has not got {name}")
    return wrong


def _fix(root: Path) -> Callable[[], object]:
    return lambda: doctor(root, fix=True)


def killed_at_each(
    scene: Scene, work: Callable[[], object], stride: int, notes: Path
) -> tuple[Counter[str], list[str]]:
    """Kill ``work`` at every ``stride``-th point that it passes; what was found, and everything that went wrong."""
    assert forks.run(work, trace=notes / "trace", quiet=notes / "said") == 0, (notes / "said").read_text()
    table: Counter[str] = Counter()
    wrong: list[str] = []
    for point in forks.passed(notes / "trace")[::stride]:
        scene.restore()
        (notes / "said").write_text("")
        code = forks.run(work, fault=point, quiet=notes / "said")
        assert code == KILLED, f"{point}: {code} {(notes / 'said').read_text()}"
        table[found(scene)] += 1
        wrong += [f"{point}: {sentence}" for sentence in settled(scene, notes / "said")]
    return table, wrong


@pytest.mark.parametrize(
    ("name", "stride"), [("lapsed claim", 29), *(pytest.param(name, 1, marks=pytest.mark.campaign) for name in SCENES)]
)
def test_a_claim_killed_at_any_step_costs_no_work(tmp_path: Path, name: str, stride: int) -> None:
    begun = time.monotonic()
    with started(tmp_path, inside=True) as crew:
        scene = SCENES[name](crew)
        scene.keep()
        table, wrong = killed_at_each(scene, lambda: scene.act(scene.root), stride, crew.notes)
    print(f"\n{name}: {table.total()} kills, {time.monotonic() - begun:.1f} s, {len(wrong)} wrong; found {dict(table)}")
    assert not wrong, "\n".join(wrong)


LEFT = [
    ("new slot", "git.worktree#1"),
    ("used slot", "claim.prepared#1"),
    ("lapsed claim", "claim.prepared#1"),
    ("lapsed claim", "claim.confirmed#1"),
    ("review", "renamed.state.yaml#1"),
]
"""Claims that died, for the doctor to die over."""


@pytest.mark.parametrize(
    ("name", "point", "stride"),
    [
        variant("used slot", "claim.prepared#1", 29),
        *(pytest.param(*left, 1, marks=pytest.mark.campaign) for left in LEFT),
    ],
)
def test_doctor_killed_at_any_step_is_completed_by_the_next(tmp_path: Path, name: str, point: str, stride: int) -> None:
    begun = time.monotonic()
    with started(tmp_path, inside=True) as crew:
        scene = SCENES[name](crew)
        assert forks.run(lambda: scene.act(scene.root), fault=point, quiet=crew.notes / "said") == KILLED
        scene.keep()
        table, wrong = killed_at_each(scene, _fix(scene.root), stride, crew.notes)
    print(f"\ndoctor after {name} killed at {point}: {table.total()} kills, {time.monotonic() - begun:.1f} s,", end=" ")
    print(f"{len(wrong)} wrong; found {dict(table)}")
    assert not wrong, "\n".join(wrong)
