"""A crew of real supervisors with scripted agents, a keeper that starts again who was killed, and a person who adds
tasks, answers what is blocked and types what a message says is to be typed."""

from __future__ import annotations

import heapq
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from liza.crew.crew import find_crew
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, State, Status
from tests.campaign.scripts import AGENT, CHECK, CLOCK
from tests.conftest import make_repository
from tests.journeys.crews import BIN, Crew, processes_of

AGENTS = ("coder-1", "coder-2", "coder-3", "code-reviewer-1", "code-reviewer-2")
SETTINGS = {
    "heartbeat_interval": 1,
    "grace": 1,
    "hung_after": 30,
    "ready_timeout": 30,
    "poll_interval": 2,
    "restart_after_crash": 0.05,
    "restart_after_handoff": 0.05,
    "max_coder_iterations": 500,
    "max_review_cycles": 50,
}
SIZE = "600m"


@dataclass
class World:
    """Everything that the monkey can reach, and what it has to remember for the judgement."""

    crew: Crew
    disk: Path
    mounted: bool
    chance: random.Random
    tasks: int
    """How many are open at once."""
    lease: int
    keepers: dict[str, Keeper] = field(default_factory=dict)
    told: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    copies: deque[bytes] = field(default_factory=lambda: deque(maxlen=12))
    described: dict[str, str] = field(default_factory=dict)
    noted: list[str] = field(default_factory=list)
    unsaid: set[int] = field(default_factory=set)
    """Revisions whose line the monkey took out of the journal."""
    _undo: list[tuple[float, int, str, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def root(self) -> Path:
        return self.crew.root

    @property
    def notes(self) -> Path:
        return self.crew.notes

    def tell(self, text: str) -> None:
        """Remember for whoever has to find out why a run failed."""
        line = f"{time.monotonic() - self.began:7.2f}  {text}"
        self.told.append(line)
        with (self.notes / "story.log").open("a") as log:
            log.write(line + "\n")

    def later(self, seconds: float, kind: str, undo: Callable[[], None]) -> None:
        """Have a fault last for ``seconds``."""
        self._count += 1
        heapq.heappush(self._undo, (time.monotonic() + seconds, self._count, kind, undo))

    def lasting(self) -> set[str]:
        """The kinds of faults that last at this moment."""
        return {kind for _, _, kind, _ in self._undo}

    def pass_by(self, seconds: float) -> None:
        """Let time go on, and end what has lasted long enough."""
        end = time.monotonic() + seconds
        while True:
            due = self._undo[0][0] if self._undo else end
            if due > end:
                due = end
            if (left := due - time.monotonic()) > 0:
                threading.Event().wait(left)
            if self._undo and self._undo[0][0] <= time.monotonic():
                self._end_one()
            elif due >= end:
                return

    def end_all(self) -> None:
        """End every fault that lasts."""
        while self._undo:
            self._end_one()

    def _end_one(self) -> None:
        _, _, kind, undo = heapq.heappop(self._undo)
        try:
            undo()
        except OSError:
            # Another fault is in the way of its end.
            self.later(0.3, kind, undo)

    def state(self) -> State | None:
        """The board, as a crew member sees it; None where it cannot be read."""
        try:
            crew = find_crew(self.root)
            state = crew.board.read()
            crew.log_board_alerts()
        except (LizaError, OSError):
            return None
        return state


class Keeper(threading.Thread):
    """Starts the supervisor of one agent again whenever it is gone, as a service manager does."""

    def __init__(self, world: World, agent: str, program: str) -> None:
        super().__init__(daemon=True, name=f"keeper-{agent}")
        self.world, self.agent, self.program = world, agent, program
        self.over = threading.Event()
        self.delay = 0.2
        self.exits: list[int] = []
        self.log = world.notes / f"{agent}.log"
        self.process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                [BIN / "liza-agent", self.agent, "--program", self.program],
                cwd=self.world.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(self.world.notes / "clock")},
            )  # fmt: skip

    def run(self) -> None:
        while True:
            self.exits.append(self.process.wait())
            if self.over.wait(self.delay):
                return
            self.delay = 0.2
            with suppress(OSError):
                self.process = self._begin()

    def last_said(self) -> str:
        """The newest line of the supervisor's."""
        lines = self.log.read_text(errors="replace").rstrip().rsplit("\n", 1)
        return lines[-1]


class Person(threading.Thread):
    """Looks now and then, and does what people do."""

    HINT = re.compile(r"next: (?:liza edit, or: )?(liza restore --last-good|liza doctor --fix|mv \S+ \S+)\)?$")

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True, name="person")
        self.world = world
        self.over = threading.Event()
        self.adding = True
        self.added = world.tasks
        self.typed: list[str] = []
        self.heard: dict[str, int] = {}
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.wait(0.3):
                self._look()
        except BaseException as failed:
            self.failed = failed

    def _look(self) -> None:
        state = self.world.state()
        self._heed(state is None)
        if state is None:
            return
        working = [
            task for task in state.tasks if task.status not in FINAL_STATUSES and task.status is not Status.BLOCKED
        ]
        if self.adding and len(working) < self.world.tasks:
            self._add()
        for task in state.tasks:
            if task.status is Status.BLOCKED and len(task.failed_by) < 2:
                self.type("task", "unblock", task.id, *["--answer=go on"] * len(task.blocked_questions))

    def _heed(self, unreadable: bool) -> None:
        """Type what the newest line of a supervisor says is to be typed; once more where it did not help."""
        for keeper in self.world.keepers.values():
            said = keeper.last_said()
            found = self.HINT.search(said)
            times = self.heard.get(said, 0)
            self.heard = {**self.heard, said: times + 1} if found else self.heard
            if found and times % 8 == 2 and (unreadable or "restore" not in found[1]):
                self.type(*found[1].split())

    def _add(self) -> None:
        name = f"t{self.added + 1}"
        words = ["--id", name, "--desc", f"Write {name} (v0)", "--done", f"{name}.txt is there"]
        if self.type("task", "add", *words, "--scope", f"{name}.txt", "--spec", "README.md") in (0, 1):
            self.added += 1

    def type(self, *words: str) -> int:
        """``liza`` with these words, or ``mv``."""
        words = words[1:] if words[0] == "liza" else words
        line = [*words] if words[0] == "mv" else [str(BIN / "liza"), *words]
        done = subprocess.run(
            line, cwd=self.world.root, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(self.world.notes / "clock")},
        )  # fmt: skip
        told = " ".join((done.stderr if done.returncode else done.stdout).split())[:240]
        self.typed.append(words[0])
        self.world.tell(f"person: {' '.join(words)} → {done.returncode} {told}")
        hint = self.HINT.search(done.stderr.strip())
        if hint and "restore" in hint[1] and words[0] != "restore":
            self.type(*hint[1].split())
        return done.returncode


@contextmanager
def world(tmp_path: Path, seed: int, tasks: int, lease: int) -> Iterator[World]:
    """A crew on a small disk of its own, where that is permitted; nothing of it is left afterwards."""
    disk, notes = tmp_path / "disk", tmp_path / "notes"
    disk.mkdir()
    (notes / "clock").mkdir(parents=True)
    mounted = _mount("-t", "tmpfs", "-o", f"size={SIZE}", "none", disk)
    crew = Crew(disk / "project", notes)
    made = World(crew, disk, mounted, random.Random(seed), tasks, lease)
    try:
        _project(made)
        yield made
    finally:
        for keeper in made.keepers.values():
            keeper.over.set()
        made.end_all()
        for keeper in made.keepers.values():
            keeper.process.kill()
        _kill_all(crew.root)
        while mounted and os.path.ismount(disk):
            subprocess.run(["umount", "-l", disk], check=False)


def _kill_all(root: Path) -> None:
    for _ in range(20):
        found = processes_of(root)
        for pid, _ in found:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        if not found:
            return
        threading.Event().wait(0.05)


def _mount(*words: str | Path) -> bool:
    return subprocess.run(["mount", *map(str, words)], capture_output=True, check=False).returncode == 0


def _project(made: World) -> None:
    crew = made.crew
    make_repository(
        crew.root, {"README.md": "# A project\n\nEach task writes a file of its own name.\n", "check.sh": CHECK}
    )
    (crew.root / "README.md").write_text("# A project\n\nNot yet committed by its person.\n")
    (crew.root / "mine.txt").write_text("mine\n")
    (crew.notes / "clock" / "sitecustomize.py").write_text(CLOCK)
    (crew.notes / "clock" / "offset").write_text("0\n")
    program = crew.notes / "agent"
    program.write_text(AGENT.replace("@NOTES@", str(crew.notes)))
    program.chmod(0o755)
    crew.liza("init", "Every file is there", "--test", f"sh ./check.sh {crew.notes}", "--program", f"script:{program}")
    crew.configure(**SETTINGS, lease_duration=made.lease)
    for number in range(1, made.tasks + 1):
        crew.add(f"t{number}", description=f"Write t{number} (v0)")


def begin(made: World) -> Person:
    """Start the crew, and the person."""
    for agent in AGENTS:
        made.keepers[agent] = keeper = Keeper(made, agent, f"script:{made.notes / 'agent'}")
        keeper.start()
    person = Person(made)
    person.start()
    made.crew.wait(lambda state: any(task.history for task in state.tasks), "the first task")
    return person


def is_quiet(state: State | None) -> bool:
    """Whether nothing is left that the crew could do."""
    if state is None:
        return False
    return all(_explained(task.status, task.blocked_reason, len(task.failed_by)) for task in state.tasks)


def _explained(status: Status, reason: str | None, failed: int) -> bool:
    return status in FINAL_STATUSES or (status is Status.BLOCKED and bool(reason) and failed >= 2)


def lines(made: World, name: str) -> list[str]:
    """What agents left in a file of notes; a torn last line is one of them."""
    path = made.notes / name
    return path.read_text().splitlines() if path.exists() else []


def report(made: World) -> str:
    """What could say why a run failed; the crew's files are kept beside it, for the disk they are on will go."""
    kept = made.notes / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(made.root, kept, symlinks=True, ignore=shutil.ignore_patterns("*.fifo"))
    logs = [*sorted(made.notes.glob("*.log")), made.crew.paths.alerts]
    texts = [
        f"── {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-25:]) for log in logs if log.exists()
    ]
    state = made.state()
    tasks = [] if state is None else [task for task in state.tasks if task.status not in FINAL_STATUSES]
    told = [f"{task.id} {task.status} {task.assigned_to} {task.run} {task.blocked_reason}" for task in tasks]
    return "\n".join([*list(made.told)[-60:], *told, *texts])
