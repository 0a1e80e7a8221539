"""Rows of waiting: how long nothing happens between a reason to act and the act, and what an idle crew costs."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.board_rows import POLL_SECONDS
from benchmarks.crew_rows import AGENTS, TASK
from benchmarks.options import Options
from benchmarks.projects import INSTANT, project
from benchmarks.rows import Row, Samples, summarize
from benchmarks.running_crews import JournalWatch, RunningCrew
from benchmarks.timing import wait_for
from liza.rules.model import FINAL_STATUSES

POLLING: dict[str, Samples] = {f"polling every {POLL_SECONDS:g} s (computed)": summarize([POLL_SECONDS * 500])}
"""The expected value of a uniform wait."""
STAYS = """\
git commit -q --allow-empty -m "$LIZA_TASK" && liza submit
exec cat
"""
"""A coder that stays at its terminal after its last command, as programs for people do."""
STEPS = (
    ("submit → the review is claimed", "submit", "claim review"),
    ("verdict → the merge begins", "approve", "candidate made"),
)
"""What a person or an agent says, and the next step of a crew, as events of the journal."""


def measure_claims(options: Options) -> Iterator[Row]:
    """Add tasks to a waiting crew one by one; look at the intervals between their revisions."""
    claims: list[float] = []
    intervals: dict[str, list[float]] = {name: [] for name, _, _ in STEPS}
    with project(options) as crew:
        program = crew.script("agent", INSTANT)
        with JournalWatch(crew.paths.journal) as watch, RunningCrew(crew, program, AGENTS) as running:
            running.wait_started()
            for number in range(options.rounds(25)):
                task = f"t{number}"
                running.wait_quiet(0.3)
                crew.add(task)
                added = watch.wait(lambda record, task=task: _is(record, task, "add"))
                claims.append((watch.wait(lambda record, task=task: _is(record, task, "reserve")) - added) * 1000)
                wait_for(lambda task=task: crew.task(task).status in FINAL_STATUSES, f"the merge of {task}", pause=0.02)
            records = list(watch.records)
    for name, before, after in STEPS:
        intervals[name] = list(_find_intervals(records, before, after))
    yield Row("waiting", "task claimable → claim begins, p95", "ms", summarize(claims), POLLING, 50.0)
    for name, values in intervals.items():
        if values:
            yield Row("waiting", f"{name}, p95", "ms", summarize(values), POLLING, 50.0)
        else:
            options.log(f"{name}: no such events; there are {sorted({str(r.get('event')) for _, r in records})}")


def _is(record: dict[str, Any], task: str, event: str) -> bool:
    # One transaction may add several tasks; then the record names none.
    return record.get("event") == event and record.get("task") in (task, None)


def _find_intervals(records: list[tuple[float, dict[str, Any]]], before: str, after: str) -> Iterator[float]:
    """Milliseconds from each ``before`` to the first ``after`` of the same task."""
    started: dict[str, float] = {}
    for moment, record in records:
        task = str(record.get("task"))
        if record.get("event") == before:
            started[task] = moment
        elif record.get("event") == after and task in started:
            yield (moment - started.pop(task)) * 1000


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
    yield from measure_claims(options)
    yield measure_session_end(options, terminal=False)
    if shutil.which("tmux"):
        yield measure_session_end(options, terminal=True)
    yield from measure_idle(options)
