"""Rows of waiting: how long nothing happens between a reason to act and the act, and what an idle crew costs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.board_rows import POLL_SECONDS
from benchmarks.crew_rows import TASK, probe_environment
from benchmarks.options import Options
from benchmarks.projects import INSTANT, project
from benchmarks.rows import Row, Samples, summarize
from benchmarks.running_crews import JournalWatch, RunningCrew
from benchmarks.timing import wait_for
from liza.model.model import FINAL_STATUSES
from tests.journeys.process_probe import read_starts

POLLING: dict[str, Samples] = {f"polling every {POLL_SECONDS:g} s (computed)": summarize([POLL_SECONDS * 500])}
"""The expected value of a uniform wait."""
STAYS = """\
git commit -q --allow-empty -m "$LIZA_TASK" && liza submit
exec cat
"""
"""A coder that stays at its terminal after its last command, as programs for people do."""
STEP_AGENTS = ("coder-1", "code-reviewer-1")


def measure_steps(options: Options) -> Iterator[Row]:
    """Add tasks to a waiting crew one by one: from each reason to act to the first act.

    A claim begins with the revision "reserve". The other steps begin with the first process that is started for them.
    """
    claims: list[float] = []
    with project(options) as crew:
        program = crew.script("agent", INSTANT)
        log, env = probe_environment(options)
        with JournalWatch(crew.paths.journal) as watch, RunningCrew(crew, program, STEP_AGENTS, env) as running:
            running.wait_started()
            for number in range(options.rounds(25)):
                task = f"t{number}"
                running.wait_quiet(0.3)
                crew.add(task)
                added = watch.wait(lambda record, task=task: _is(record, task, "add"))
                claims.append((watch.wait(lambda record, task=task: _is(record, task, "reserve")) - added) * 1000)
                wait_for(lambda task=task: crew.task(task).status in FINAL_STATUSES, f"the merge of {task}", pause=0.02)
            reviewer, records = running.pids[-1], list(watch.records)
    starts = read_starts(log)
    reviews = [start.time for start in starts if start.pid == reviewer]
    merges = [start.time for start in starts if start.name.startswith("python -m liza merge")]
    yield Row("waiting", "task claimable → claim begins, p95", "ms", summarize(claims), POLLING, 50.0)
    for name, event, moments in (
        ("submit → the reviewer's supervisor acts, p95", "submit", reviews),
        ("verdict → the merge job starts, p95", "approve", merges),
    ):
        said = [moment for moment, record in records if record.get("event") == event]
        yield Row("waiting", name, "ms", summarize(_find_waits(said, moments)), POLLING, 50.0)


def _is(record: dict[str, Any], task: str, event: str) -> bool:
    # One transaction may add several tasks; then the record names none.
    return record.get("event") == event and record.get("task") in (task, None)


def _find_waits(said: list[float], acts: list[float]) -> list[float]:
    """Milliseconds from each moment to the first act after it."""
    return [(min(act for act in acts if act >= moment) - moment) * 1000 for moment in said if moment <= max(acts)]


def measure_session_end(options: Options, terminal: bool) -> Row:
    """From the revision of `submit` until the session is over and its end was handled."""
    name = "in a terminal that stays open" if terminal else "headless"
    taken = []
    with project(options, grace=10) as crew:
        program = crew.script("agent", STAYS if terminal else INSTANT)
        crew.agent("coder-1", program, *(["--tmux"] if terminal else []))
        with JournalWatch(crew.paths.journal) as watch:
            for number in range(1, options.rounds(8 if terminal else 15) + 1):
                crew.add(f"t{number}")
                said = watch.wait(lambda record, task=f"t{number}": _is(record, task, "submit"))
                concluded = crew.paths.run(f"coder-1.{number}") / "settled"
                wait_for(concluded.exists, f"the end of session {number}")
                taken.append((time.perf_counter() - said) * 1000)
    return Row(
        "waiting", f"submit → session over, {name}", "ms", summarize(taken), target=3000.0 if terminal else 1000.0
    )


def measure_idle(options: Options) -> Iterator[Row]:
    """CPU, wake-ups and memory of supervisors with nothing to do."""
    agents, seconds = (3, 3.0) if options.quick else (20, 35.0)
    with project(options) as crew:
        crew.prepare("task", "add", "--id", "other", "--draft", *TASK)
        names = [f"coder-{number}" for number in range(1, agents + 1)]
        with RunningCrew(crew, crew.script("agent", INSTANT), names) as running:
            running.wait_started()
            running.wait_quiet()
            cpu, wake_ups, start = running.cpu(), running.wake_ups(), time.perf_counter()
            time.sleep(seconds)
            took = time.perf_counter() - start
            share, rate = (running.cpu() - cpu) / took / 10, (running.wake_ups() - wake_ups) / took
            memory = running.memory()
    yield Row("waiting", f"idle crew of {agents}: CPU", "% of a core", summarize([share]), target=1.0)
    note = "a supervisor looks once each poll_interval (30 s); a look wakes several threads"
    yield Row("waiting", f"idle crew of {agents}: wake-ups", "/s", summarize([rate]), note=note)
    yield Row("waiting", f"idle crew of {agents}: memory of a supervisor", "MB", summarize(memory), target=40.0)


def measure(options: Options) -> Iterator[Row]:
    yield from measure_steps(options)
    yield measure_session_end(options, terminal=False)
    if shutil.which("tmux"):
        yield measure_session_end(options, terminal=True)
    yield from measure_idle(options)
