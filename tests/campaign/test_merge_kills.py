"""Kill -9 at every point of a merge: integration stands at a tested commit, and no approved task is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.campaign import forks
from tests.campaign.epic_world import EpicWorld
from tests.campaign.merge_world import SETTINGS, World
from tests.campaign.undo_world import UndoWorld
from tests.conftest import variant

CRITICAL = ("merge.", "epic.", "undo.", "move.", "spawned.", "git.update-ref", "git.read-tree")
SHORT = {
    "elsewhere": ("move.files#1", "move.branch#1", "merge.advanced#2"),
    "tests move refs": ("merge.tested#1", "merge.noted#1", "merge.advanced#1"),
}
SEED = int(os.environ.get("LIZA_SEED", "1"))


class Kills:
    """Kill, settle, judge: one world, many deaths."""

    def __init__(
        self,
        world: World,
        name: str,
        deed: Callable[[], None] | None = None,
        judge: Callable[[], list[str]] | None = None,
    ) -> None:
        self.world, self.name = world, name
        self.deed, self.judge = deed or world.merge_all, judge or world.wrong
        self.rng = random.Random(f"{SEED} {name}")
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        world.renew()
        trace = world.notes / "trace"
        began = time.monotonic()
        world.to_its_end(self.deed, trace)
        self.seconds = time.monotonic() - began
        self.points = forks.passed(trace)

    def chosen(self) -> list[str]:
        """Each point that only a merge passes; of those that every transaction and every git passes, a share."""
        share = list(SETTINGS).index(self.name)
        return [
            point
            for number, point in enumerate(self.points)
            if point.startswith(CRITICAL) or number % (2 * len(SETTINGS)) == share
        ]

    def at(self, point: str) -> None:
        """Killed there; every third time, whoever settles it is killed as well."""
        self.world.renew()
        kind = self.rng.choice(("", ":group"))
        code = forks.run(self.deed, f"{point}{kind}", quiet=self.world.quiet())
        assert code in (0, -signal.SIGKILL), self.world.quiet().read_text()[-3000:]
        self._settled(f"at {point}{kind}", "at a point" if code else "not reached")

    def whenever(self) -> None:
        """Killed at a random moment: the merger, a git of it, or both."""
        self.world.renew()
        whom = self.rng.choice(("merger", "git", "both"))
        pid = forks.fork(self.deed, quiet=self.world.quiet())
        moment = self.rng.uniform(0.0, self.seconds)
        time.sleep(moment)
        if whom != "merger":
            for git_pid in children(pid):
                with suppress(ProcessLookupError):
                    os.killpg(git_pid, signal.SIGKILL)
        if whom != "git":
            forks.kill(pid)
        code = forks.ended(pid)
        assert code != forks.BROKEN, self.world.quiet().read_text()[-3000:]
        self._settled(f"{whom} after {moment:.3f} s", f"{whom}, at random")

    def _settled(self, what: str, kind: str) -> None:
        self.counts[kind] += 1
        if self.rng.random() < 0.33:
            work = self.rng.choice((self.world.recover, self.deed))
            again = self.rng.choice(self.points)
            self.counts["settling killed too"] += forks.run(work, again, quiet=self.world.quiet()) < 0
            what += f", then at {again}"
        self.world.settle(self.deed)
        if self.world.setting.blocks:
            self.world.put_back()
            self.world.settle(self.deed)
        found = self.judge()
        self.wrong += [f"{self.name}, {what}: {one}" for one in found]
        print(*self.wrong[len(self.wrong) - len(found) :], sep="\n", end="", flush=True)
        self.counts["wrong"] += bool(found)


def children(top: int) -> list[int]:
    """The gits and other commands that a merger has started and that lead groups of their own."""
    found = []
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdigit() and (place / "stat").read_text().rpartition(") ")[2].split()[1] == str(top):
                found.append(int(place.name))
    return found


@pytest.mark.parametrize(
    ("name", "moments"),
    [
        variant("tests move refs", 0),
        variant("elsewhere", 0),
        *(pytest.param(name, 8, marks=pytest.mark.campaign) for name in SETTINGS),
    ],
)
def test_a_merge_killed_anywhere_merges_each_task_once_and_tested(tmp_path: Path, name: str, moments: int) -> None:
    kills = Kills(World(tmp_path, SETTINGS[name]), name)
    began = time.monotonic()
    for point in kills.chosen() if moments else SHORT[name]:
        kills.at(point)
    for _ in range(moments):
        kills.whenever()
    print(f"seed {SEED}  {name}: {len(kills.points)} points, {time.monotonic() - began:.0f} s  {dict(kills.counts)}")
    assert kills.wrong == []
    assert kills.counts["at a point"] >= 3


def kill_anywhere(kills: Kills, what: str) -> None:
    """Kill at each chosen point, and at ten moments. Nothing may be wrong afterwards."""
    began = time.monotonic()
    for point in kills.chosen():
        kills.at(point)
    for _ in range(10):
        kills.whenever()
    seconds = time.monotonic() - began
    print(f"seed {SEED}  {what}: {len(kills.points)} points, {seconds:.0f} s  {dict(kills.counts)}")
    assert kills.wrong == []


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["away", "clean"])
def test_an_epic_killed_anywhere_is_merged_once_and_tested(tmp_path: Path, name: str) -> None:
    kills = Kills(EpicWorld(tmp_path, SETTINGS[name]), name)
    kill_anywhere(kills, f"epics, {name}")
    assert kills.counts["at a point"] >= 50


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["away", "clean", "elsewhere"])
def test_a_sync_killed_anywhere_merges_main_once_and_tested(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, SETTINGS[name])
    world.go_on_with_main()
    kills = Kills(world, name, world.sync_main, world.wrong_after_sync)
    kill_anywhere(kills, f"sync, {name}")


@pytest.mark.parametrize("name", [variant("away"), variant("clean"), variant("elsewhere")])
def test_an_undo_killed_anywhere_is_done_once_and_tested(tmp_path: Path, name: str) -> None:
    world = UndoWorld(tmp_path, SETTINGS[name])
    kills = Kills(world, name, world.undo_merged, world.wrong_after_undo)
    kill_anywhere(kills, f"undo, {name}")
    assert kills.counts["at a point"] >= 10


@pytest.mark.parametrize(("mergers", "rounds"), [(3, 1), pytest.param(8, 8, marks=pytest.mark.campaign)])
def test_mergers_at_once_merge_each_approved_task_exactly_once(tmp_path: Path, mergers: int, rounds: int) -> None:
    world = World(tmp_path, SETTINGS["clean"])
    began = time.monotonic()
    for _ in range(rounds):
        world.renew()
        pids = [forks.fork(world.merge_in_turn, quiet=world.quiet()) for _ in range(mergers)]
        codes = [forks.ended(pid) for pid in pids]
        assert codes == [0] * mergers, world.quiet().read_text()[-3000:]
        assert forks.run(world.recover, quiet=world.quiet()) == 0
        assert world.wrong() == []
    print(f"{mergers} mergers at once, {rounds} rounds: {time.monotonic() - began:.0f} s, each task merged once")


TRACED = """\
#!/bin/sh
# Stands for git: the NTH "VERB" that is called dies at its WHEN-th step.
PATH=${PATH#*:}
case " $* " in
*" VERB "*)
    echo x >> COUNT
    if [ "$(wc -l < COUNT)" -eq NTH ]; then
        exec strace -qq -o /dev/null -e trace=STEPS -e inject=STEPS:signal=KILL:when=WHEN git "$@"
    fi ;;
esac
exec git "$@"
"""
STEPS = "write,rename,unlink,unlinkat,mkdir,rmdir,symlink,link,close"


@pytest.mark.campaign
@pytest.mark.needs("strace")
@pytest.mark.parametrize(("verb", "nth", "name"), [("update-ref", 4, "clean"), ("read-tree", 1, "elsewhere")])
def test_a_git_killed_in_a_merge_leaves_no_lock_behind(tmp_path: Path, verb: str, nth: int, name: str) -> None:
    world = World(tmp_path, SETTINGS[name])
    tools, count = tmp_path / "tools", tmp_path / "count"
    tools.mkdir()

    def merge_with_traced_git() -> None:
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        world.merge_all()

    wrong, step, whole = [], 0, 0
    while whole < 4:
        step += 1
        words = {"VERB": verb, "COUNT": str(count), "NTH": str(nth), "WHEN": str(step), "STEPS": STEPS}
        text = TRACED
        for word, value in words.items():
            text = text.replace(word, value)
        (tools / "git").write_text(text)
        (tools / "git").chmod(0o755)
        count.unlink(missing_ok=True)
        world.renew()
        code = forks.run(merge_with_traced_git, quiet=world.quiet())
        whole = whole + 1 if code == 0 else 0
        world.settle(world.merge_all)
        wrong += [f"{verb} at its step {step}: {one}" for one in world.wrong()]
    print(f"git {verb}: {step - whole} steps, wrong {len(wrong)}")
    assert wrong == []
    assert step - whole > 5
