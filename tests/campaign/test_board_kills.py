"""kill -9 and a full disk at every point that a change of the board passes; afterwards it happened wholly or not at
all, nothing that was acknowledged is gone, and journal, seal and history agree."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from liza.board.file_store.file_board import FileBoard
from liza.crew import recorder
from liza.model.paths import Paths
from tests.campaign.small_board import (
    FIRST,
    beat,
    check,
    child,
    crew_of,
    history_of,
    journal_of,
    killed,
    messages,
    opened,
    passed,
    recorded,
    repository,
    say,
)

SEED = int(os.environ.get("LIZA_SEED", "20260101"))
Work = Callable[[Path], object]


@dataclass(frozen=True)
class Scene:
    """What was acknowledged before, what is then ended in its midst, and the fault that was there already."""

    name: str
    before: Work
    work: Work
    says: tuple[str, ...] = ()
    born: bool = True
    """Whether there is a board before the work."""


def two_notes(root: Path) -> None:
    board = opened(root)
    say(board, "one")
    say(board, "two")


def two_notes_and_a_beat(root: Path) -> None:
    two_notes(root)
    beat(opened(root))


def edited_by_hand(root: Path) -> None:
    two_notes_and_a_beat(root)
    state = Paths(root).state
    state.write_text(state.read_text().replace("The first", "The first, by hand"))
    long_ago = time.time() - 60
    os.utime(state, (long_ago, long_ago))


def recorded_before(root: Path) -> None:
    say(opened(root), "one")
    recorder.record_history(crew_of(root))
    say(opened(root), "two")


def left_by_a_kill(fault: str) -> Work:
    def leave(root: Path) -> None:
        two_notes_and_a_beat(root)
        assert killed(child(lambda: say(opened(root), "three"), fault))

    return leave


def an_edit(root: Path) -> None:
    board = opened(root)
    board.replace_text("human", board.read_text().replace("The second", "The second, edited"))


SCENES = (
    Scene("transaction", two_notes, lambda root: say(opened(root), "three"), ("three",)),
    Scene("transaction after a heartbeat", two_notes_and_a_beat, lambda root: say(opened(root), "three"), ("three",)),
    Scene("heartbeat", two_notes, lambda root: beat(opened(root))),
    Scene("first board", lambda root: None, lambda root: opened(root).create(FIRST), born=False),
    Scene("liza edit", two_notes_and_a_beat, an_edit),
    Scene("settling an edit by hand", edited_by_hand, lambda root: opened(root).read()),
    Scene("recording", recorded_before, lambda root: recorder.record_history(crew_of(root))),
)
"""What is killed at each of its points."""
LEFTOVERS = tuple(
    Scene(f"settling a kill at {fault}", left_by_a_kill(fault), lambda root: say(opened(root), "four"), ("four",))
    for fault in (
        "part#1",
        "synced.next",
        "part#2",
        "written.log.yaml",
        "synced.log.yaml",
        "part#3",
        "renamed.seal",
        "renamed.state.yaml",
        "fsynced.state.yaml",
    )
)
"""The same for what a kill leaves: whoever settles it is killed as well."""


def laid_down(scene: Scene, root: Path, with_git: bool) -> None:
    if with_git:
        repository(root)
    else:
        root.mkdir()
    if scene.born:
        opened(root).create(FIRST)
    scene.before(root)


def ended(scene: Scene, template: Path, root: Path, fault: str) -> int:
    """A copy of the scene with the work ended at the fault; the exit code of the child."""
    shutil.copytree(template, root, symlinks=True)
    stat = (template / ".liza/state.yaml").stat() if scene.born else None
    if stat:
        os.utime(root / ".liza/state.yaml", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return child(lambda: scene.work(root), fault)


def settled(scene: Scene, root: Path, code: int) -> None:
    """What must be true after the fault, for a fresh process that reads, writes and records."""
    board = opened(root)
    before = ["one", "two"] if scene.born else []
    if not scene.born and not Paths(root).state.exists():
        board.create(FIRST)
    state = board.read()
    said = messages(state)
    assert said[: len(before)] == before
    rest = said[len(before) :]
    assert [one for one in ("three", "four") if one in rest] == rest
    assert code != 0 or rest[-len(scene.says) :] == list(scene.says) or not scene.says
    assert len(state.tasks) == 2
    assert state.tasks[1].description in ("The second", "The second, edited")
    revision = say(board, "afterwards")
    assert revision > state.revision
    assert messages(opened(root).read()) == [*said, "afterwards"]
    assert len(check(root).tasks) == 2


def endured(scene: Scene, directory: Path, kinds: tuple[str, ...], with_git: bool) -> Counter[str]:
    """The scene ended at each of its points in each way; how often, by kind."""
    template = directory / "template"
    laid_down(scene, template, with_git)
    points = passed_in_a_copy(scene, template, directory)
    assert points
    counts: Counter[str] = Counter()
    # A git that finds no room says so itself; raising that in its parent would prove nothing.
    ends = [(point, kind) for point in points for kind in kinds if not (kind and point.startswith("git."))]
    for number, (point, kind) in enumerate(ends):
        root = directory / f"{number}"
        code = ended(scene, template, root, f"{point}{kind}")
        assert killed(code) if not kind else code in (0, 4), f"{scene.name}, {point}{kind}: {code}"
        try:
            settled(scene, root, code)
            if with_git:
                assert recorded(root) == journal_of(Paths(root))
        except Exception as wrong:
            raise AssertionError(f"{scene.name}, ended at {point}{kind}: {wrong}") from wrong
        counts[kind or ":kill"] += 1
        shutil.rmtree(root)
    return counts


def passed_in_a_copy(scene: Scene, template: Path, directory: Path) -> list[str]:
    root = directory / "traced"
    shutil.copytree(template, root, symlinks=True)
    if scene.born:
        stat = (template / ".liza/state.yaml").stat()
        os.utime(root / ".liza/state.yaml", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return passed(lambda: scene.work(root), directory / "trace")


@pytest.mark.parametrize(
    ("scenes", "kinds", "with_git"),
    [
        ((SCENES[1], SCENES[2], SCENES[3], SCENES[4]), ("",), False),
        ((SCENES[1],), (":full",), False),
        ((LEFTOVERS[6],), ("",), False),
        pytest.param((*SCENES, *LEFTOVERS), ("", ":full"), True, marks=pytest.mark.campaign),
    ],
    ids=["kills", "full disk", "settling is killed as well", "everything"],
)
def test_a_change_killed_at_any_point_loses_nothing_acknowledged(
    tmp_path: Path, scenes: tuple[Scene, ...], kinds: tuple[str, ...], with_git: bool
) -> None:
    total: Counter[str] = Counter()
    for number, scene in enumerate(scenes):
        begun = time.monotonic()
        directory = tmp_path / f"scene-{number}"
        directory.mkdir()
        counts = endured(scene, directory, kinds, with_git)
        total += counts
        print(f"{scene.name:46} {dict(counts)}  {time.monotonic() - begun:.1f} s  0 lost")
    print(f"{'in all':46} {dict(total)}")


def test_an_interrupted_revision_is_recorded_only_when_on_the_board(tmp_path: Path) -> None:
    root = tmp_path / "crew"
    repository(root)
    opened(root).create(FIRST)
    left_by_a_kill("renamed.seal")(root)
    assert sorted(recorded_now(root)) == [1, 2, 3]
    say(opened(root), "afterwards")
    assert recorded(root) == journal_of(Paths(root))
    assert messages(opened(root).read()) == ["one", "two", "afterwards"]


def recorded_now(root: Path) -> dict[int, str]:
    recorder.record_history(crew_of(root))
    return history_of(root)


# ── at any moment ────────────────────────────────────────────────────────────────────────────────────────────────────


def writing(root: Path, name: str, told: int) -> None:
    """Transactions without end; each is told to the parent when it was acknowledged."""
    board = opened(root)
    for number in range(1 << 20):
        say(board, f"{name}.{number}")
        if number % 3 == 0:
            beat(board)
        os.write(told, f"{name}.{number}\n".encode())


@pytest.mark.parametrize("kills", [8, pytest.param(300, marks=pytest.mark.campaign)])
def test_two_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path, kills: int) -> None:
    chance = random.Random(SEED)
    root = tmp_path / "crew"
    repository(root)
    opened(root).create(FIRST)
    acknowledged: list[str] = []
    begun = time.monotonic()
    for number in range(kills):
        acknowledged += one_round(root, number, chance.uniform(0.001, 0.15))
        said = messages(opened(root).read())
        assert set(acknowledged) <= set(said), f"seed {SEED}, kill {number}: lost"
        assert len(set(said)) == len(said), f"seed {SEED}, kill {number}: doubled"
        if number % 20 == 7:
            say(opened(root), f"settled {number}")
            check(root)
            recorder.record_history(crew_of(root))
            thinned(opened(root))
            acknowledged.clear()
    say(opened(root), "afterwards")
    check(root)
    shas = journal_of(Paths(root))
    recorder.record_history(crew_of(root))
    assert history_of(root) == shas
    voids = max(shas) - len(shas)
    seconds = time.monotonic() - begun
    print(f"seed {SEED}: {kills} kills, {len(shas)} revisions, {voids} void, {seconds:.1f} s, 0 lost, 0 doubled")


def one_round(root: Path, number: int, delay: float) -> list[str]:
    """Two writers, one of them killed after a moment, the other after another; what was acknowledged to them."""
    reader, writer = os.pipe()
    children = []
    for name in ("a", "b"):
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reader)
                writing(root, f"{name}{number}", writer)
            finally:
                os._exit(1)
        children.append(pid)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        first = told.readline()
        time.sleep(delay)  # the moment of the kill is what is drawn by lot
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return (first + told.read()).decode().split()


def thinned(board: FileBoard) -> None:
    """The notes taken out, so that a long campaign does not measure a long board."""
    with board.transaction("human", "thinned") as tx:
        import msgspec

        tx.state = msgspec.structs.replace(tx.state, human_notes=())


# ── a disk that is full, and one that takes no writes ────────────────────────────────────────────────────────────────

MOUNTED = """
import os, subprocess, sys
from pathlib import Path
place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
from liza.cli.app import run_liza as carry_out
from liza.cli.entry_points import run_reporting_errors as guarded
from tests.campaign.small_board import FIRST, beat, check, messages, opened, recorded, repository, say
root = place / "crew"
repository(root)
opened(root).create(FIRST)
long_lived = opened(root)
say(long_lived, "one")
os.chdir(root)

def refused(work):
    from liza.model.errors import LizaError
    try:
        work()
    except LizaError as error:
        assert error.hint and error.exit_code in (4, 5), (error, error.exit_code)
        print("refused:", error.exit_code, error.message, "->", error.hint)
    else:
        raise SystemExit("it was not refused")

def fill():
    with open(place / "filler", "wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError:
                pass

fill()
for _ in range(3):
    refused(lambda: say(long_lived, "never"))
refused(lambda: beat(long_lived))
refused(lambda: say(opened(root), "never"))
assert messages(long_lived.read()) == messages(opened(root).read()) == ["one"]
code = guarded(carry_out, ["note", "never"], "liza")
assert code in (4, 5), code
(place / "filler").unlink()
say(long_lived, "two")
assert messages(check(root)) == ["one", "two"], messages(check(root))
subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
refused(lambda: say(long_lived, "never"))
refused(lambda: say(opened(root), "never"))
assert messages(opened(root).read()) == ["one", "two"]
subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
say(long_lived, "three")
assert messages(check(root)) == ["one", "two", "three"]
assert len(recorded(root)) == 4
print("done")
"""


@pytest.mark.needs("unshare")
def test_a_full_or_read_only_disk_refuses_changes_by_name(
    tmp_path: Path,
) -> None:
    may = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], capture_output=True)
    if may.returncode:
        pytest.skip(f"nothing can be mounted here: {may.stderr.decode().strip()}")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", MOUNTED, str(place)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
