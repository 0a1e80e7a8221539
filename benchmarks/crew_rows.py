"""Rows of whole crews with agents that need no model: throughput, CPU and processes per task, CPU per revision."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.options import Options
from benchmarks.projects import INSTANT, history_size, project
from benchmarks.rows import Row, summarize
from benchmarks.running_crews import JournalWatch, RunningCrew
from benchmarks.timing import wait_for
from liza.model.model import FINAL_STATUSES, State
from liza.model.statuses import AgentStatus
from tests.journeys.crews import Crew
from tests.journeys.process_probe import PROBE, read_starts

AGENTS = (*(f"coder-{number}" for number in range(1, 5)), "code-reviewer-1", "code-reviewer-2")
TASK = ("--desc", "Write", "--done", "it is there", "--scope", "other.txt", "--spec", "README.md")
REVISIONS, PAUSE = 4, 0.5  # in one sample; seconds between two
LIVING = "exec sleep 3600\n"
"""A session that never does anything: what its supervisor spends is spent on looking."""


def run_tasks(options: Options, tasks: int, env: dict[str, str] | None = None) -> tuple[float, dict[str, float]]:
    """Have a crew merge ``tasks`` tasks; return the seconds from the first claim to the last merge, and the usage."""
    with project(options) as crew:
        # A session gets no PYTHONPATH from its supervisor; its script sets what is counted in it.
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
        program = crew.script("agent", f"{exports}liza ready > /dev/null\n{INSTANT}", ready=False)
        crew.add(*(f"t{number}" for number in range(tasks)))
        with JournalWatch(crew.paths.journal, pause=0.01) as watch, RunningCrew(crew, program, AGENTS, env) as running:
            begin = watch.wait(lambda record: record.get("event") == "reserve", limit=300)
            wait_for(lambda: _all_closed(crew), "the merge of all tasks", limit=60 + 10 * tasks, pause=0.05)
            seconds = time.perf_counter() - begin
            usage = running.stop()
        usage["history"], usage["journal"] = history_size(crew)
        options.log(f"{tasks} tasks in {seconds:.1f} s, {usage['cpu']:.1f} CPU-s")
        return seconds, usage


def _all_closed(crew: Crew) -> bool:
    return all(task.status in FINAL_STATUSES for task in crew.state().tasks)


def count_processes(options: Options, tasks: int) -> Counter[str]:
    """Have a crew merge ``tasks`` tasks, and count every process that a Python process of it started, by name."""
    log, env = probe_environment(options)
    run_tasks(options, tasks, env)
    return Counter(start.name for start in read_starts(log))


def probe_environment(options: Options) -> tuple[Path, dict[str, str]]:
    """Return the log of a new probe, and the variables with which every Python process writes to it."""
    probe = Path(tempfile.mkdtemp(prefix="probe-", dir=options.scratch))
    (probe / "sitecustomize.py").write_text(PROBE)
    log = probe / "costs.log"
    log.write_text("")
    return log, {"PYTHONPATH": f"{probe}:{os.environ['PYTHONPATH']}", "COSTS_LOG": str(log)}


def measure_throughput(options: Options) -> Iterator[Row]:
    """Tasks per second and CPU seconds per task, in several runs, and what is started for one task."""
    tasks, runs = (4, 1) if options.quick else (60, 2)
    results = [run_tasks(options, tasks) for _ in range(runs)]
    about = f"{tasks} tasks, 4 coders, 2 reviewers"
    rates = summarize([tasks / seconds for seconds, _ in results])
    yield Row("crew", f"{about}: tasks", "tasks/s", rates, target=1.5, better="higher")
    cpu = summarize([usage["cpu"] / tasks for _, usage in results])
    yield Row("crew", f"{about}: CPU per task", "s", cpu, target=1.0)
    sizes = [summarize([usage[name] for _, usage in results]) for name in ("history", "journal")]
    yield Row("crew", f"{about}: history on disk", "MB", sizes[0], {"the journal": sizes[1]}, 3 * sizes[1].median)
    counted_tasks = 3 if options.quick else 20
    counted = count_processes(options, counted_tasks)
    git = sum(number for name, number in counted.items() if name.startswith("git "))
    jobs = sum(number for name, number in counted.items() if name.startswith("python -m liza merge"))
    common = ", ".join(f"{name} {number / counted_tasks:.1f}" for name, number in counted.most_common(8))
    for name, number, note, target in (
        ("merge jobs per task", jobs, "", 1.0),
        ("git commands per task", git, f"started by Liza; {common}", None),
        ("processes per task", counted.total(), "started by Liza's own processes", None),
    ):
        figure = summarize([number / counted_tasks])
        yield Row("crew", name, "", figure, target=target, note=note, is_count=True)


def measure_revisions(options: Options, agents: int, living: bool, target: float | None, group: str = "crew") -> Row:
    """CPU of all supervisors for one revision that concerns none of them."""
    with project(options) as crew:
        names = [f"coder-{number}" for number in range(1, agents + 1)]
        if living:
            crew.add(*(f"t{number}" for number in range(agents)))
        crew.prepare("task", "add", "--id", "other", "--draft", *TASK)
        with RunningCrew(crew, crew.script("agent", LIVING), names) as running:
            running.wait_started()
            if living:
                crew.wait(lambda state: _count_working(state) >= agents, "the sessions", limit=300)
            # A living session costs its supervisor something without any revision: it is measured and deducted.
            if living:
                time.sleep(3.0 + agents / 2)  # after the start of the last session
            else:
                running.wait_quiet()
            base = _spend(running, lambda: time.sleep(2.0 if options.quick else 8.0))
            spent = [_spend_revision(crew, running, base) for _ in range(options.rounds(10))]
        options.log(f"{agents} supervisors: {summarize(spent).median} ms per revision")
    kind = "each with a living session" if living else "idle"
    return Row(
        group, f"{agents} supervisors, {kind}: CPU per revision", "ms", summarize(spent), target=target,
        series=f"supervisors {'with sessions' if living else 'idle'}" if group == "growth" else "", x=float(agents),
    )  # fmt: skip


def _count_working(state: State) -> int:
    return sum(agent.status == AgentStatus.WORKING for agent in state.agents.values())


def _spend(running: RunningCrew, work: Callable[[], object]) -> float:
    """Return the CPU milliseconds of the supervisors per second of ``work``."""
    before, start = running.cpu(), time.monotonic()
    work()
    return (running.cpu() - before) / (time.monotonic() - start)


def _spend_revision(crew: Crew, running: RunningCrew, base: float) -> float:
    """Commit some revisions, so slowly that they are not joined; return the CPU milliseconds for one of them."""
    before, start = running.cpu(), time.monotonic()
    for number in range(REVISIONS):
        with crew.board.transaction("human:bench", "edit", task="other") as tx:
            task = tx.state.task("other")
            assert task is not None
            tx.state = tx.state.with_task(msgspec.structs.replace(task, priority=3 + number % 2))
        time.sleep(PAUSE)
    return (running.cpu() - before - base * (time.monotonic() - start)) / REVISIONS


def measure(options: Options) -> Iterator[Row]:
    yield from measure_throughput(options)
    agents = 3 if options.quick else 20
    yield measure_revisions(options, agents, living=True, target=None if options.quick else 160.0)
