"""Which processes a crew starts for one task, as committed in `tests/data/crew_costs.json`.

The numbers do not depend on the load: one coder and one reviewer work on one task after the other, and nothing else
wakes them. A change that starts more fails with the command and with the modules that ask for it. The recorder's
processes are not counted: into how many batches it divides the revisions of a task depends on the time.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from tests.journeys.command_probe import PROBE, UPDATES, ProbeLine, name_process, read_probe
from tests.journeys.crews import APPROVE, WORK, Crew, started

DATA = Path(__file__).parent.parent / "data" / "crew_costs.json"
TASKS = 4
"""The first one creates the slots and is not counted."""
RECORDER = "liza.crew.recovery.recorder"
Starts = dict[str, Counter[str]]
"""For each command the modules that start it, and how often."""


def group_starts(lines: list[ProbeLine]) -> Starts:
    """Count the starts of processes by command and caller, without those of the recorder."""
    starts: Starts = {}
    for line in lines:
        if line.kind == "start" and RECORDER not in line.callers:
            starts.setdefault(name_process(line.words), Counter())[line.callers] += 1
    return starts


def find_usual(tasks: list[Starts]) -> Starts:
    """Return for each command the counts of the task that started it least often.

    A retry is not of every task.
    """
    names = {name for starts in tasks for name in starts}
    usual = {
        name: min((starts.get(name, Counter()) for starts in tasks), key=lambda counts: counts.total())
        for name in sorted(names)
    }
    return {name: counts for name, counts in usual.items() if counts}


def compare(now: Starts, committed: Starts) -> list[str]:
    """Return a line for each command that a task starts more often than committed, with what was added."""
    found = []
    for name, counts in now.items():
        before = committed.get(name, Counter())
        more = counts.total() - before.total()
        if more > 0:
            added = ", ".join(f"{number} by {callers}" for callers, number in (counts - before).items())
            found.append(f"a task starts {more} more: {name}: {added}")
        elif more < 0:
            found.append(f"a task starts {-more} fewer: {name}: tighten")
    return found + [f"a task starts no {name} any more: tighten" for name in committed.keys() - now.keys()]


def work_on_tasks(crew: Crew, log: Path, exports: str) -> list[Starts]:
    """Have a coder and a reviewer work on one task after the other; return what was started for each."""
    ready = f"{exports}liza ready > /dev/null\n"
    crew.agent("coder-1", crew.script("coder", ready + WORK, ready=False))
    crew.agent("code-reviewer-1", crew.script("reviewer", ready + APPROVE, ready=False))
    crew.wait_supervised("coder-1")
    crew.wait_supervised("code-reviewer-1")
    tasks, done = [], 0
    for number in range(1, TASKS + 1):
        crew.add(f"task-{number}")
        crew.wait_status(f"task-{number}", "MERGED")
        settled = [crew.paths.run(f"{agent}.{number}") / "settled" for agent in ("coder-1", "code-reviewer-1")]
        crew.wait(
            lambda _, settled=settled: all(path.exists() for path in settled) and not any(crew.paths.spool.iterdir()),
            "the end of both sessions and the record of all revisions",
        )
        lines = read_probe(log)
        tasks.append(group_starts(lines[done:]))
        done = len(lines)
    return tasks


@pytest.mark.campaign
def test_a_crew_starts_no_more_processes_for_a_task_than_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = tmp_path / "probe"
    probe.mkdir()
    (probe / "sitecustomize.py").write_text(PROBE)
    log = probe / "costs.log"
    log.write_text("")
    variables = {"PYTHONPATH": str(probe), "COSTS_LOG": str(log)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    # A session gets no PYTHONPATH from its supervisor; its script sets what is counted in it.
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    with started(tmp_path, poll_interval=3600) as crew:
        tasks = work_on_tasks(crew, log, exports)
    now = find_usual(tasks[1:])
    assert now["python -m liza merge"].total() == 1
    if UPDATES:
        DATA.write_text(json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    committed = {name: Counter(counts) for name, counts in json.loads(DATA.read_text()).items()}
    found = compare(now, committed)
    assert not found, "\n".join([*found, "next: justify it or remove it; bin/test --update-costs rewrites the file"])


def test_an_added_process_of_a_task_is_named_with_the_modules_that_start_it() -> None:
    before = {"git status": Counter({"liza.a": 2}), "git log": Counter({"liza.b": 1})}
    assert compare(before, before) == []
    now = {"git status": Counter({"liza.a": 2, "liza.c ← liza.d": 1}), "git tag": Counter({"liza.e": 1})}
    assert compare(now, before) == [
        "a task starts 1 more: git status: 1 by liza.c ← liza.d",
        "a task starts 1 more: git tag: 1 by liza.e",
        "a task starts no git log any more: tighten",
    ]


def test_what_only_some_tasks_start_is_not_of_every_task() -> None:
    usual, more = Counter({"liza.a": 1}), Counter({"liza.a": 1, "liza.b": 1})
    assert find_usual([{"git log": more, "git gc": usual}, {"git log": usual}]) == {"git log": usual}
