"""Kill -9 of supervisors and shims: one session at a time, no end is lost, nothing stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from liza.crew.crew import find_crew
from liza.programs.session import session_process
from liza.supervisor.main import supervise
from tests.campaign import forks
from tests.campaign.consistency import problems
from tests.campaign.worlds import World
from tests.conftest import commit_all, git
from tests.journeys.crews import Crew, processes_of

BLOCK = b"liza:begin run="

AGENT = """\
#!/bin/sh
set -eu
exec 9>> "NOTES/holder"
flock -n 9 || echo "$LIZA_RUN" >> "NOTES/doubles"
echo "$LIZA_RUN" >> "NOTES/lived"
liza ready > /dev/null
echo "$LIZA_RUN" >> "$LIZA_TASK.txt"
git add -A
git commit -q -m "work of $LIZA_RUN"
liza submit
"""


def _crew_with_agent(tracked: bool) -> Callable[[Crew], None]:
    def prepare(crew: Crew) -> None:
        if tracked:
            commit_all(crew.root, "rules", {"AGENTS.md": "Be kind.\n"})
            crew.git("branch", "-f", "integration", "main")
        crew.add("task-1")

    return prepare


@dataclass
class Lives:
    """Supervisors of coder-1 one after the other, the first of them killed."""

    world: World
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def _supervise(self) -> None:
        os.chdir(self.world.root)
        log = self.world.said.open("a")
        supervise(
            find_crew(self.world.root), "coder-1", f"script:{self.world.at}/agent", lambda text: print(text, file=log)
        )

    def live(self, fault: str = "", trace: Path | None = None, shim: Path | None = None) -> None:
        """One supervisor that dies of the fault, if it comes to it, then one that does not."""
        self.world.renew()
        self.world.said.unlink(missing_ok=True)

        def first() -> None:
            if shim is not None:
                session_process.SHIM_SCRIPT = shim  # type: ignore[misc]
            self._supervise()

        pid = forks.fork(first, fault, trace, self.world.said)
        code = self._until_over(pid)
        self.counts["killed" if code == -signal.SIGKILL else "lived on"] += 1
        if code == -signal.SIGKILL:
            code = self._until_over(forks.fork(self._supervise, quiet=self.world.said))
        if code != 0:
            self.wrong.append(f"{fault}: the supervisor ended with {code}: {self.world.told()}")

    def _until_over(self, pid: int) -> int:
        """Wait for the supervisor's death, or for the end of its work, and then stop it; its code."""
        handle, there = os.pidfd_open(pid), find_crew(self.world.root)
        try:
            # One that does not hold its lock yet hears no signal, and has brought nothing into the history.
            self.world.crew.wait(
                lambda _: _readable(handle) or (self._done() and there.is_supervised("coder-1")),
                f"the end of {pid}: {self.world.told()}",
            )
            if not _readable(handle):
                os.kill(pid, signal.SIGTERM)
            return forks.ended(pid)
        finally:
            os.close(handle)

    def _done(self) -> bool:
        runs = list((self.world.crew.paths.runs / "coder-1").glob("*"))
        return (
            self.world.crew.status("task-1") in ("READY_FOR_REVIEW", "BLOCKED")
            and bool(runs)
            and all((run / "settled").exists() for run in runs)
        )

    def judge(self, what: str, runs: tuple[str, ...] = ("coder-1.1",)) -> None:
        found = [*problems(self.world.root), *self._on_the_board(runs), *self._in_git(), *self._alive()]
        self.wrong += [f"{what}: {one}" for one in found]

    def _on_the_board(self, runs: tuple[str, ...]) -> list[str]:
        crew = self.world.crew
        task = crew.task("task-1")
        lived = (self.world.notes / "lived").read_text().split()
        found = [] if task.status == "READY_FOR_REVIEW" else [f"task-1 is {task.status}"]
        found += [f"submitted {n} times" for n in [crew.heard("task-1").count("submit")] if n != 1]
        if crew.heard("task-1").count("crash") != len(runs) - 1:
            found.append(f"crashes: {crew.heard('task-1')}")
        if (self.world.notes / "doubles").exists():
            found.append(f"two sessions at once: {(self.world.notes / 'doubles').read_text()}")
        if task.run != runs[-1] or Counter(lived) - Counter(runs):
            found.append(f"the last run is {task.run}; sessions that lived: {lived}")
        last = crew.paths.run(runs[-1])
        if (last / "word").read_text() != "0\n" or not (last / "settled").read_text().startswith("finished"):
            found.append(f"the end was lost: {(last / 'settled').read_text()}")
        return found

    def _in_git(self) -> list[str]:
        root = self.world.root
        found = []
        if BLOCK in git(root, "log", "-p", "task/task-1").encode():
            found.append("a brief was committed")
        for name in ("attributes", "exclude"):
            place = root / ".git" / "info" / name
            if place.exists() and BLOCK in place.read_bytes():
                found.append(f"a binding is left in info/{name}")
        there = self.world.crew.paths.slot("s1")
        if git(there, "status", "--porcelain"):
            found.append(f"the worktree is not clean: {git(there, 'status', '--porcelain')}")
        instructions = there / "AGENTS.md"
        if instructions.exists() and instructions.read_bytes() != b"Be kind.\n":
            found.append(f"AGENTS.md holds {instructions.read_bytes()[:80]!r}")
        return found

    def _alive(self) -> list[str]:
        return [f"process {pid} lives on: {words}" for pid, words in processes_of(self.world.root)]

    def clean(self) -> None:
        for pid, _ in processes_of(self.world.root):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _readable(handle: int) -> bool:
    import select

    return bool(select.select([handle], [], [], 0)[0])


def _lives(tmp_path: Path, tracked: bool) -> Lives:
    world = World(tmp_path, _crew_with_agent(tracked))
    (tmp_path / "agent").write_text(AGENT.replace("NOTES", str(world.notes)))
    (tmp_path / "agent").chmod(0o755)
    return Lives(world)


BEGIN, END = "claim.confirmed#1", "renamed.settled#1"
OF_THE_BOARD = ("log.yaml", "seal", "next", "state.yaml", "recorded", "alerts")
SHORT = ("renamed.brief#2", "conclude.brief-gone#1")


def _of_a_session(points: list[str]) -> list[str]:
    """From the claim that holds to the run that is settled; what a transaction does in between is killed elsewhere."""
    found = points[points.index(BEGIN) : points.index(END) + 1]
    steps = ("written", "synced", "renamed", "fsynced", "dropped")
    board = ("part", *(f"{step}.{name}" for step in steps for name in OF_THE_BOARD))
    return [point for point in found if not point.startswith(board)]


@pytest.mark.parametrize(
    ("tracked", "all_points"),
    [
        (True, False),
        pytest.param(True, True, marks=pytest.mark.campaign),
        pytest.param(False, True, marks=pytest.mark.campaign),
    ],
)
def test_a_supervisor_killed_after_its_claim_leaves_one_session(
    tmp_path: Path, tracked: bool, all_points: bool
) -> None:
    lives, began = _lives(tmp_path, tracked), time.monotonic()
    try:
        chosen: tuple[str, ...] | list[str] = SHORT
        if all_points:
            lives.live(trace=tmp_path / "trace")
            lives.judge("without a fault")
            chosen = _of_a_session(forks.passed(tmp_path / "trace"))
            # Half of them where nothing but the instructions file is different.
            chosen = chosen if tracked else chosen[::2]
        for point in chosen:
            lives.live(point)
            lives.judge(point)
    finally:
        lives.clean()
    print(f"supervisors, {tracked=}: {dict(lives.counts)}, {time.monotonic() - began:.0f} s, wrong {len(lives.wrong)}")
    assert lives.wrong == []
    # A poll that came earlier than in the trace may have moved a point; a campaign that mostly misses proves nothing.
    assert lives.counts["killed"] >= 0.9 * len(chosen)


SHIM = """import importlib.util, os, signal, sys
spec = importlib.util.spec_from_file_location("_shim", {real!r})
shim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shim)
write, rename = shim.write, os.rename
def die(name, when):
    if (name, when) == ({name!r}, {when!r}):
        try:
            os.unlink({mark!r})
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
def writing(name, content):
    die(name, "before")
    os.rename = lambda old, new: (die(name, "aside"), rename(old, new))
    write(name, content)
    die(name, "after")
shim.write = writing
if {when!r} == "first":
    die({name!r}, "first")
shim.main(*sys.argv[1:])
"""
SHIM_POINTS = [
    ("session.json", "first", 1),
    ("session.json", "before", 1),
    ("session.json", "aside", 1),
    ("session.json", "after", 2),
    ("exit.json", "before", 1),
    ("exit.json", "aside", 1),
    ("exit.json", "after", 1),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "when", "runs"), SHIM_POINTS)
def test_a_killed_shim_ends_its_program_and_the_work_continues(tmp_path: Path, name: str, when: str, runs: int) -> None:
    lives = _lives(tmp_path, tracked=True)
    mark, shim = tmp_path / "armed", tmp_path / "shim.py"
    mark.touch()
    shim.write_text(SHIM.format(real=str(session_process.SHIM_SCRIPT), name=name, when=when, mark=str(mark)))
    try:
        lives.live(shim=shim)
        lives.judge(f"{name}, {when}", tuple(f"coder-1.{number}" for number in range(1, runs + 1)))
    finally:
        lives.clean()
    assert lives.wrong == []
    assert not mark.exists()


@pytest.mark.campaign
def test_a_shim_and_supervisor_killed_together_leave_one_crash(
    tmp_path: Path,
) -> None:
    lives = _lives(tmp_path, tracked=True)
    gate = "[ $LIZA_RUN = coder-1.2 ] || { echo up > NOTES/up; exec sleep 1000; }\n"
    text = AGENT.replace("git add -A", gate + "git add -A").replace("NOTES", str(lives.world.notes))
    (tmp_path / "agent").write_text(text)
    try:
        lives.world.renew()
        pid = forks.fork(lives._supervise, quiet=lives.world.said)
        lives.world.crew.wait_note("up")
        found = lives.world.crew.session("coder-1.1")
        os.kill(pid, signal.SIGKILL)
        os.kill(found["shim"]["pid"], signal.SIGKILL)
        assert forks.ended(pid) == -signal.SIGKILL
        assert lives._until_over(forks.fork(lives._supervise, quiet=lives.world.said)) == 0
        lives.judge("shim and supervisor", ("coder-1.1", "coder-1.2"))
    finally:
        lives.clean()
    assert lives.wrong == []
