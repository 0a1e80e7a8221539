"""Rows of the board: a locked transition, reading, validation, and waking up another process."""

from __future__ import annotations

import fcntl
import io
import os
import queue
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.options import Options
from benchmarks.rows import Row, Samples, summarize
from benchmarks.sample_boards import WallClock, board_text, flip
from benchmarks.timing import interleave, milliseconds
from liza.board.directory_watch import DirectoryWatch
from liza.board.file_store.file_board import FileBoard
from liza.board.text import document
from liza.model.paths import Paths
from liza.recovery.validate import validate

LIMITS = {50: 3.0, 500: 6.0, 5000: 30.0}
POLL_SECONDS = 30.0
BARE_NAME = "lock + read + fsync + rename"


@contextmanager
def scratch_board(options: Options, tasks: int) -> Iterator[tuple[FileBoard, Path]]:
    """A board of its own with this many tasks, and its root."""
    root = Path(tempfile.mkdtemp(prefix="board-", dir=options.scratch))
    try:
        board = FileBoard(Paths(root), WallClock())
        board.create(board_text(tasks))
        yield board, root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def replace_bare(root: Path) -> None:
    """The rival without any check: lock, read, fsync and rename the same bytes."""
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


def dump_whole_file(text: str) -> None:
    """The rival that reads and writes the whole file with ruamel."""
    yaml = YAML()
    yaml.dump(yaml.load(text), io.StringIO())


def yq_command(state: Path) -> list[str] | None:
    """The rival of the shell, as a command: flock and yq, without any check; None if one is not installed."""
    if not shutil.which("yq") or not shutil.which("flock"):
        return None
    is_wrapper = "jq wrapper" in subprocess.run(["yq", "--help"], capture_output=True, text=True, check=False).stdout
    options = ["-y"] if is_wrapper else []
    return ["flock", f"{state}.lock", "yq", "-i", *options, ".revision += 1", str(state)]


def measure_transition(options: Options, tasks: int, target: float | None, group: str = "board") -> Row:
    """One locked transition on a board of this size, beside the rivals."""
    with scratch_board(options, tasks) as (board, root):
        text = board_text(tasks)
        (root / ".liza" / "bare.yaml").write_text(text)
        middle = f"task-{tasks // 2}"
        flip(board, middle)
        works = {"own": lambda: flip(board, middle), BARE_NAME: lambda: replace_bare(root)}
        taken = interleave(works, options.rounds(201 if tasks <= 500 else 61))
        rivals = {BARE_NAME: summarize(taken[BARE_NAME])}
        if group == "board":
            rivals |= _slow_rivals(options, root, text, tasks)
    return Row(
        group, f"transition, {tasks} tasks", "ms", summarize(taken["own"]), rivals, target,
        series="transition" if group == "growth" else "", x=float(tasks),
    )  # fmt: skip


def _slow_rivals(options: Options, root: Path, text: str, tasks: int) -> dict[str, Samples]:
    if tasks > 500:
        return {}
    rounds = options.rounds(9 if tasks <= 50 else 3)
    rivals = {"ruamel, whole file": summarize([milliseconds(lambda: dump_whole_file(text)) for _ in range(rounds)])}
    state = root / "state.yaml"
    state.write_text(text)
    command = yq_command(state)
    if command is not None:
        taken = [milliseconds(lambda: subprocess.run(command, check=True)) for _ in range(rounds)]
        rivals["flock + yq"] = summarize(taken)
    return rivals


def measure_reading(options: Options, tasks: int, group: str = "board") -> list[Row]:
    """Read after another process's change, read for the first time, and validate the file."""
    with scratch_board(options, tasks) as (board, root):
        reader = FileBoard(Paths(root), WallClock())
        state_file = root / ".liza" / "state.yaml"
        reader.read()
        taken: dict[str, list[float]] = {"change": [], "file": [], "first": [], "validate": []}
        rounds = options.rounds(41 if tasks <= 1000 else 15)
        for number in range(rounds):
            flip(board, f"task-{number % tasks}")
            taken["change"].append(milliseconds(reader.read))
            taken["file"].append(milliseconds(state_file.read_bytes))
            if number < 5:
                taken["first"].append(milliseconds(lambda: FileBoard(Paths(root), WallClock()).read()))
            if number < (15 if tasks <= 1000 else 3):
                taken["validate"].append(milliseconds(lambda: validate(state_file)))
        text = state_file.read_text()
        whole = [milliseconds(lambda: YAML(typ="safe").load(text)) for _ in range(2 if tasks <= 500 else 1)]
    rivals: dict[str, Any] = {"reading the bytes": summarize(taken["file"])}
    where = {"x": float(tasks)}
    name = lambda series: series if group == "growth" else ""  # noqa: E731
    return [
        Row(group, f"read after one change, {tasks} tasks", "ms", summarize(taken["change"]), rivals,
            series=name("read"), **where),
        Row(group, f"first read of a process, {tasks} tasks", "ms", summarize(taken["first"]),
            {"YAML into dictionaries": summarize(whole)} if tasks <= 1000 else {}, series=name("first read"), **where),
        Row(group, f"validate, {tasks} tasks", "ms", summarize(taken["validate"]), series=name("validate"), **where),
    ]  # fmt: skip


def measure_wake_up(options: Options, tasks: int, group: str = "board") -> Row:
    """From the rename that commits a change until a watcher has its event."""
    with scratch_board(options, tasks) as (_, root), DirectoryWatch(Paths(root)) as watch:
        heard: queue.Queue[Any] = queue.Queue()
        watch.subscribe(heard)
        state_file, taken = root / ".liza" / "state.yaml", []
        for _ in range(options.rounds(41)):
            fresh = root / ".liza" / "tx" / "fresh"
            fresh.write_bytes(state_file.read_bytes())
            start = time.perf_counter()
            fresh.rename(state_file)
            heard.get(timeout=10)
            taken.append((time.perf_counter() - start) * 1000)
            time.sleep(0.02)
            while not heard.empty():
                heard.get_nowait()
    rivals = {f"polling every {POLL_SECONDS:g} s (computed)": summarize([POLL_SECONDS * 1000 / 2])}
    return Row(
        group, f"wake-up after a change, {tasks} tasks", "ms", summarize(taken), rivals, 50.0,
        series="wake-up" if group == "growth" else "", x=float(tasks),
        note="the rival is the expected value of a uniform wait, not measured",
    )  # fmt: skip


def measure_parse(options: Options, tasks: int) -> Row:
    """Parse a board that no cache knows, which repair and restore do."""
    text = board_text(tasks)
    taken = interleave(
        {"own": lambda: document.read_document(text), "safe": lambda: YAML(typ="safe").load(text)}, options.rounds(5)
    )
    rivals = {"YAML into dictionaries": summarize(taken["safe"])}
    return Row("board", f"parse and check the text, {tasks} tasks", "ms", summarize(taken["own"]), rivals)


def measure(options: Options) -> Iterator[Row]:
    for tasks, limit in LIMITS.items():
        if tasks < 5000 or not options.quick:
            yield measure_transition(options, tasks, limit)
    yield from measure_reading(options, 500)
    yield measure_parse(options, 50)
    yield measure_wake_up(options, 50)
