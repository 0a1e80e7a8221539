"""logs: what the program of an agent printed."""

from __future__ import annotations

import queue
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liza.board import events
from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.session import run_archive, run_directory
from liza.rules.errors import Refused, UnknownId
from liza.rules.paths import agent_of, parse_agent_id
from liza.rules.redaction import redact, redactable_length
from liza.rules.suggestions import did_you_mean
from liza.system import atomic

MAX_WAIT = 30.0  # seconds: a look in between, should an event have been lost
_CHUNK_BYTES = 1 << 16
_MAX_BYTES = 1 << 22  # bytes read at once


def logs(crew: Crew, name: str, lines: int, followed: bool = False) -> dict[str, Any]:
    """The last ``lines`` lines of an agent's newest run, or of the run that was named; ``followed``: only as far as
    ``follow`` need not wait for more of them. Raises UnknownId, Refused, NoFile."""
    run = name if "." in name else find_newest_run(crew, parse_agent_id(name))
    path = output_of(crew, run)
    data, size = read_tail(path, lines)
    kept = data[: complete_length(data)] if followed else data
    known = size - len(data) + len(kept)
    return {"agent": agent_of(run), "run": run, "path": str(path), "bytes": known, "output": redacted_text(kept)}


def output_of(crew: Crew, run: str) -> Path:
    """The file with what a run printed. Raises Refused where there is none, with the place of its archive."""
    path = crew.run_dir(run).output_path
    if path.exists():
        return path
    archived = run_archive.archive_path(crew.paths, run)
    if archived.exists():
        raise Refused(f"{run} is archived in {archived}", f"tar -xzOf {shlex.quote(str(archived))} {run}/output.log")
    raise Refused(f"{run} printed nothing: no program was started for it", f"liza agents {agent_of(run)}")


def resolve_run(crew: Crew, name: str) -> str:
    """The run that had a task last, where ``name`` is a task and no agent; else the name. Raises Refused."""
    if "." in name:
        return name
    state = crew.board.read()
    task = state.task(name) if name not in state.agents else None
    if task is None:
        return name
    run = task.run or next((one.run for one in reversed(task.history) if one.run), None)
    if run is None:
        raise Refused(f"{name} is a task, and no agent has taken it yet", f"liza task show {name}")
    return run


def find_newest_run(crew: Crew, agent: str) -> str:
    """The newest run of an agent that left output; the newest of all where none did. Raises UnknownId, Refused."""
    state = crew.board.read()
    if agent not in state.agents:
        raise UnknownId(f"there is no agent {agent} on the board{did_you_mean(agent, state.agents)}", "liza agents")
    found = run_directory.list_runs(crew.paths, agent)
    if not found:
        raise Refused(f"{agent} has run no program yet", f"liza agents {agent}")
    told = [run for run in found if crew.run_dir(run).output_path.exists()]
    return (told or list(found))[-1]


def follow_output(crew: Crew, known: dict[str, Any]) -> Iterator[str]:
    """What comes after what is known: of this run, and of the agent's next ones, each with a line that names it.

    A line is held back until it ends, or the session does: a secret in two parts is known only in the whole.
    Raises NoFile.
    """
    run, place, held = str(known["run"]), int(known["bytes"]), b""
    heard: queue.Queue[Any] = queue.Queue()
    while True:
        path = crew.run_dir(run).output_path
        with events.watch(crew.paths, (path.parent,)) as watch:
            watch.subscribe(heard)
            while (newer := find_newest_run(crew, agent_of(run))) == run:
                over = bool(held) and run_state.is_session_over(crew.run_dir(run))
                more, place = read_from(path, place)
                held += more
                end = len(held) if over and not more else complete_length(held)
                if end:
                    yield redacted_text(held[:end])
                    held = held[end:]
                elif not more:
                    wait_for_event(heard)
        more, place = read_from(path, place)
        yield f"{redacted_text(held + more)}\n── {newer} ──\n"
        run, place, held = newer, 0, b""


def complete_length(data: bytes) -> int:
    """How much of it can be shown: whole lines, and no half of a secret."""
    # A character a byte: what it looks for has no others.
    return redactable_length(data.decode("latin-1"))


def redacted_text(data: bytes) -> str:
    """As text, without secrets."""
    return redact(data.decode("utf-8", "replace"))


def read_from(path: Path, place: int) -> tuple[bytes, int]:
    """What a file has from ``place`` on, and the place behind that; nothing of one that was archived or removed
    meanwhile. Raises NoFile."""
    try:
        with atomic.open_regular(path) as file:
            if file.seek(0, 2) < place:
                # It was cut because it had grown too large: what is left of it is new.
                place = 0
            file.seek(place)
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return b"", place
    return data, place + len(data)


def wait_for_event(heard: queue.Queue[Any]) -> None:
    """Until something happened, or for so long that an event must have been lost."""
    try:
        heard.get(timeout=MAX_WAIT)
        while True:
            heard.get_nowait()
    except queue.Empty:
        return


def read_tail(path: Path, lines: int) -> tuple[bytes, int]:
    """The last lines of a file, read from its end, and the size that they reach to."""
    with atomic.open_regular(path) as file:
        size = file.seek(0, 2)
        start, data = size, b""
        while start > 0 and len(data) < _MAX_BYTES and data.count(b"\n") <= lines:
            step = min(_CHUNK_BYTES, start)
            start -= step
            file.seek(start)
            data = file.read(step) + data
    return b"".join(data.splitlines(keepends=True)[-lines:]), size
