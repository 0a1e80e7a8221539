"""Rows of the commands as processes: CPU time with children, and wall time, beside an interpreter that does nothing.

Each round takes one task through its life, so that every command is measured in the situation that is usual for it,
and all commands of a round see the same load.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.options import Options
from benchmarks.projects import commit_work, project, recorded_elsewhere
from benchmarks.rows import Row, Samples, summarize
from benchmarks.timing import BARE, Spent, run_process
from liza.crew.crew import find_crew
from liza.crew.recovery.recorder import record_history
from tests.journeys.crews import BIN, Crew

TARGETS = {
    "hook": 25.0, "heartbeat": 30.0, "ready": 75.0, "submit": 90.0, "status --json": 100.0, "claim": 115.0,
    "merge": 150.0,
}  # fmt: skip
"""CPU milliseconds, with the children."""
NOTES = {
    "status --json": "directly after the claim, so it looks at the repository again",
    "status": "nothing has changed since the last look at the repository",
}
TASKS = 50
SESSION = {"session_id": "s-1", "source": "startup"}
PROMPT = {"session_id": "s-1", "prompt": "go on"}
TOOL = {"session_id": "s-1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}


class Rounds:
    """Runs the commands of a task in each round, and keeps what each spent."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.spent: dict[str, list[Spent]] = defaultdict(list)

    def run(self, name: str, *words: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> None:
        self.spent[name].append(run_process([str(BIN / "liza"), *words], cwd, env, stdin))

    def carry_out(self, number: int) -> None:
        """Take one task from its claim to its merge."""
        crew, task = self.crew, f"t{number}"
        root = crew.root
        self.spent["bare interpreter"].append(run_process(BARE, root))
        self.run("claim", "claim", task, "--agent", "coder-1", cwd=root)
        self.run("status --json", "status", "--json", cwd=root)
        self.run("status", "status", cwd=root)
        run = crew.task(task).run or ""
        worktree = crew.paths.task_link(task).resolve()
        crew.paths.run(run).mkdir(parents=True, exist_ok=True)
        env = {"LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(root)}
        events = (("hook SessionStart", SESSION), ("hook UserPromptSubmit", PROMPT), ("hook", TOOL))
        for name, payload in events:
            event = name.removeprefix("hook").strip() or "PreToolUse"
            self.run(name, "hook", "claude", event, cwd=worktree, env=env, stdin=json.dumps(payload).encode())
        self.run("ready", "ready", cwd=worktree, env=env)
        self.run("heartbeat", "heartbeat", cwd=worktree, env=env)
        commit_work(worktree, f"{task}.txt")
        self.run("submit", "submit", cwd=worktree, env=env)
        self.spent["bare interpreter"].append(run_process(BARE, root))
        self._review(task)
        self.run("merge", "merge", task, cwd=root)
        self.run("task show --json", "task", "show", task, "--json", cwd=root)
        # As a living supervisor would: otherwise the spool grows, and each command lists it.
        record_history(find_crew(root))

    def _review(self, task: str) -> None:
        self.run("claim a review", "claim", task, "--agent", "code-reviewer-1", cwd=self.crew.root)
        run = self.crew.task(task).review_run or ""
        env = {"LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(self.crew.root)}
        slot = self.crew.paths.slot("code-reviewer-1")
        self.run("verdict", "verdict", "approve", "read it, ran it", cwd=slot, env=env)


def measure(options: Options) -> Iterator[Row]:
    rounds = options.rounds(25)
    with project(options) as crew, recorded_elsewhere(crew):
        crew.add(*(f"t{number}" for number in range(max(TASKS, rounds + 1))))
        measured = Rounds(crew)
        # The first round compiles modules, creates the slots and fills caches.
        measured.carry_out(0)
        measured.spent.clear()
        for number in range(1, rounds + 1):
            measured.carry_out(number)
    bare = measured.spent.pop("bare interpreter")
    for name, spent in measured.spent.items():
        yield _row(f"{name}, CPU", [one.cpu for one in spent], [one.cpu for one in bare], TARGETS.get(name))
        yield _row(f"{name}, wall", [one.wall for one in spent], [one.wall for one in bare], None)


def _row(name: str, own: list[float], bare: list[float], target: float | None) -> Row:
    rivals: dict[str, Samples] = {"python -I -S -c pass": summarize(bare)}
    return Row("commands", name, "ms", summarize(own), rivals, target, note=NOTES.get(name.partition(",")[0], ""))
