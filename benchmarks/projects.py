"""A project with a crew, for rows that run the installed commands; the helpers of the journeys do the work."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.options import Options
from liza.model.errors import LizaError
from liza.model.paths import HISTORY_REF
from liza.programs.terminal import tmux
from liza.system.locks import Lock
from tests.journeys.crews import APPROVE, WORK, Crew, begun, processes_of

INSTANT = f'case "$LIZA_RUN" in\ncode-reviewer-*)\n{APPROVE};;\n*)\n{WORK};;\nesac\n'
"""Coder and reviewer that need no model: each does its work at once."""
IMPATIENT = {"grace": 1, "restart_after_crash": 0.05, "restart_after_handoff": 0.05}


@contextmanager
def project(options: Options, **settings: object) -> Iterator[Crew]:
    """A crew without a test command; its processes are ended and its files removed afterwards."""
    home = Path(tempfile.mkdtemp(prefix="crew-", dir=options.scratch))
    crew = begun(home)
    try:
        crew.prepare("init", "Every file is there", "--no-test")
        crew.configure(**{**IMPATIENT, **settings})
        yield crew
    finally:
        end_processes(crew)
        shutil.rmtree(home, ignore_errors=True)


def end_processes(crew: Crew) -> None:
    """End the supervisors of a crew and what they left."""
    for child in crew.children:
        child.terminate()
    for child in crew.children:
        with suppress(TimeoutError, Exception):
            child.wait(timeout=20)
    with suppress(LizaError, OSError):
        tmux.close_all_panes(crew.root)
    for _ in range(20):
        living = processes_of(crew.root)
        for pid, _ in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not living:
            return
        time.sleep(0.05)


@contextmanager
def recorded_elsewhere(crew: Crew) -> Iterator[None]:
    """Hold the lock of a supervisor, so that commands leave the recording of the history to it, as in a crew."""
    crew.paths.locks.mkdir(exist_ok=True)
    with Lock(crew.paths.supervisor_lock("coder-99")).acquire(timeout=0):
        yield


def history_size(crew: Crew) -> tuple[float, float]:
    """Return the size on disk of the board's history, and that of the journal, in MB."""
    objects = crew.git("rev-list", "--objects", "--no-object-names", HISTORY_REF)
    sizes = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectsize:disk)"],
        cwd=crew.root, input=objects + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    journal = sum(path.stat().st_size for path in crew.paths.journal.parent.glob(f"{crew.paths.journal.name}*"))
    return sum(map(int, sizes.stdout.split())) / 1e6, journal / 1e6


def commit_work(worktree: Path, name: str) -> None:
    """Commit a new file in a worktree."""
    from tests.conftest import git

    (worktree / name).write_text("x\n")
    git(worktree, "add", "-A")
    git(worktree, "commit", "-q", "-m", "work")
