"""A crew that runs: its supervisors, what they spent, and when each revision of the board appeared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from liza.crew.crew import find_crew
from tests.journeys.crews import Crew

TICKS = os.sysconf("SC_CLK_TCK")


class RunningCrew:
    """The supervisors of a crew, started by `crew_process`. Use it in a ``with`` statement."""

    def __init__(self, crew: Crew, program: str, agents: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.crew, self.agents = crew, agents
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.crew_process", str(crew.root), program, *agents],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
        assert self._process.stdout is not None
        self.pids: list[int] = json.loads(self._process.stdout.readline())
        self.usage: dict[str, Any] = {}

    def __enter__(self) -> RunningCrew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> dict[str, Any]:
        """Stop the supervisors, wait for every process of the crew, and return ``cpu`` (seconds) and ``reaped``."""
        if not self.usage:
            out, _ = self._process.communicate(timeout=300)
            if not out.strip():
                raise RuntimeError(f"the process of the crew ended with {self._process.returncode}, without its usage")
            self.usage = json.loads(out.splitlines()[-1])
        return self.usage

    def wait_started(self) -> None:
        """Wait until every supervisor holds its lock and has signed on."""
        crew = find_crew(self.crew.root)
        self.crew.wait(
            lambda state: all(agent in state.agents and crew.is_supervised(agent) for agent in self.agents),
            "the start of all supervisors",
            limit=300,
        )

    def wait_quiet(self, seconds: float = 2.0, most: float = 1.0, limit: float = 120.0) -> None:
        """Wait until the supervisors used at most ``most`` milliseconds of CPU time in ``seconds``."""
        end, before, since = time.monotonic() + limit, self.cpu(), time.monotonic()
        while time.monotonic() - since < seconds:
            if time.monotonic() > end:
                raise RuntimeError("the crew does not become quiet")
            time.sleep(0.1)
            if (now := self.cpu()) > before + most:
                before, since = now, time.monotonic()

    def cpu(self) -> float:
        """CPU milliseconds of the supervisors so far, with the children that they waited for."""
        return sum(map(process_cpu, self.pids))

    def wake_ups(self) -> int:
        """How often threads of the supervisors were woken so far: each time that one blocks counts once."""
        return sum(map(voluntary_switches, self.pids))

    def memory(self) -> list[float]:
        """Resident memory of each supervisor, in MB."""
        return [resident_memory(pid) for pid in self.pids]


def process_cpu(pid: int) -> float:
    """CPU milliseconds of a process: its threads in nanoseconds by the scheduler, its children in clock ticks."""
    threads = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # The thread has just ended.
            threads += int((task / "schedstat").read_text().split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return threads / 1e6 + (int(fields[13]) + int(fields[14])) * 1000 / TICKS


def voluntary_switches(pid: int) -> int:
    """Number of times that threads of a process blocked."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


def resident_memory(pid: int) -> float:
    """Resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class JournalWatch:
    """Notes when each record of the journal appeared, by looking at the file every ``pause`` seconds."""

    def __init__(self, journal: Path, pause: float = 0.001) -> None:
        self._journal, self._pause = journal, pause
        self.records: list[tuple[float, dict[str, Any]]] = []
        self._offset = journal.stat().st_size if journal.exists() else 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> JournalWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(self._pause):
            try:
                size = self._journal.stat().st_size
            except FileNotFoundError:
                continue
            if size < self._offset:
                self._offset = 0  # a new file took the place of the old one
            if size > self._offset:
                self._read()

    def _read(self) -> None:
        now = time.monotonic()
        with self._journal.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"- "):
                self.records.append((now, json.loads(line[2:])))

    def wait(self, matches: Callable[[dict[str, Any]], bool], after: float = 0.0, limit: float = 120.0) -> float:
        """Return when the first matching record after ``after`` appeared. Raises RuntimeError."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for moment, record in list(self.records):
                if moment >= after and matches(record):
                    return moment
            time.sleep(0.002)
        raise RuntimeError("an expected revision did not appear")

    def count(self, event: str) -> int:
        """Return how many records there are of an event."""
        return sum(record.get("event") == event for _, record in list(self.records))
