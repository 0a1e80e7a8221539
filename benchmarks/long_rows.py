"""Rows of one long run: a large crew works on thousands of tasks to the end.

This group is measured only by name: it takes half an hour.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import Options
from benchmarks.projects import INSTANT, history_size, project
from benchmarks.rows import Row, summarize
from benchmarks.running_crews import JournalWatch, RunningCrew
from tests.journeys.crews import BIN, Crew

GROUP = "long"
SAMPLES = 20  # of one run, evenly by the number of merged tasks
STALL = 300.0  # seconds without a merge after which the run has failed
ERRORS = ("Traceback", "this is a bug in liza")
"""What no supervisor may print."""


@dataclass(frozen=True)
class Sample:
    """The crew when ``merged`` tasks were merged: seconds since the start, memory of supervisors and files in MB."""

    merged: int
    seconds: float
    memory: float
    disk: float


def measure(options: Options) -> Iterator[Row]:
    """Throughput, memory and disk of a crew over the run; then what it printed, and whether the board is valid."""
    coders, reviewers, tasks = (3, 1, 20) if options.quick else (14, 6, 2_000)
    agents = [f"coder-{number}" for number in range(1, coders + 1)]
    agents += [f"code-reviewer-{number}" for number in range(1, reviewers + 1)]
    about = f"{tasks} tasks, {len(agents)} supervisors"
    with project(options) as crew:
        crew.add(*(f"t{number}" for number in range(tasks)))
        program = crew.script("agent", INSTANT)
        with JournalWatch(crew.paths.journal, pause=0.05) as watch, RunningCrew(crew, program, agents) as running:
            samples = list(_sample(options, crew, running, watch, tasks))
            usage = running.stop()
        errors = _count_errors(crew, agents)
        is_valid = subprocess.run([BIN / "liza", "validate"], cwd=crew.root, capture_output=True, check=False)
        history, journal = history_size(crew)
    yield from _points(samples, about)
    last = samples[-1]
    yield _row(f"{about}: tasks", "tasks/s", tasks / last.seconds, better="higher")
    yield _row(f"{about}: CPU per task", "s", usage["cpu"] / tasks)
    yield Row(
        GROUP, f"{about}: history on disk", "MB", summarize([history]), {"the journal": summarize([journal])},
        target=3 * journal,
    )  # fmt: skip
    yield _row(f"{about}: errors printed", "", float(errors), target=0.0)
    yield _row(f"{about}: exit code of validate", "", float(is_valid.returncode), target=0.0)


def _row(name: str, unit: str, value: float, target: float | None = None, better: str = "lower") -> Row:
    return Row(GROUP, name, unit, summarize([value]), target=target, better=better, is_count=not unit)


def _sample(options: Options, crew: Crew, running: RunningCrew, watch: JournalWatch, tasks: int) -> Iterator[Sample]:
    """Yield a sample for each SAMPLES-th part of the tasks, and one before the first. Raises RuntimeError."""
    begin = watch.wait(lambda record: record.get("event") == "reserve", limit=300)
    for number in range(SAMPLES + 1):
        wanted = tasks * number // SAMPLES
        merged = _wait_merged(watch, wanted)
        sample = Sample(merged, time.monotonic() - begin, max(running.memory()), disk_use(crew.root))
        options.log(f"{merged} merged, {sample.seconds:.0f} s, {sample.memory:.1f} MB, disk {sample.disk:.1f} MB")
        yield sample


def _wait_merged(watch: JournalWatch, wanted: int) -> int:
    """Return the number of merged tasks as soon as it is at least ``wanted``. Raises RuntimeError if merges stop."""
    merged, since = watch.count("merge"), time.monotonic()
    while merged < wanted:
        if time.monotonic() - since > STALL:
            raise RuntimeError(f"no merge in {STALL:g} s; {merged} are merged")
        time.sleep(0.2)
        before, merged = merged, watch.count("merge")
        since = time.monotonic() if merged > before else since
    return merged


def _points(samples: list[Sample], about: str) -> Iterator[Row]:
    for before, after in itertools.pairwise(samples):
        rate = (after.merged - before.merged) / (after.seconds - before.seconds)
        x = float(after.merged)
        for series, unit, value in (
            ("throughput", "tasks/s", rate),
            ("largest supervisor", "MB", after.memory),
            (".liza and .git", "MB", after.disk),
        ):
            yield Row(
                GROUP, f"{about}: {series}, {after.merged} merged", unit, summarize([value]), series=series, x=x,
                better="higher" if series == "throughput" else "lower",
            )  # fmt: skip


def disk_use(root: Path) -> float:
    """Return the space that `.liza` and `.git` take on the disk, in MB. Files that vanish meanwhile do not count."""
    du = shutil.which("du")
    assert du is not None
    said = subprocess.run([du, "-sk", ".liza", ".git"], cwd=root, capture_output=True, text=True, check=False).stdout
    return sum(int(line.split()[0]) for line in said.splitlines()) * 1024 / 1e6


def _count_errors(crew: Crew, agents: list[str]) -> int:
    """Return how many lines of the supervisors' logs name an error of Liza."""
    lines = [line for agent in agents for line in (crew.root.parent / f"{agent}.log").read_text().splitlines()]
    return sum(any(word in line for word in ERRORS) for line in lines)
