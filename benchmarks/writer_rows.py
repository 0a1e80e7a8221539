"""Rows of many writers: processes that are started first and then released at a gate together.

``python -m benchmarks.writer_rows KIND ROOT NUMBER SECONDS`` is one writer: it waits for the end of its stdin.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.board_rows import BARE_NAME, replace_bare
from benchmarks.options import Options
from benchmarks.rows import Row, percentile, summarize
from benchmarks.sample_boards import WallClock, board_text, flip
from liza.board.file_store.file_board import FileBoard
from liza.model.errors import LockTimeout
from liza.model.paths import Paths

TASKS = 50


def write_until(kind: str, root: Path, number: int, seconds: float) -> None:
    """One writer: wait at the gate, then change the board as often as possible for ``seconds``."""
    board = FileBoard(Paths(root), WallClock())
    task_id = f"task-{number % TASKS}"
    if kind == "liza":
        board.read()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    taken, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        if kind == "bare":
            replace_bare(root)
        else:
            try:
                flip(board, task_id)
            except LockTimeout:
                continue  # it counts for nothing: the share of this writer shows it
        taken.append((time.perf_counter() - start) * 1000)
    print(*(f"{value:.2f}" for value in taken))


class Outcome:
    """What the writers did together: changes per second, the time of each change, changes per writer, lost changes."""

    def __init__(self, options: Options, kind: str, writers: int, seconds: float) -> None:
        root = Path(tempfile.mkdtemp(prefix="writers-", dir=options.scratch))
        try:
            board = FileBoard(Paths(root), WallClock())
            board.create(board_text(TASKS))
            (root / ".liza" / "bare.yaml").write_text(board_text(TASKS))
            each, self.seconds = _run(kind, root, writers, seconds)
            self.lost = sum(map(len, each)) - (board.read().revision - 1) if kind == "liza" else 0
        finally:
            shutil.rmtree(root, ignore_errors=True)
        self.counts = [len(values) for values in each]
        self.taken = [value for values in each for value in values]

    @property
    def rate(self) -> float:
        return len(self.taken) / self.seconds

    @property
    def slowest_share(self) -> float:
        """Changes of the writer with the fewest, as a share of the mean."""
        return min(self.counts) * len(self.counts) / sum(self.counts)


def _run(kind: str, root: Path, writers: int, seconds: float) -> tuple[list[list[float]], float]:
    """Start the writers, wait until all have imported everything, open the gate; return the times and the seconds."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.writer_rows", kind, str(root), str(number), str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(writers)
    ]  # fmt: skip
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("a writer ended before the gate")
        start = time.perf_counter()
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
            child.stdin = None
        outputs = [child.communicate()[0] for child in children]
        took = time.perf_counter() - start
    finally:
        for child in children:
            child.kill()
            child.wait()
    return [[float(word) for word in output.split()] for output in outputs], max(took, seconds)


def measure(options: Options) -> Iterator[Row]:
    runs, seconds, crowd = (2, 0.5, 16) if options.quick else (5, 4.0, 64)
    pairs = [(Outcome(options, "liza", 8, seconds), Outcome(options, "bare", 8, seconds / 4)) for _ in range(runs)]
    own, bare = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    lost = [float(outcome.lost) for outcome in own]
    rates = summarize([outcome.rate for outcome in own])
    rivals = {BARE_NAME: summarize([outcome.rate for outcome in bare])}
    yield Row("writers", "8 writers, together", "transitions/s", rates, rivals, 250.0, "higher")
    taken = summarize([value for outcome in own for value in outcome.taken])
    rivals = {BARE_NAME: summarize([value for outcome in bare for value in outcome.taken])}
    yield Row("writers", "8 writers, p99 of one transition", "ms", taken, rivals, 100.0)
    yield Row("writers", "8 writers, lost transitions", "", summarize(lost), target=0.0, is_count=True)
    many, plain = Outcome(options, "liza", crowd, 2 * seconds), Outcome(options, "bare", crowd, seconds)
    rivals = {BARE_NAME: summarize([plain.slowest_share])}
    share = summarize([many.slowest_share])
    note = (
        f"changes of the slowest writer as a share of the mean; {many.rate:.0f}/s, p99 {percentile(many.taken, 99)} ms"
    )
    yield Row("writers", f"{crowd} writers, share of the slowest", "", share, rivals, 0.5, "higher", note=note)
    yield Row(
        "writers", f"{crowd} writers, lost transitions", "", summarize([float(many.lost)]), target=0.0, is_count=True
    )


if __name__ == "__main__":
    write_until(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
