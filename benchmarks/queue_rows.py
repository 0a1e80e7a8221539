"""Rows of the merge queue: gate runs and time for the same approved tasks in batches and one by one."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.options import Options
from benchmarks.rows import Row, summarize
from liza.merging import gate_log
from liza.merging.merge import merge
from liza.model.configuration import QueueSettings
from liza.model.errors import Refused
from liza.model.gates import GateOutcome
from liza.project.baseline import InitOptions
from liza.project.init import init
from tests.conftest import git
from tests.edges.merge_crew import Merges

GROUP = "queue"
BATCH = 20
FLAKY_SHARE, SEED = 0.05, 1
WORK_SECONDS = 0.2  # of one run of the gate


@dataclass(frozen=True)
class QueueRun:
    """What became of a queue: gate runs, seconds, and the number of tasks by status."""

    gate_runs: int
    seconds: float
    statuses: Counter[str]


def measure(options: Options) -> Iterator[Row]:
    mixed, flaky = (12, 20) if options.quick else (40, 200)
    batches, single = (_merge_mixed(options, mixed, batch) for batch in (BATCH, 1))
    expected = Counter(MERGED=mixed - 2, INTEGRATION_FAILED=2)
    if batches.statuses != expected or single.statuses != expected:
        raise AssertionError(f"of {mixed} tasks with one bad one and two conflicting ones: {batches}, {single}")
    name = f"{mixed} approved tasks, one bad, two conflicting"
    yield _row(f"{name}: gate runs", "runs", batches.gate_runs, single.gate_runs, target=single.gate_runs / 4)
    yield _row(f"{name}: time", "s", batches.seconds, single.seconds)
    batches, single = (_merge_flaky(options, flaky, batch) for batch in (BATCH, 1))
    name = f"{flaky} approved tasks, a gate that fails {FLAKY_SHARE:.0%} of its runs"
    yield _row(f"{name}: gate runs", "runs", batches.gate_runs, single.gate_runs)
    yield _row(f"{name}: time", "s", batches.seconds, single.seconds)
    wrong = (run.statuses["INTEGRATION_FAILED"] for run in (batches, single))
    yield _row(f"{name}: wrongly rejected", "tasks", *wrong, target=0)


def _row(name: str, unit: str, own: float, one_by_one: float, target: float | None = None) -> Row:
    return Row(
        GROUP, name, unit, summarize([own]), {"one by one": summarize([one_by_one])}, target, is_count=unit != "s"
    )


def _merge_mixed(options: Options, tasks: int, batch: int) -> QueueRun:
    """Merge tasks of which one is bad and two change the same line."""
    bad, conflicting = tasks * 3 // 5, (tasks * 3 // 4, tasks * 3 // 4 + 1)
    with tempfile.TemporaryDirectory(prefix="queue-", dir=options.scratch) as directory:
        crew = _create_crew(Path(directory), batch)
        for number in range(tasks):
            _approve(crew, number, bad=number == bad, changes_readme=number in conflicting)
        crew.tests(f"sleep {WORK_SECONDS}; ! grep -qs BAD *.txt")
        return _merge_all(crew)


def _merge_flaky(options: Options, tasks: int, batch: int) -> QueueRun:
    """Merge good tasks with a gate that fails without a reason, in runs that the seed chooses."""
    rng = random.Random(SEED)
    failing = " ".join(str(run) for run in range(10 * tasks) if rng.random() < FLAKY_SHARE)
    with tempfile.TemporaryDirectory(prefix="queue-", dir=options.scratch) as directory:
        crew = _create_crew(Path(directory), batch)
        for number in range(tasks):
            _approve(crew, number)
        count = Path(directory) / "count"
        crew.tests(f'echo x >> {count}\ncase " {failing} " in *" $(($(wc -l < {count}))) "*) exit 1 ;; esac')
        return _merge_all(crew)


def _create_crew(directory: Path, batch: int) -> Merges:
    root = directory / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "README.md").write_text("# A project\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    init(root, InitOptions(goal="Everything is there", no_test=True))
    crew = Merges(root, directory)
    crew.configure(queue=QueueSettings(batch=batch), archive_after=10_000)
    return crew


def _approve(crew: Merges, number: int, *, bad: bool = False, changes_readme: bool = False) -> None:
    def work(slot: Path) -> None:
        if bad:
            (slot / f"bad-{number}.txt").write_text("BAD\n")
        if changes_readme:
            (slot / "README.md").write_text(f"changed by {number}\n")
        git(slot, "add", "-A")
        git(slot, "commit", "-q", "--allow-empty", "-m", "more")

    crew.approved(f"t{number:03}", work=work)


def _merge_all(crew: Merges) -> QueueRun:
    started = time.monotonic()
    while True:
        try:
            merge(crew.crew)
        except Refused as refused:
            if "no approved task" in refused.message:
                break
            raise
    seconds = time.monotonic() - started
    runs = [run for run in gate_log.read_runs(crew.crew.paths) if run.outcome is not GateOutcome.RUNNING]
    return QueueRun(len(runs), seconds, Counter(task.status.value for task in crew.crew.board.read().tasks))
