"""Try a program: it does one small task, from claim to submission, in a throw-away project."""

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
from pathlib import Path
from typing import Any

import msgspec

from liza.board import events
from liza.crew.crew import Crew, open_crew
from liza.git.runner import Git
from liza.model.configuration import Config
from liza.model.errors import read_last_message
from liza.model.history_events import UNFINISHED_ENDS
from liza.model.model import Status, Task
from liza.programs.presets.preset import Preset
from liza.programs.session import run_directory
from liza.project import init
from liza.project.programs import Trial, TrialCheck
from liza.supervisor.down import end_unsupervised_sessions
from liza.system.installation import liza_path
from liza.tasks import task
from liza.text import formats

TRIAL_LIMIT = 300.0
"""Seconds for a program to do a task that takes a person ten seconds."""
LEAVE_TIMEOUT = 30.0
"""Seconds for its supervisor to exit."""
TRIAL_AGENT, TRIAL_TASK, TRIAL_PROGRAM = "coder-1", "proof", "program-on-trial"
_TASK_FIELDS = {
    "id": TRIAL_TASK,
    "description": "Put the one word done into a new file proof.txt",
    "done_when": "proof.txt is committed and holds the word done",
    "scope": "proof.txt",
    "spec_ref": "README.md",
}
_END_STATUSES = (Status.READY_FOR_REVIEW, Status.BLOCKED)


def trial(preset: Preset, config: Config, limit: float = TRIAL_LIMIT) -> Trial:
    """Run a small task with the program, which makes a few requests to its model. All files are deleted afterwards.

    ``config``: its permissions and confinement are used; ``limit`` is in seconds. Raises LizaError, OSError.
    """
    with _interrupt_on_signals():
        # The worktrees are created beside the project, so the project needs a directory of its own.
        directory = Path(tempfile.mkdtemp(prefix="liza-check-")).resolve()
        root = directory / "project"
        root.mkdir()
        started = time.monotonic()
        try:
            crew = _crew(root, preset, config)
            with _run_supervisor(crew) as (child, log):
                in_time = _wait(crew, child, started + limit)
            return _judge_trial(crew, preset.name, log.read_text(errors="replace"), in_time, time.monotonic() - started)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, so that the block cleans up as after Ctrl+C."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return

    def end(number: int, frame: object) -> None:
        # The sender of one signal often sends the other too: it must not interrupt the clean-up.
        for handled in former_handlers:
            signal.signal(handled, signal.SIG_IGN)
        raise KeyboardInterrupt

    former_handlers = {handled: signal.getsignal(handled) for handled in (signal.SIGTERM, signal.SIGHUP)}
    # A signal that is ignored stays ignored, as under nohup.
    former_handlers = {handled: former for handled, former in former_handlers.items() if former is not signal.SIG_IGN}
    for handled in former_handlers:
        signal.signal(handled, end)
    try:
        yield
    finally:
        for handled, former in former_handlers.items():
            signal.signal(handled, former)


def _crew(root: Path, preset: Preset, config: Config) -> Crew:
    """Create a project with a file, a crew and a task. The preset is copied: it may be from another project's file."""
    git = Git(root)
    git.out("init", "-q")
    git.out("symbolic-ref", "HEAD", "refs/heads/main")
    (root / "README.md").write_text("# A proof\n\nproof.txt holds the word done.\n", encoding="utf-8")
    git.out("add", "-A")
    git.with_identity().out("commit", "-q", "-m", "A page")
    options = init.InitOptions(
        goal="The proof is there",
        no_test=True,
        permissions=config.permissions,
        confinement=config.confinement,
        program=None,
    )
    init.init(root, options)
    crew = open_crew(root)
    (crew.paths.liza / "programs.toml").write_text(format_preset(preset), encoding="utf-8")
    task.add(crew, task.parse_tasks(json.dumps(_TASK_FIELDS)))
    return crew


def format_preset(preset: Preset) -> str:
    """Format a preset as the text of programs.toml, under the name TRIAL_PROGRAM."""
    fields = msgspec.to_builtins(preset)
    del fields["name"]
    return f"[programs]\n{TRIAL_PROGRAM} = {formats.format_value(fields)}\n"


@contextmanager
def _run_supervisor(crew: Crew) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a supervisor during the block; yield its process and its log.

    The supervisor and its session are ended at the end of the block. If this process is killed, the supervisor exits at
    the end of its stdin (``--until-eof``).
    """
    log = crew.paths.liza / "trial.log"
    argv = [str(liza_path().with_name("liza-agent")), TRIAL_AGENT, "--program", TRIAL_PROGRAM, "--until-eof"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("LIZA_")}
    with log.open("wb") as out:
        child = subprocess.Popen(
            argv,
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
    """Wait until the task is submitted or has failed, or the supervisor has exited; return whether that was in time."""
    events_queue: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: events_queue.put(child.wait()), daemon=True).start()
    with events.watch(crew.paths) as watch:
        watch.subscribe(events_queue)
        while not _is_over(_task(crew)) and child.poll() is None:
            remaining = end - time.monotonic()
            if remaining <= 0:
                return False
            with suppress(queue.Empty):
                events_queue.get(timeout=remaining)
    return True


def _is_over(task: Task) -> bool:
    # After a session without a closing command, another one would end the same way.
    return task.status in _END_STATUSES or any(event.event in UNFINISHED_ENDS for event in task.history)


def _task(crew: Crew) -> Task:
    task_entry = crew.board.read().task(TRIAL_TASK)
    assert task_entry is not None
    return task_entry


def _judge_trial(crew: Crew, program: str, log: str, in_time: bool, seconds: float) -> Trial:
    task_entry = _task(crew)
    evidence = [
        sentinel.evidence
        for run in run_directory.list_runs(crew.paths, TRIAL_AGENT)
        if (sentinel := crew.run_dir(run).read_sentinel())
    ]
    ahead = crew.git.run("rev-list", "--count", f"refs/heads/task/{TRIAL_TASK}", "^HEAD", codes=(0, 128)).stdout.strip()
    submitted = task_entry.status is Status.READY_FOR_REVIEW
    committed = ahead not in (b"", b"0")
    checks = (
        TrialCheck(
            "brief", bool(evidence), f"read it: {evidence[0]}" if evidence else "showed no sign that it has read it"
        ),
        TrialCheck("commit", committed, "made one" if committed else "made none"),
        TrialCheck("submit", submitted, "did" if submitted else f"the task is {task_entry.status.value}"),
    )
    if submitted:
        return Trial(checks, seconds)
    reason = _failure_reason(crew, task_entry, log, in_time, seconds)
    return Trial(checks, seconds, reason.replace(TRIAL_PROGRAM, program))


def _failure_reason(crew: Crew, task_entry: Task, log: str, in_time: bool, seconds: float) -> str:
    exit_note = run_directory.read_supervisor_exit(crew.paths, TRIAL_AGENT)
    last = _last_output_line(log)
    if not in_time:
        return f"not done within {seconds:.0f} s; last output: {last}"
    session_failure = next(
        (event.detail for event in task_entry.history if event.event in UNFINISHED_ENDS and event.detail), None
    )
    return task_entry.blocked_reason or (exit_note.reason if exit_note else None) or session_failure or last


def _last_output_line(log: str) -> str:
    """Last line of the supervisor's output, without the next command, which is for the deleted project."""
    message, _ = read_last_message("liza-agent", log)
    return message.removeprefix(TRIAL_AGENT).strip()
