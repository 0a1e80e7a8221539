"""logs of several agents at once, line by line, each with its time."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from liza.board import events
from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.session.output_times import OutputTimes
from liza.programs.session.run_directory import list_runs
from liza.rules.errors import LizaError
from liza.rules.paths import agent_of, sort_agents
from liza.verbs import logs


@dataclass(frozen=True)
class OutputLine:
    """A line that a program printed; ``time`` is None where nobody noted it."""

    agent: str
    run: str
    time: datetime | None
    text: str


@dataclass
class _Reader:
    """How far the output of a run was read; what is ``held`` back is no whole line yet."""

    run: str
    offset: int = 0
    partial_line: bytes = b""
    over: bool = field(default=False)


def sorted_agents(crew: Crew) -> list[str]:
    """The agents of the board, in a fixed order."""
    return sort_agents(crew.board.read().agents)


def read_recent_lines(
    crew: Crew, names: Sequence[str], most: int, since: datetime | None
) -> tuple[list[OutputLine], dict[str, int]]:
    """The last ``most`` lines of each newest run, or named run, by time; and how far each run was read.

    An agent that printed nothing has none. Raises NoFile, Refused where a named run has no output.
    """
    found: list[OutputLine] = []
    places: dict[str, int] = {}
    for run in _runs(crew, names):
        path = logs.output_of(crew, run)
        data, size = logs.read_tail(path, most)
        kept = data[: logs.complete_length(data)] if run_state.is_session_living(crew.run_dir(run)) else data
        places[run] = size - len(data) + len(kept)
        changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(microsecond=0)
        lines = _lines(crew, run, kept, size - len(data))
        found += [one for one in lines if since is None or (one.time or changed) >= since]
    return sorted(found, key=lambda one: one.time or datetime.max.replace(tzinfo=UTC)), places


def follow_lines(crew: Crew, names: Sequence[str], places: dict[str, int]) -> Iterator[OutputLine]:
    """What comes after what was read, of these runs and of the agents' next ones. Raises NoFile."""
    readers = {run: _Reader(run, place) for run, place in places.items()}
    heard: queue.Queue[Any] = queue.Queue()
    while True:
        runs = _runs(crew, names)
        for run in runs:
            readers.setdefault(run, _Reader(run))
        # What an earlier run printed last is read once more before it is let go.
        with events.watch(crew.paths, [crew.run_dir(run).output_path.parent for run in runs]) as watch:
            watch.subscribe(heard)
            for run in tuple(readers):
                yield from _read_more(crew, readers[run])
                if run not in runs:
                    del readers[run]
            while _runs(crew, names) == runs:
                fresh = [line for run in runs for line in _read_more(crew, readers[run])]
                yield from fresh
                if not fresh:
                    logs.wait_for_event(heard)


def _runs(crew: Crew, names: Sequence[str]) -> list[str]:
    """The newest run with output of each agent; a run that was named is itself."""
    found = []
    for name in names:
        if "." in name:
            found.append(name)
            continue
        told = [run for run in list_runs(crew.paths, name) if crew.run_dir(run).output_path.exists()]
        found += told[-1:]
    return found


def _read_more(crew: Crew, reader: _Reader) -> list[OutputLine]:
    try:
        over = run_state.is_session_over(crew.run_dir(reader.run))
    except LizaError:
        over = False
    more, place = logs.read_from(crew.run_dir(reader.run).output_path, reader.offset)
    began = reader.offset - len(reader.partial_line)
    data, reader.offset = reader.partial_line + more, place
    end = len(data) if over and not more else logs.complete_length(data)
    reader.partial_line = data[end:]
    lines = _lines(crew, reader.run, data[:end], began) if end else []
    now = crew.clock.now()
    return [OutputLine(one.agent, one.run, one.time or now, one.text) for one in lines]


def _lines(crew: Crew, run: str, data: bytes, start: int) -> list[OutputLine]:
    """Whole lines with their times; without times where a secret of several lines was taken out."""
    texts, raw = logs.redacted_text(data).splitlines(), data.splitlines(keepends=True)
    printed, agent = OutputTimes(crew.run_dir(run).output_path), agent_of(run)
    if len(texts) != len(raw):
        return [OutputLine(agent, run, None, text) for text in texts]
    found, place = [], start
    for text, line in zip(texts, raw, strict=True):
        place += len(line)
        found.append(OutputLine(agent, run, printed.time_at(place), text))
    return found
