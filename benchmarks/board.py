"""What the board costs, beside its rivals in the same run. ``python benchmarks/board.py [quick]`` prints a table.

The boards are below the system's temporary directory. If that is in memory, an fsync costs nothing: set ``TMPDIR`` to a
directory on a disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.board.store import Board
from liza.rules.model import Status
from liza.rules.paths import Paths

TASK = """\
  - id: "task-{n}"
    description: Add the invoice form to the checkout page, number {n}
    status: UNCLAIMED
    priority: 2
    created: "2026-01-01T12:00:00Z"
    spec_ref: specs/goal.md
    done_when: "the tests pass: all of them, and the form shows the total"
    scope: shop/checkout, shop/templates
    depends_on: []
    history:
      - {{time: "2026-01-01T12:00:00Z", event: add, agent: "planner-1"}}
      - {{time: "2026-01-01T12:05:00Z", event: claim, agent: "coder-1", run: "coder-1.7"}}
"""


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory that is removed at the end, also after SIGTERM (see ``main``)."""
    with tempfile.TemporaryDirectory(prefix="liza-bench-") as folder:
        yield Path(folder)


class Now:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC).replace(microsecond=0)

    def monotonic(self) -> float:
        return time.monotonic()


def board_text(tasks: int) -> str:
    head = "version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\ntasks:\n"
    agents = "agents:\n  coder-1:\n    role: coder\n    status: IDLE\n    runs: 9\n"
    return head + "".join(TASK.format(n=number) for number in range(tasks)) + agents


def flip(board: Board, number: int) -> None:
    """One transition: a task is blocked, or unblocked."""
    with board.transaction("coder-1.7", "flip", task=f"task-{number}") as tx:
        task = tx.state.task(f"task-{number}")
        assert task is not None
        if task.status is Status.UNCLAIMED:
            asked = {"blocked_reason": "why not", "blocked_questions": ("Which sender?",)}
            tx.state = tx.state.with_task(msgspec.structs.replace(task, status=Status.BLOCKED, **asked))
        else:
            asked = {"blocked_reason": None, "blocked_questions": ()}
            tx.state = tx.state.with_task(msgspec.structs.replace(task, status=Status.UNCLAIMED, **asked))


def bare(root: Path) -> None:
    """The rival without any check: lock, read, fsync, rename of the same bytes."""
    state = root / ".liza" / "bare.yaml"
    with (root / ".liza" / "bare.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = state.read_bytes()
        fresh = state.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(state)


def whole_file(text: str) -> None:
    """The rival that takes the file through ruamel."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.dump(yaml.load(text), io.StringIO())


def median(work: Callable[[], object], times: int) -> float:
    """Milliseconds."""
    return both(work, times)[0]


def both(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Milliseconds by the wall and of the processor: on a busy machine only the second says something."""
    found, own = [], []
    for _ in range(times):
        start, own_start = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start) * 1000)
        own.append((time.process_time() - own_start) * 1000)
    return statistics.median(found), statistics.median(own)


def transitions(sizes: tuple[int, ...]) -> None:
    print("one locked transition, median ms      limit   liza  (cpu)  lock+read+fsync+rename   ruamel, whole file")
    for tasks, limit in zip(sizes, (3, 6, 30), strict=False):
        with scratch_directory() as root:
            board = Board(Paths(root), Now())
            text = board_text(tasks)
            board.create(text)
            (root / ".liza" / "bare.yaml").write_text(text)
            flip(board, tasks // 2)
            own, busy = both(lambda: flip(board, tasks // 2), 41)  # noqa: B023
            rival = median(lambda: bare(root), 41)
            slow = median(lambda: whole_file(text), 1) if tasks <= 500 else float("nan")  # noqa: B023
            size = f"{tasks:5d} tasks, {len(text) / 1e6:5.2f} MB"
            print(f"  {size:36s} {limit:5d} {own:6.1f} {busy:6.1f} {rival:24.1f} {slow:20.0f}")


def reading(tasks: int) -> None:
    with scratch_directory() as root:
        board, reader = Board(Paths(root), Now()), Board(Paths(root), Now())
        board.create(board_text(tasks))
        reader.read()
        found = []
        for number in range(31):
            flip(board, number)
            found.append(median(reader.read, 1))
        fresh = median(lambda: Board(Paths(root), Now()).read(), 3)
        changed = statistics.median(found)
        print(f"read after one change, {tasks} tasks: {changed:.1f} ms (limit 5); from nothing {fresh:.0f} ms")


def work(root: str, number: str, times: str, pause: str) -> None:
    """One of several processes."""
    board = Board(Paths(Path(root)), Now())
    slowest = []
    for _ in range(int(times)):
        start = time.perf_counter()
        flip(board, int(number))
        slowest.append(time.perf_counter() - start)
        time.sleep(float(pause))
    print(*(f"{one * 1000:.2f}" for one in slowest))


def together(processes: int, times: int, pause: float) -> None:
    with scratch_directory() as root:
        board = Board(Paths(root), Now())
        board.create(board_text(50))
        start = time.perf_counter()
        words = [sys.executable, __file__, "work", str(root)]
        children = [
            subprocess.Popen([*words, str(number), str(times), str(pause)], stdout=subprocess.PIPE, text=True)
            for number in range(processes)
        ]
        try:
            took = sorted(float(one) for child in children for one in child.communicate()[0].split())
        finally:
            for child in children:
                child.kill()
                child.wait()
        seconds = time.perf_counter() - start
        lost = processes * times - (board.read().revision - 1)
        print(
            f"{processes} processes, {times} transitions each, {pause * 1000:g} ms pause: "
            f"{processes * times / seconds:.0f}/s (limit 200), {lost} lost, "
            f"p50 {took[len(took) // 2]:.0f} ms, p99 {took[int(len(took) * 0.99)]:.0f} ms (limit 150)"
        )


def by_hand(times: int) -> None:
    """The rival of the shell: flock and yq, without any check."""
    if not shutil.which("yq"):
        print("flock + yq -i: yq is not here")
        return
    told = subprocess.run(["yq", "--help"], capture_output=True, text=True, check=False).stdout
    words = ["-y"] if "jq wrapper" in told else []
    with scratch_directory() as root:
        state = root / "state.yaml"
        state.write_text(board_text(50))
        command = ["flock", f"{state}.lock", "yq", "-i", *words, ".revision += 1", str(state)]
        took = median(lambda: subprocess.run(command, check=True), times)
        print(f"flock + yq -i: {1000 / took:.0f}/s, one after another, without any check")


def main() -> None:
    quick = sys.argv[1:] == ["quick"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    transitions((50, 500) if quick else (50, 500, 5000))
    reading(500)
    for pause in (0.004, 0.0):
        together(8, 20 if quick else 200, pause)
    by_hand(5)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        main()
