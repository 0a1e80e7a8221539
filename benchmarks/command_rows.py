"""Rows of the commands as processes: wall time through the command server and directly, beside an idle interpreter.

Each round takes two tasks through their lives, one through the server and one directly, so that every command is
measured in the situation that is usual for it, and all commands of a round see the same load.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.growth_rows import fill_board
from benchmarks.options import Options
from benchmarks.projects import commit_work, project, recorded_elsewhere
from benchmarks.rows import Row, summarize
from benchmarks.running_crews import process_cpu, resident_memory
from benchmarks.timing import BARE, run_process
from liza.crew.crew import find_crew
from liza.crew.recorder import record_history
from liza.system import server_control
from tests.journeys.crews import BIN, Crew

GOALS = {
    "hook": 4, "status": 5, "ready": 5, "task show": 5, "heartbeat": 5, "submit": 8, "status, 500 tasks": 12,
    "--help": 6,
}  # fmt: skip
"""Wall time through the server, as a multiple of a bare interpreter."""
DIRECT_GOALS = {"hook": 20}
OTHER_DIRECT_GOAL = 35
TASKS, MANY = 50, 500
TOOL = {"session_id": "s-1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
RIVAL = "python -I -S -c pass"
VARIABLE = "LIZA_COMMAND_SERVER"


class Rounds:
    """Runs commands in both ways, and keeps the wall milliseconds of each, beside a bare interpreter's."""

    def __init__(self, crew: Crew, socket: Path) -> None:
        self.crew, self._ways = crew, {"server": str(socket), "directly": "0"}
        self.taken: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.bare: dict[str, list[float]] = defaultdict(list)

    def run(
        self, way: str, name: str, *words: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> None:
        variables = {**(env or {}), VARIABLE: self._ways[way]}
        self.bare[name].append(run_process(BARE, cwd).wall)
        self.taken[name, way].append(run_process([str(BIN / "liza"), *words], cwd, variables, stdin).wall)

    def run_both(self, name: str, *words: str) -> None:
        for way in self._ways:
            self.run(way, name, *words, cwd=self.crew.root)

    def carry_out(self, number: int) -> None:
        """Take two tasks from their claims to their merges."""
        self.crew.prepare("status")  # The first one after a merge checks the repository again, for all that follow.
        self.run_both("status", "status")
        self.run_both("task show", "task", "show", f"t{2 * number}")
        self.run_both("--help", "--help")
        for offset, way in enumerate(self._ways):
            self._carry_out(way, f"t{2 * number + offset}")
        # As a living supervisor would: otherwise the spool grows, and each command lists it.
        record_history(find_crew(self.crew.root))

    def _carry_out(self, way: str, task: str) -> None:
        crew = self.crew
        crew.prepare("claim", task, "--agent", "coder-1")
        run = crew.task(task).run or ""
        crew.paths.run(run).mkdir(parents=True, exist_ok=True)
        worktree = crew.paths.task_link(task).resolve()
        env = {"LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(crew.root)}
        payload = json.dumps(TOOL).encode()
        self.run(way, "hook", "hook", "claude", "PreToolUse", cwd=worktree, env=env, stdin=payload)
        self.run(way, "ready", "ready", cwd=worktree, env=env)
        self.run(way, "heartbeat", "heartbeat", cwd=worktree, env=env)
        commit_work(worktree, f"{task}.txt")
        self.run(way, "submit", "submit", cwd=worktree, env=env)
        crew.prepare("claim", task, "--agent", "code-reviewer-1")
        env |= {"LIZA_RUN": crew.task(task).review_run or ""}
        self.run(way, "verdict", "verdict", "approve", "read it", cwd=crew.paths.slot("code-reviewer-1"), env=env)
        self.run(way, "merge", "merge", task, cwd=crew.root)

    def rows(self) -> Iterator[Row]:
        for (name, way), taken in self.taken.items():
            goal = GOALS.get(name) if way == "server" else DIRECT_GOALS.get(name, OTHER_DIRECT_GOAL)
            bare = summarize(self.bare[name])
            target = None if goal is None else goal * bare.median
            yield Row("commands", f"{name}, {way}", "ms", summarize(taken), {RIVAL: bare}, target)


def measure_commands(options: Options, socket: Path) -> Iterator[Row]:
    rounds = options.rounds(25)
    with project(options) as crew, recorded_elsewhere(crew):
        crew.add(*(f"t{number}" for number in range(max(TASKS, 2 * rounds + 2))))
        measured = Rounds(crew, socket)
        # The first round compiles modules, creates the slots and fills caches.
        measured.carry_out(0)
        measured.taken.clear()
        for number in range(1, rounds + 1):
            measured.carry_out(number)
    yield from measured.rows()
    with project(options) as crew, recorded_elsewhere(crew):
        fill_board(crew, MANY)
        record_history(find_crew(crew.root))
        measured = Rounds(crew, socket)
        for _ in range(rounds):
            measured.run_both(f"status, {MANY} tasks", "status")
    yield from measured.rows()


def measure_server(options: Options, pid: int) -> Iterator[Row]:
    """The server's memory after many commands, its CPU while it is idle, and many commands at once."""
    commands, at_once = (100, 20) if options.quick else (1_000, 200)
    words = [str(BIN / "liza"), "status"]
    with project(options) as crew, recorded_elsewhere(crew):
        for _ in range(commands):
            run_process(words, crew.root)
        memory = summarize([resident_memory(pid)])
        yield Row("commands", f"server after {commands:,} commands: memory", "MB", memory, target=90.0)
        before, seconds = process_cpu(pid), 2.0 if options.quick else 10.0
        time.sleep(seconds)
        yield Row(
            "commands", f"idle server: CPU in {seconds:g} s", "ms", summarize([process_cpu(pid) - before]), target=0.0
        )
        start = time.perf_counter()
        running = [subprocess.Popen(words, cwd=crew.root, stdout=subprocess.DEVNULL) for _ in range(at_once)]
        answered = summarize([float(sum(process.wait() == 0 for process in running))])
    yield Row(
        "commands", f"{at_once} commands at once: answered", "", answered, target=float(at_once), better="higher",
        note=f"the last one after {time.perf_counter() - start:.1f} s", is_count=True,
    )  # fmt: skip


@contextmanager
def command_server(options: Options) -> Iterator[tuple[Path, int]]:
    """Run a command server that all commands use; yield its socket and its pid."""
    path = options.scratch / "server" / "socket"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PYTHON")]:
            patch.delenv(name)  # Commands run directly where a variable of Python is set.
        patch.setenv(VARIABLE, str(path))
        server = server_control.start()
        try:
            assert server.pid is not None
            yield path, server.pid
        finally:
            server_control.stop()


def measure(options: Options) -> Iterator[Row]:
    with command_server(options) as (path, pid):
        yield from measure_commands(options, path)
        yield from measure_server(options, pid)
