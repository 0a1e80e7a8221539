"""Read the output of several agents, line by line, with times."""

from __future__ import annotations

import queue
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liza.board.contract import Board
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.paths import agent_of, sort_agents
from liza.model.value_classes import Mutable, Value, replace
from liza.programs import liveness
from liza.programs.session.run_directory import list_runs
from liza.system import untrusted_files
from liza.view import logs


class OutputLine(Value):
    """A line that a program wrote; ``time`` is None if it was not recorded. ``path``: its file; empty for the output of
    the run. ``offset``: its first byte; 0 if that is not known."""

    agent: str
    run: str
    time: datetime | None
    text: str
    offset: int = 0
    path: str = ""


class _Reader(Mutable):
    """Position of a reader: bytes read of a file, and the bytes of an incomplete line."""

    run: str
    path: Path
    offset: int = 0
    partial_line: bytes = b""
    over: bool = False


def sorted_agents(board: Board) -> list[str]:
    """Agents of the board, in a fixed order."""
    return sort_agents(board.read().agents)


Decode = Callable[[bytes], str]
"""Makes text of an output. The default removes secrets; with another one the caller does."""


def _output_path(crew: Crew, run: str) -> Path | None:
    return crew.run_dir(run).output_path


class FollowedFiles(Value):
    """The files that are followed. ``find_path`` returns the file of a run; while it returns None, it is called again
    after each event. ``decode`` makes text of the bytes. Another file than the output is read from its start."""

    decode: Decode = logs.redacted_text
    find_path: Callable[[Crew, str], Path | None] = _output_path


OUTPUTS = FollowedFiles()


def read_recent_lines(
    crew: Crew, names: Sequence[str], most: int, since: datetime | None, decode: Decode = logs.redacted_text
) -> tuple[list[OutputLine], dict[str, int]]:
    """Return the last ``most`` lines of each agent's newest run, or of each named run, by time; and the end offset of
    each run in bytes.

    An agent without output has no lines. Raises NotRegularFile, Refused if a named run has no output.
    """
    recent: list[OutputLine] = []
    offsets: dict[str, int] = {}
    for run in _runs(crew, names):
        tail = logs.read_output(crew, run, most)
        data, size = tail.data, tail.size
        complete = data[: logs.complete_length(data)] if liveness.is_session_living(crew.run_dir(run)) else data
        offsets[run] = size - len(data) + len(complete)
        changed = datetime.fromtimestamp(tail.changed, UTC).replace(microsecond=0)
        lines = _lines(crew, run, decode(complete), complete, size - len(data), changed)
        recent += [line for line in lines if since is None or (line.time or changed) >= since]
    return sorted(recent, key=lambda line: line.time or datetime.max.replace(tzinfo=UTC)), offsets


def follow_lines(
    crew: Crew, names: Sequence[str] | None, offsets: dict[str, int], files: FollowedFiles = OUTPUTS
) -> Iterator[OutputLine]:
    """Yield new lines after these offsets, of these runs and of the agents' next runs. Raises NotRegularFile.

    ``names`` None: of all agents, also of those that come later. ``offsets`` are those of the files that ``files``
    names.
    """
    readers: dict[str, _Reader] = {}
    events_queue: queue.Queue[Any] = queue.Queue()
    while True:
        runs = _runs(crew, names)
        readers.update(_open_readers(crew, [run for run in runs if run not in readers], offsets, files))
        directories = {crew.run_dir(run).output_path.parent for run in runs} | {
            reader.path.parent for reader in readers.values()
        }
        # The last output of a replaced run is read once more before its reader is dropped.
        with crew.board.watch(directories) as watch:
            watch.subscribe(events_queue)
            for run in tuple(readers):
                yield from _read_more(crew, readers[run], files.decode)
                if run not in runs:
                    del readers[run]
            while _runs(crew, names) == runs:
                fresh = [line for reader in readers.values() for line in _read_more(crew, reader, files.decode)]
                yield from fresh
                if fresh:
                    continue
                logs.wait_for_event(events_queue)
                if _open_readers(crew, [run for run in runs if run not in readers], offsets, files):
                    break


def _open_readers(crew: Crew, runs: Sequence[str], offsets: dict[str, int], files: FollowedFiles) -> dict[str, _Reader]:
    """Return readers of those runs whose file exists by now."""
    paths = ((run, files.find_path(crew, run)) for run in runs)
    return {run: _Reader(run, path, offsets.get(run, 0)) for run, path in paths if path is not None}


def _runs(crew: Crew, names: Sequence[str] | None) -> list[str]:
    """Return the newest run with output of each agent, None: of all; a run in ``names`` stays as it is."""
    runs = []
    for name in sorted_agents(crew.board) if names is None else names:
        if "." in name:
            runs.append(name)
            continue
        with_output = [run for run in list_runs(crew.paths, name) if crew.run_dir(run).output_path.exists()]
        runs += with_output[-1:]
    return runs


def _read_more(crew: Crew, reader: _Reader, decode: Decode) -> list[OutputLine]:
    try:
        over = liveness.is_session_over(crew.run_dir(reader.run))
    except LizaError:
        over = False
    new_bytes, end_offset = logs.read_from(reader.path, reader.offset)
    start = reader.offset - len(reader.partial_line)
    data, reader.offset = reader.partial_line + new_bytes, end_offset
    end = len(data) if over and not new_bytes else logs.complete_length(data)
    reader.partial_line = data[end:]
    lines = _lines(crew, reader.run, decode(data[:end]), data[:end], start) if end else []
    now = crew.clock.now()
    return [replace(line, time=line.time or now, path=str(reader.path)) for line in lines]


def _lines(
    crew: Crew, run: str, text: str, data: bytes, start: int, changed: datetime | None = None
) -> list[OutputLine]:
    """Split the text of data into lines with times; without times if redaction changed the number of lines.

    ``changed``: the time of the last change of the output, which is that of the lines after the last note.
    """
    texts, raw = text.splitlines(), data.splitlines(keepends=True)
    times, agent = OutputTimes(crew.run_dir(run).output_path), agent_of(run)
    if len(texts) != len(raw):
        return [OutputLine(agent, run, None, text) for text in texts]
    lines, offset = [], start
    for text, line in zip(texts, raw, strict=True):
        when = times.time_at(offset + len(line)) or (changed if times.are_noted else None)
        lines.append(OutputLine(agent, run, when, text, offset))
        offset += len(line)
    return lines


MAX_NOTES_SIZE = 1 << 22  # maximum size of the notes, in bytes
TIMES_FILE = "output.times"


class OutputTimes:
    """The notes beside an ``output.log``. A smaller size means that the log was cut: earlier notes are dropped."""

    def __init__(self, output: Path) -> None:
        self._times: list[datetime] = []
        self._sizes: list[int] = []
        for line in _read_lines(output.with_name(TIMES_FILE)):
            when, _, size = line.partition(" ")
            if not (when.isdigit() and size.isdigit() and len(when) < 12):
                continue
            if self._sizes and int(size) < self._sizes[-1]:
                self._times, self._sizes = [], []
            self._times.append(datetime.fromtimestamp(int(when), UTC))
            self._sizes.append(int(size))

    @property
    def are_noted(self) -> bool:
        """Whether there is any note."""
        return bool(self._times)

    def time_at(self, offset: int) -> datetime | None:
        """Return when the byte before ``offset`` was written, to 1-2 seconds; None for output after the last
        note."""
        index = bisect_left(self._sizes, offset)
        return self._times[index] if index < len(self._times) else None


def _read_lines(path: Path) -> list[str]:
    try:
        data = untrusted_files.read_if_exists(path, MAX_NOTES_SIZE)
    except (LizaError, OSError):
        return []
    return [] if data is None else data.decode("ascii", "replace").splitlines()
