"""Rows of boxes: what confinement adds to a session, a test and a verb, and what the import of commits costs.

Both ways are measured in turn. Rows that are later "by" have the difference of a pair.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.command_rows import command_server
from benchmarks.options import Options
from benchmarks.projects import project
from benchmarks.rows import Row, summarize
from benchmarks.timing import interleave, milliseconds
from benchmarks.worktree_rows import create_repository, git
from liza.box import slot_directories, support, surroundings
from liza.box.run_mounts import build_slot_box
from liza.git.boxed_git import make_reader
from liza.git.run_git import make_run_git
from liza.git.run_import import RunStore, import_branch
from liza.git.runner import Git
from liza.git.worktrees import Worktrees, measure_bytes
from liza.model.configuration import Config, Confinement
from liza.model.paths import Paths
from liza.project import commands

SIZES = (2_000, 50_000)
AT_ONCE = 50
IMPORTS = {  # commits and files of each, by the number of files of the repository: the goal in milliseconds
    2_000: {(1, 1): 50.0, (10, 20): 150.0, (1_000, 5): 3_000.0},
    50_000: {(1, 1): None, (10, 20): 400.0},
}
WITHOUT = "without a box"
VERBS = {"hook": 6.0, "heartbeat": 8.0, "status": 8.0}
"""Verbs that a session types in its box, and their goals as multiples of a bare interpreter."""
TIMER = """
import json, os, subprocess, sys, time
words = {
    "bare": [sys.executable, "-I", "-S", "-c", "pass"],
    "hook": ["liza", "hook", "claude", "PreToolUse"],
    "heartbeat": ["liza", "heartbeat"],
    "status": ["liza", "status"],
}
payload = json.dumps({"tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
taken = {name: [] for name in words}
for number in range(int(sys.argv[1]) + 1):
    for name, argv in words.items():
        start = time.perf_counter()
        subprocess.run(argv, input=payload, capture_output=True, check=True)
        taken[name] += [(time.perf_counter() - start) * 1000] if number else []
open("taken.new", "w").write(json.dumps(taken))
os.rename("taken.new", "taken")
time.sleep(600)
"""


class Site:
    """A repository with a slot, and what a session in a box has there."""

    def __init__(self, directory: Path, files: int) -> None:
        self.root = directory / "repo"
        create_repository(self.root, files)
        self.paths, self.home = Paths(self.root, directory / "repo.worktrees"), Path.home()
        (self.root / ".liza").mkdir()
        git(self.root, "worktree", "add", "-q", "-b", "task/t", str(self.paths.slot("s1")), "integration")
        self.git = Worktrees(self.paths, Git(self.root)).slot_git("s1")
        self.own, self.program = self.paths.box("s1"), support.find_support().program

    def start(self) -> None:
        """Make what a session has in its box, and start a program there."""
        own = slot_directories.prepare_directories(self.paths, "s1", self.home)
        make_run_git(self.git, own, "coder-1.1")
        around = surroundings.read_surroundings(self.program, self.paths, os.environ)
        subprocess.run(build_slot_box(around, "s1").wrap(["true"]), check=True)

    def wrap(self, words: Sequence[str]) -> list[str]:
        around = surroundings.read_surroundings(self.program, self.paths, os.environ)
        return build_slot_box(around, "s1").wrap(words)

    def work(self, number: int, commits: int, files: int) -> None:
        """Commit in the git directory of the run, as a process in the box would, by one call of fast-import."""
        lines = []
        for commit in range(commits):
            lines.append(f"commit refs/heads/task/t\ncommitter B <b@example.invalid> {1_700_000_000 + commit} +0000\n")
            lines.append("data 4\nwork\n")
            lines += ["from refs/heads/task/t^0\n"] if commit == 0 else []
            for file in range(files):
                text = f"{number} {commit} {file}\n" * 20
                lines.append(f"M 100644 inline new{file}/{number}-{commit % 50}.py\ndata {len(text)}\n{text}\n")
        environ = {**os.environ, "GIT_DIR": str(self.own.git)}
        words = ["git", "fast-import", "--quiet", "--force"]
        subprocess.run(words, input="".join(lines).encode(), env=environ, check=True)


def measure(options: Options) -> Iterator[Row]:
    machine = support.find_support()
    if not machine.works:
        raise RuntimeError(f"no box here: {machine.cause}")
    for files in (100,) if options.quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="confinement-", dir=options.scratch) as directory:
            site = Site(Path(directory), files)
            site.start()
            yield from _measure_starts(options, site, files)
            yield from _measure_imports(options, site, files)
    yield from _measure_verbs(options)


def _measure_starts(options: Options, site: Site, files: int) -> Iterator[Row]:
    def compare(name: str, boxed: Callable[[], object], plain: Callable[[], object], goal: float) -> Row:
        taken = interleave({"own": boxed, WITHOUT: plain}, options.rounds(40))
        added = [own - bare for own, bare in zip(taken["own"], taken[WITHOUT], strict=True)]
        return Row("confinement", name, "ms", summarize(added), {WITHOUT: summarize(taken[WITHOUT])}, goal)

    def plain_start() -> None:
        subprocess.run(["true"], check=True, cwd=site.paths.slot("s1"))

    yield compare(f"a session starts later by, {files} files", site.start, plain_start, 60.0)
    renewal = [milliseconds(lambda: make_run_git(site.git, site.own, "coder-1.1")) for _ in range(options.rounds(20))]
    yield Row("confinement", f"git directory of a run, {files} files", "ms", summarize(renewal), {}, 22.0)
    if files != SIZES[0] and not options.quick:
        return
    log = site.root / ".liza" / "logs" / "test.log"
    log.parent.mkdir()

    def run_tests(confinement: Confinement) -> None:
        box = commands.open_box(site.paths, site.git, Config(confinement=confinement))
        outcome = commands.run_command("true", site.paths.slot("s1"), log, 60.0, site.root, box=box)
        assert outcome.passed

    yield compare(
        "a test run ends later by", lambda: run_tests(Confinement.REQUIRED), lambda: run_tests(Confinement.OFF), 15.0
    )

    def start_many(words: Sequence[str]) -> None:
        running = [subprocess.Popen(words) for _ in range(AT_ONCE)]
        assert all(process.wait() == 0 for process in running)

    words = site.wrap(["true"])
    taken = interleave({"own": lambda: start_many(words), WITHOUT: lambda: start_many(["true"])}, options.rounds(10))
    yield Row(
        "confinement", f"{AT_ONCE} starts at once", "ms", summarize(taken["own"]), {WITHOUT: summarize(taken[WITHOUT])},
        400.0,
    )  # fmt: skip
    added = measure_bytes(site.own.directory) / 1000
    whole = measure_bytes(site.root / ".git") / 1000
    yield Row(
        "confinement", "disk of a run without work", "kB", summarize([added]), {"the repository": summarize([whole])},
        is_count=True,
    )  # fmt: skip


def _measure_imports(options: Options, site: Site, files: int) -> Iterator[Row]:
    """The import of commits into the repository, and the refresh of the slot, beside `git fetch` into a copy."""
    around = surroundings.read_surroundings(site.program, site.paths, os.environ)
    store = RunStore(site.own.git, "s1", make_reader(around, "s1", site.root / ".git"))
    copy = site.root.parent / "copy.git"
    git(site.root, "clone", "-q", "--bare", "--no-hardlinks", str(site.root), str(copy))
    number = 0
    for (commits, changed), goal in IMPORTS.get(files, {(1, 1): 50.0}).items():
        taken: dict[str, list[float]] = {"own": [], "git fetch": []}
        for _ in range(options.rounds(20 if commits < 100 else 3)):
            number += 1
            site.work(number, commits, changed)

            def bring() -> None:
                import_branch(
                    site.git, store, "task/t", "coder-1.1", (), lambda tip: site.git.out("read-tree", "--reset", tip)
                )

            taken["own"].append(milliseconds(bring))
            fetch = ("fetch", "-q", str(site.own.git), "refs/heads/task/t:refs/heads/task/t")
            taken["git fetch"].append(milliseconds(lambda words=fetch: git(copy, *words)))
        yield Row(
            "confinement", f"import of {commits} × {changed} files, with the refresh, {files} files", "ms",
            summarize(taken["own"]), {"git fetch": summarize(taken["git fetch"])}, goal,
        )  # fmt: skip


def _measure_verbs(options: Options) -> Iterator[Row]:
    """Verbs that a session types in its box, through its socket."""
    rounds = options.rounds(30)
    with command_server(options), project(options, confinement="required") as crew:
        script = crew.root.parent / "timer.py"
        script.write_text(TIMER)
        crew.add("t")
        crew.configure(shared=[str(script)])
        crew.agent("coder-1", crew.script("agent", f"exec {sys.executable} {script} {rounds}\n"))
        result = crew.paths.slot("s1") / "taken"
        crew.wait(lambda _: result.exists(), "the times of a session", 600.0)
        taken = json.loads(result.read_text())
    bare = summarize(taken["bare"])
    for name, goal in VERBS.items():
        rival = {"a bare interpreter in the box": bare}
        yield Row("confinement", f"{name} in a box", "ms", summarize(taken[name]), rival, goal * bare.median)
