"""A small project with a crew in it, for journeys: the installed commands, real git, real processes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from liza.board.directory_watch import DirectoryWatch
from liza.board.file_store.file_board import FileBoard
from liza.cli import entry_points
from liza.crew.crew import find_crew
from liza.git import slots_directory
from liza.git.slots_directory import SlotsRecord
from liza.model.model import State, Task
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from liza.system.locks import Lock
from tests.command_servers import VARIABLE
from tests.conftest import git, make_repository, worktree_of

BIN = Path(sys.executable).parent
LIMIT = 60.0
QUICK = {
    "restart_after_crash": 0.05,
    "restart_after_handoff": 0.05,
    "grace": 1,
    "heartbeat_interval": 1,
    "confinement": "off",
}
"""Settings that make a crew of scripts lose no time. A test of boxes sets ``confinement``, and needs bwrap."""

APPROVE = 'liza verdict approve "read it, ran it"\n'
WORK = """\
echo "$LIZA_TASK by $LIZA_RUN" >> "$LIZA_TASK.txt"
git add -A
git commit -q -m "$LIZA_TASK: work of $LIZA_RUN"
liza submit
"""


class Crew:
    """A repository with a crew, and what a person does there; in ``notes`` scripted agents leave what they saw."""

    def __init__(self, root: Path, notes: Path) -> None:
        self.root, self.notes = root, notes
        self.children: list[subprocess.Popen[bytes]] = []
        self.board = FileBoard(Paths(root), SystemClock())

    @property
    def paths(self) -> Paths:
        """With the directory of the slots that the record names by now."""
        placed = slots_directory.read_record(Paths(self.root))
        return Paths(self.root, placed.directory if placed is not None else None)

    def run(self, *words: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """``liza`` with these words, as a person types it."""
        return subprocess.run(
            [str(BIN / "liza"), *map(str, words)],
            cwd=cwd or self.root,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=90,
        )

    def liza(self, *words: str | Path, code: int = 0, cwd: Path | None = None, **env: str) -> str:
        """What ``liza`` printed, on stderr where it was to fail with ``code``."""
        done = self.run(*words, cwd=cwd, **env)
        assert done.returncode == code, f"liza {words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    def prepare(self, *words: str | Path, code: int = 0, cwd: Path | None = None, **env: str) -> str:
        """As ``liza``, run in this process: for a step before what a test is about, and the second of like refusals.

        The same code runs as in `liza`; the start of a process, which is most of a command's CPU time, is left out.
        """
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as out,
            tempfile.TemporaryFile("w+", encoding="utf-8") as err,
            pytest.MonkeyPatch.context() as patch,
            contextlib.chdir(cwd or self.root),
            redirect_stdout(out),
            redirect_stderr(err),
            Path(os.devnull).open() as nothing,
        ):
            patch.setattr(sys, "stdin", nothing)
            for name, value in env.items():
                patch.setenv(name, value)
            ended = entry_points.run_command([str(word) for word in words])
            out.seek(0)
            err.seek(0)
            printed, refused = out.read(), err.read()
            assert ended == code, f"liza {words} ended with {ended}\n{printed}{refused}"
        return refused if code else printed

    def json(self, *words: str | Path) -> Any:
        return json.loads(self.liza(*words, "--json"))

    def git(self, *words: str, cwd: Path | None = None) -> str:
        return git(cwd or self.root, *words)

    def configure(self, **settings: object) -> None:
        """Settings, typed by a person into ``liza edit``."""
        lines = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in settings.items())
        typed = self.notes / "settings"
        typed.write_text(lines)
        names = "|".join(settings)
        self.prepare("edit", EDITOR=f'sh -c \'sed -i -E "/^  ({names}):/d" "$1"; cat "{typed}" >> "$1"\' typing')

    def add(self, *ids: str, **fields: str) -> None:
        """Tasks, with ``fields`` of the board instead of the usual ones."""
        usual = {"description": "Write {}", "done_when": "{}.txt is there", "scope": "{}.txt", "spec_ref": "README.md"}
        wanted = [{"id": one, **{name: text.format(one) for name, text in usual.items()}, **fields} for one in ids]
        typed = self.notes / "tasks.yaml"
        typed.write_text(json.dumps(wanted))
        self.prepare("task", "add", "--file", typed)

    def work_by_hand(self, task: str) -> Path:
        """Claim a task as a person would and commit a file in its worktree, which is given back."""
        self.add(task)
        self.prepare("claim", task, "--agent", "coder-1")
        there = worktree_of(self.root, task)
        (there / f"{task}.txt").write_text("x\n")
        self.git("add", "-A", cwd=there)
        self.git("commit", "-q", "-m", "work", cwd=there)
        return there

    def script(self, name: str, text: str, ready: bool = True) -> str:
        """A program for agents that the test wrote: its ``--program``. It reads its brief first, unless told not to."""
        path = self.notes.parent / name
        first = f'#!/bin/sh\nset -eu\nNOTES="{self.notes}"\n'
        if VARIABLE in os.environ:  # Of the variables of Liza, a session has its own only.
            first += f'[ "${{LIZA_CONFINED:-}}" ] || export {VARIABLE}={os.environ[VARIABLE]}\n'
        first += "liza ready > /dev/null\n" if ready else ""
        path.write_text(first + textwrap.dedent(text))
        path.chmod(0o755)
        return f"script:{path}"

    def agent(self, agent: str, program: str, *more: str) -> Supervisor:
        """A supervisor of its own, as ``liza-agent`` starts it."""
        log = self.notes / f"{agent}.{len(self.children)}.log"
        with log.open("wb") as out:
            words = [str(BIN / "liza-agent"), agent, "--program", program, *more]
            child = subprocess.Popen(
                words, cwd=self.root, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        self.children.append(child)
        return Supervisor(self, child, log)

    def state(self) -> State:
        return self.board.read()

    def task(self, task_id: str) -> Task:
        found = self.state().task(task_id)
        assert found is not None
        return found

    def status(self, task_id: str) -> str:
        return self.task(task_id).status.value

    def heard(self, task_id: str) -> list[str]:
        """The events of a task's history."""
        return [event.event for event in self.task(task_id).history]

    def wait(self, condition: Callable[[State], object], what: str = "", limit: float = LIMIT) -> State:
        """Until the board is so; every change of the board is looked at, and files and processes in between."""
        heard: queue.Queue[Any] = queue.Queue()
        end = time.monotonic() + limit
        with DirectoryWatch(self.paths) as watch:
            watch.subscribe(heard)
            while True:
                state = self.state()
                if condition(state):
                    return state
                if time.monotonic() > end:
                    raise AssertionError(f"{what or 'what was waited for'} did not come\n{self.told()}")
                with suppress(queue.Empty):
                    heard.get(timeout=0.05)

    def wait_status(self, task_id: str, *wanted: str, limit: float = LIMIT) -> Task:
        state = self.wait(lambda state: _status(state, task_id) in wanted, f"{task_id} {'/'.join(wanted)}", limit)
        found = state.task(task_id)
        assert found is not None
        return found

    def wait_supervised(self, agent: str) -> None:
        """Until a supervisor of this agent is at work."""
        crew = find_crew(self.root)
        self.wait(lambda _: crew.is_supervised(agent), f"a supervisor of {agent}")

    def wait_note(self, name: str, limit: float = LIMIT) -> str:
        """Until a scripted agent left this note, whole: its last line is ended."""
        path = self.notes / name
        self.wait(lambda _: path.exists() and path.read_text().endswith("\n"), f"the note {name}", limit)
        return path.read_text()

    def gate(self, name: str) -> Path:
        """A FIFO that a scripted agent waits at until ``open_gate``."""
        path = self.notes / name
        os.mkfifo(path)
        return path

    def open_gate(self, name: str) -> None:
        (self.notes / name).write_text("go\n")

    def told(self) -> str:
        """Everything that could say why a test fails."""
        logs = [*sorted(self.notes.glob("*.log")), *sorted(self.paths.signal("alerts.log").parent.glob("alerts.log"))]
        logs += sorted(self.paths.runs.glob("*/*/output.log")) + sorted(self.paths.logs.glob("*.log"))
        texts = [f"── {path}\n{path.read_text(errors='replace')}" for path in logs]
        return self.run("status").stdout + "\n".join(texts)

    def session(self, run: str) -> dict[str, Any]:
        """Shim and program of a run, as the shim wrote them."""
        found: dict[str, Any] = json.loads((self.paths.run(run) / "session.json").read_text())
        return found

    def kill_session(self, run: str) -> None:
        """Kill -9: the shim first, so that nobody tells of the end."""
        found = self.session(run)
        for who in ("shim", "child"):
            with suppress(ProcessLookupError):
                os.kill(found[who]["pid"], signal.SIGKILL)

    def living(self) -> list[str]:
        """Command lines of processes that belong to this crew: sessions, and supervisors at work in it."""
        return [words for _, words in processes_of(self.root)]

    def wait_ended(self) -> None:
        """Until no process of this crew is left: one that has released its lock needs a moment to exit."""
        self.wait(lambda _: not self.living(), "the end of all processes")

    def clean(self) -> None:
        """End whatever a test left."""
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        for _ in range(5):
            found = processes_of(self.root)
            for pid, _ in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return


class Supervisor:
    """A supervisor process, and what it said."""

    def __init__(self, crew: Crew, process: subprocess.Popen[bytes], log: Path) -> None:
        self.crew, self.process, self._log = crew, process, log

    def said(self) -> str:
        return self._log.read_text()

    def wait_said(self, pattern: str) -> str:
        self.crew.wait(lambda _: re.search(pattern, self.said()), f"{pattern!r} in {self._log.name}")
        return self.said()

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """TERM; the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=LIMIT)

    def wait_gone(self) -> int:
        return self.process.wait(timeout=LIMIT)


def _status(state: State, task_id: str) -> str | None:
    task = state.task(task_id)
    return None if task is None else task.status.value


def processes_of(root: Path) -> list[tuple[int, str]]:
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        try:
            words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environ = (place / "environ").read_bytes().split(b"\0")
            here = (place / "cwd").readlink()
        except OSError:
            continue
        ours = {f"LIZA_ROOT={root}".encode(), f"LIZA_SHIM_ROOT={root}".encode()}
        if ours & set(environ) or ("liza" in words and here.is_relative_to(root)):
            found.append((int(place.name), words))
    return found


def history(crew: Crew) -> list[tuple[int, str, int, int]]:
    """Revision, subject, lines added and taken out of each commit of the history, oldest first."""
    text = crew.git(
        "log",
        "--reverse",
        "--format=@%(trailers:key=Liza-Revision,valueonly,separator=)%x09%s",
        "--numstat",
        "liza/blackboard",
    )
    found: list[tuple[int, str, int, int]] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("@"):
            revision, _, subject = line[1:].partition("\t")
            found.append((int(revision), subject, 0, 0))
        else:
            added, gone, _ = line.split("\t")
            found[-1] = (*found[-1][:2], int(added), int(gone))
    return found


def project(root: Path) -> None:
    """A project with a commit."""
    make_repository(root, {"README.md": "# A project\n\nEach task writes a file of its own name.\n"})


def begun(tmp_path: Path) -> Crew:
    """A project without a crew."""
    (tmp_path / "notes").mkdir()
    project(tmp_path / "project")
    return Crew(tmp_path / "project", tmp_path / "notes")


def start_up(crew: Crew, *words: str) -> subprocess.Popen[bytes]:
    """A `liza up` in a terminal of its own that prints into a log."""
    with (crew.notes / "up.log").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "liza"), "up", *words],
            cwd=crew.root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    crew.children.append(process)
    return process


@contextmanager
def started(tmp_path: Path, inside: bool = False, api: bool = False, **settings: object) -> Iterator[Crew]:
    """A crew that is initialised, with settings that lose no time, and ended after the test.

    ``inside``: with its slots in the repository, for tests that copy it and bring it back as it was. ``api``: its
    supervisors start the server of the worker API, which takes 0.5 s of CPU time.
    """
    made = tmp_path.parent / f"crew-{os.getpid()}"
    if not made.exists():
        aside = tmp_path / "first"
        aside.mkdir()
        first = begun(aside)
        first.prepare("init", "Every file is there", "--no-test")
        first.configure(**QUICK)
        first.root.rename(made)
    (tmp_path / "notes").mkdir()
    shutil.copytree(made, tmp_path / "project", symlinks=True)
    crew = Crew(tmp_path / "project", tmp_path / "notes")
    no_api = Lock(crew.paths.server_start_lock)
    if not api:
        no_api.acquire()
    if inside:
        slots_directory.write_record(crew.paths, SlotsRecord(crew.root, crew.root / ".worktrees" / ".slots", True))
        with (crew.root / ".git" / "info" / "exclude").open("a") as excluded:
            excluded.write("/.worktrees\n")
    if settings:
        crew.configure(**settings)
    try:
        yield crew
    finally:
        crew.clean()
        no_api.release()


def bytes_of_history(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every object of the repository, uncompressed."""
    listed = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch", "--unordered"], cwd=root, capture_output=True, check=True
    )
    yield "objects of git", listed.stdout


def bytes_of_files(*roots: Path) -> Iterator[tuple[str, bytes]]:
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()


def bytes_of_processes() -> Iterator[tuple[str, bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield str(path), path.read_bytes()
        except OSError:
            continue
