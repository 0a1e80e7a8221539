"""How many git commands and merge jobs a crew starts for one task.

The numbers do not depend on the load: one coder and one reviewer work on one task after the other, and nothing else
wakes them. The processes of the recorder and of the search for alarms are not counted: into how many batches the
revisions of a task are divided, and how often alarms are looked for, depends on the time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.campaign.small_board import waiting_of
from tests.journeys.crews import APPROVE, WORK, Crew, started
from tests.journeys.process_probe import PROBE, Start, name_process, read_starts

TASKS = 4
"""The first one creates the slots and is not counted."""
TIMED = {"liza.crew.recorder", "liza.alarms.current_alarms"}
MERGE = "python -m liza merge"
USUAL = {
    "git cat-file": 1, "git check-attr": 4, "git commit-tree": 1, "git config": 9, "git fast-import": 1,
    "git for-each-ref": 5, "git log": 1, "git ls-files": 9, "git ls-tree": 1, "git merge-base": 3, "git merge-tree": 1,
    "git rev-parse": 11, "git status": 4, "git switch": 3, "git update-ref": 6, "git worktree list": 2, MERGE: 1,
}  # fmt: skip
"""What one task starts. Another number is either a mistake or a reason to change this table."""


def count_starts(starts: Sequence[Start]) -> Counter[str]:
    """Count the git commands and merge jobs, without those that depend on the time."""
    names = [start.name for start in starts if not is_timed(start)]
    return Counter(name for name in names if name.startswith("git ") or name == MERGE)


def is_timed(start: Start) -> bool:
    """Return whether the recorder or the search for alarms started a process."""
    return not TIMED.isdisjoint(start.callers.split(" ← "))


def find_usual(tasks: Sequence[Counter[str]]) -> dict[str, int]:
    """Return for each command the number of the task that started it least often: a retry is not of every task."""
    least = {name: min(task[name] for task in tasks) for name in sorted({name for task in tasks for name in task})}
    return {name: number for name, number in least.items() if number}


def work_on_tasks(crew: Crew, log: Path, exports: str) -> list[list[Start]]:
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
            lambda _, settled=settled: all(path.exists() for path in settled) and not waiting_of(crew.paths),
            "the end of both sessions and the record of all revisions",
        )
        starts = read_starts(log)
        tasks.append(starts[done:])
        done = len(starts)
    return tasks


@pytest.mark.campaign
def test_a_task_needs_one_merge_job_and_few_git_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    starts = [f"{start.name} by {start.callers}" for start in tasks[-1] if not is_timed(start)]
    assert find_usual([count_starts(task) for task in tasks[1:]]) == USUAL, "\n".join(sorted(starts))


def test_a_process_is_counted_by_its_git_command_without_options() -> None:
    assert name_process(["/usr/bin/git", "--no-pager", "-C", "/x", "worktree", "add", "-q"]) == "git worktree add"
    assert name_process(["git", "-c", "a=b", "config", "--list"]) == "git config"
    assert name_process(["/v/bin/python3.11", "-P", "-m", "liza", "merge", "t"]) == MERGE
    assert name_process(["tmux", "-L", "x"]) == "tmux"
