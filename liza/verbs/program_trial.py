"""The proof of a program: one small task, from the claim to its submission, in a project that is thrown away."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from liza.board import events
from liza.crew.crew import Crew, open_crew
from liza.crew.liza_path import liza_path
from liza.programs.presets.preset import Preset
from liza.programs.session import run_directory
from liza.repo.runner import Git
from liza.rules import toml_text
from liza.rules.model import Status, Task
from liza.rules.tasks.claims import UNCOUNTED_ENDS
from liza.verbs import init, task
from liza.verbs.down import end_unsupervised_sessions

TRIAL_LIMIT = 300.0
"""Seconds for a program to do what a person does in ten."""
LEAVE_TIMEOUT = 30.0
"""Seconds for its supervisor to leave."""
TRIAL_AGENT, TRIAL_TASK, TRIAL_PROGRAM = "coder-1", "proof", "tried"
_TASK_FIELDS = {
    "id": TRIAL_TASK,
    "description": "Put the one word done into a new file proof.txt",
    "done_when": "proof.txt is committed and holds the word done",
    "scope": "proof.txt",
    "spec_ref": "README.md",
}
_END_STATUSES = (Status.READY_FOR_REVIEW, Status.BLOCKED)
_END_EVENTS = frozenset({"crash", "ended", *UNCOUNTED_ENDS})
"""Of a session that did not bring its work to review: the next one would show nothing else."""


@dataclass(frozen=True)
class TrialCheck:
    """One thing that was to be shown: whether it was, and what showed it or did not."""

    what: str
    ok: bool
    evidence: str


@dataclass(frozen=True)
class Trial:
    """What a program did with its task, and why it went no further, where it did not."""

    checks: tuple[TrialCheck, ...]
    seconds: float
    failure: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was shown."""
        return all(proof.ok for proof in self.checks)


def trial(preset: Preset, permissions: str, limit: float = TRIAL_LIMIT) -> Trial:
    """Have the program do a small task, which asks its model a few times. Nothing of it stays.

    ``permissions`` is ``confined`` or ``bypass``, ``limit`` the seconds that it has. Raises LizaError, OSError.
    """
    with _interrupt_on_signals():
        # The worktrees lie beside the project.
        top = Path(tempfile.mkdtemp(prefix="liza-check-")).resolve()
        root = top / "project"
        root.mkdir()
        began = time.monotonic()
        try:
            crew = _crew(root, preset, permissions)
            with _run_supervisor(crew) as (child, log):
                in_time = _wait(crew, child, began + limit)
            return _judge_trial(crew, log.read_text(errors="replace"), in_time, time.monotonic() - began)
        finally:
            shutil.rmtree(top, ignore_errors=True)


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """TERM, and the HUP of a terminal that is closed, end the block as Ctrl+C does: with what it has to clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are heard elsewhere
        return

    def end(number: int, frame: object) -> None:
        # What sends one of them often sends the other at once: the cleaning is not to be cut off by it.
        for one in heard:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    heard = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}
    # One that is ignored was to be ignored, as under nohup.
    heard = {one: former for one, former in heard.items() if former is not signal.SIG_IGN}
    for one in heard:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one, former in heard.items():
            signal.signal(one, former)


def _crew(root: Path, preset: Preset, permissions: str) -> Crew:
    """A project with a page, a crew, and a task. The row goes with it: it may stand in a file of another project."""
    git = Git(root)
    git.out("init", "-q")
    git.out("symbolic-ref", "HEAD", "refs/heads/main")
    (root / "README.md").write_text("# A proof\n\nproof.txt holds the word done.\n", encoding="utf-8")
    git.out("add", "-A")
    git.with_identity().out("commit", "-q", "-m", "A page")
    init.init(root, init.InitOptions(goal="The proof is there", no_test=True, permissions=permissions, program=None))
    crew = open_crew(root)
    (crew.paths.liza / "programs.toml").write_text(format_preset(preset), encoding="utf-8")
    task.add(crew, task.parse_tasks(json.dumps(_TASK_FIELDS)))
    return crew


def format_preset(preset: Preset) -> str:
    """The row as a file has it, under the name ``ROW``."""
    fields = msgspec.to_builtins(preset)
    del fields["name"]
    return f"[programs]\n{TRIAL_PROGRAM} = {toml_text.format_value(fields)}\n"


@contextmanager
def _run_supervisor(crew: Crew) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A supervisor at work, and what it says; it has left, with its session, at the end of the block, and when this
    process is killed in it."""
    log = crew.paths.liza / "trial.log"
    words = [str(liza_path().with_name("liza-agent")), TRIAL_AGENT, "--program", TRIAL_PROGRAM, "--until-eof"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("LIZA_")}
    with log.open("wb") as out:
        child = subprocess.Popen(
            words,
            cwd=crew.paths.root,
            env=env,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield child, log
    finally:
        child.terminate()
        try:
            child.wait(timeout=LEAVE_TIMEOUT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            end_unsupervised_sessions(crew)
        assert child.stdin is not None
        child.stdin.close()


def _wait(crew: Crew, child: subprocess.Popen[bytes], end: float) -> bool:
    """Until the task is submitted or given up, or the supervisor has left; whether that came in time."""
    heard: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: heard.put(child.wait()), daemon=True).start()
    with events.watch(crew.paths) as watch:
        watch.subscribe(heard)
        while not _is_over(_task(crew)) and child.poll() is None:
            left = end - time.monotonic()
            if left <= 0:
                return False
            with suppress(queue.Empty):
                heard.get(timeout=left)
    return True


def _is_over(done: Task) -> bool:
    return done.status in _END_STATUSES or any(event.event in _END_EVENTS for event in done.history)


def _task(crew: Crew) -> Task:
    found = crew.board.read().task(TRIAL_TASK)
    assert found is not None
    return found


def _judge_trial(crew: Crew, log: str, in_time: bool, seconds: float) -> Trial:
    done = _task(crew)
    heard = [
        one.evidence
        for run in run_directory.list_runs(crew.paths, TRIAL_AGENT)
        if (one := crew.run_dir(run).read_sentinel())
    ]
    ahead = crew.git.run("rev-list", "--count", f"refs/heads/task/{TRIAL_TASK}", "^HEAD", codes=(0, 128)).stdout.strip()
    submitted = done.status is Status.READY_FOR_REVIEW
    committed = ahead not in (b"", b"0")
    proofs = (
        TrialCheck("brief", bool(heard), f"read it: {heard[0]}" if heard else "showed no sign that it has read it"),
        TrialCheck("commit", committed, "made one" if committed else "made none"),
        TrialCheck("submit", submitted, "did" if submitted else f"the task is {done.status.value}"),
    )
    return Trial(proofs, seconds, None if submitted else _failure_reason(crew, done, log, in_time, seconds))


def _failure_reason(crew: Crew, done: Task, log: str, in_time: bool, seconds: float) -> str:
    left = run_directory.read_supervisor_exit(crew.paths, TRIAL_AGENT)
    last = _last_output_line(log)
    if not in_time:
        return f"not done within {seconds:.0f} s; the last: {last}"
    ended = next((event.detail for event in done.history if event.event in _END_EVENTS and event.detail), None)
    return done.blocked_reason or (left.reason if left else None) or ended or last


def _last_output_line(log: str) -> str:
    """The last thing that the supervisor said, without the next command behind it, which is for the thrown away
    project."""
    said = [line for line in log.splitlines() if line.strip() and not line.startswith("  next: ")]
    return said[-1].removeprefix(TRIAL_AGENT).removeprefix("liza-agent: ").strip() if said else ""
