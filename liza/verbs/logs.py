"""logs: what the program of an agent printed."""

from __future__ import annotations

import codecs
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from liza.board import events
from liza.programs import rundir
from liza.rules.errors import Refused, UnknownId
from liza.rules.paths import agent_id, agent_of
from liza.rules.secrets import redacted
from liza.verbs.crew import Crew

LONGEST_WAIT = 30.0  # seconds: a look in between, should an event have been lost
_STEP = 1 << 16
_MOST = 1 << 22  # bytes read at once


def logs(crew: Crew, name: str, lines: int) -> dict[str, Any]:
    """The last ``lines`` lines of an agent's newest run, or of the run that was named. Raises UnknownId, Refused."""
    run = name if "." in name else newest_run(crew, agent_id(name))
    path = crew.run_dir(run).output
    if not path.exists():
        raise Refused(f"{run} printed nothing: no program was started for it", f"liza agents {agent_of(run)}")
    text, size = _tail(path, lines)
    return {"agent": agent_of(run), "run": run, "path": str(path), "bytes": size, "output": redacted(text)}


def newest_run(crew: Crew, agent: str) -> str:
    """The newest run of an agent that left output; the newest of all where none did. Raises UnknownId, Refused."""
    state = crew.board.read()
    if agent not in state.agents:
        raise UnknownId(f"there is no agent {agent} on the board", "liza agents")
    found = rundir.runs_of(crew.paths, agent)
    if not found:
        raise Refused(f"{agent} has run no program yet", f"liza agents {agent}")
    told = [run for run in found if crew.run_dir(run).output.exists()]
    return (told or list(found))[-1]


def follow(crew: Crew, known: dict[str, Any]) -> Iterator[str]:
    """What comes after what is known: of this run, and of the agent's next ones, each with a line that names it."""
    run, place = str(known["run"]), int(known["bytes"])
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    heard: queue.Queue[Any] = queue.Queue()
    while True:
        path = crew.run_dir(run).output
        with events.watch(crew.paths, (path.parent,)) as watch:
            watch.put_into(heard)
            while (newer := newest_run(crew, agent_of(run))) == run:
                text, place = _more(path, place, decoder)
                if text:
                    yield redacted(text)
                else:
                    _wait(heard)
        text, place = _more(path, place, decoder)
        yield f"{redacted(text)}\n── {newer} ──\n"
        run, place = newer, 0


def _more(path: Path, place: int, decoder: codecs.IncrementalDecoder) -> tuple[str, int]:
    with path.open("rb") as file:
        if file.seek(0, 2) < place:
            # It was cut because it had grown too large: what is left of it is new.
            place = 0
        file.seek(place)
        data = file.read(_MOST)
    return decoder.decode(data), place + len(data)


def _wait(heard: queue.Queue[Any]) -> None:
    try:
        heard.get(timeout=LONGEST_WAIT)
        while True:
            heard.get_nowait()
    except queue.Empty:
        return


def _tail(path: Path, lines: int) -> tuple[str, int]:
    """The last lines of a file, read from its end, and the size that they reach to."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start, data = size, b""
        while start > 0 and len(data) < _MOST and data.count(b"\n") <= lines:
            step = min(_STEP, start)
            start -= step
            file.seek(start)
            data = file.read(step) + data
    kept = data.splitlines(keepends=True)[-lines:]
    return b"".join(kept).decode("utf-8", "replace"), size
