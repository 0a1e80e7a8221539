"""Run a program for a person: by hand, in a slot with the brief of its task, elsewhere with that of the crew; or
on trial, for one small task from claim to submission in a throw-away project.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from liza.board.contract import Board
from liza.briefs import checkout_brief
from liza.crew.caller import identify_run, require_person
from liza.crew.crew import Crew, open_crew
from liza.git.runner import Git
from liza.model.configuration import Config
from liza.model.derived import CurrentWork, find_current_work
from liza.model.errors import LizaError, LockTimeout, NotOwner, ProgramMissing, Refused, UsageError, read_last_message
from liza.model.history_events import UNFINISHED_ENDS
from liza.model.model import State, Status, Task
from liza.model.paths import Paths, agent_of
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value
from liza.programs import liveness
from liza.programs.liveness import EndedSession, RunningSession
from liza.programs.presets import command_line, preset_table
from liza.programs.presets.preset import Preset
from liza.programs.rules.program_spec import Transport
from liza.programs.session import run_directory
from liza.programs.session.run_directory import ReadyEvidence, RunDir
from liza.project import init
from liza.project.baseline import InitOptions
from liza.project.programs import Trial, TrialCheck
from liza.supervisor.down import end_unsupervised_sessions
from liza.supervisor.launch import Launcher
from liza.supervisor.session_files import remove_worktree_files
from liza.system import atomic, crash_points, files, processes
from liza.system.installation import liza_path
from liza.system.locks import Lock
from liza.tasks import task
from liza.tasks.rules import claims, leases
from liza.text import formats

_TYPED = "liza run"


class RunRequest(Value):
    """What a person typed, and where: the program, as for ``up --program``, the arguments that it gets, the environment
    and the directory."""

    program: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path


def run_program(crew: Crew, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run the program until it ends, in the caller's terminal or with the caller's pipes; return its exit status.

    Raises Refused inside a session, in a slot without a task, and if a supervisor runs the slot's agent; UsageError for
    an unknown program; ProgramMissing; WriteFailed; LizaError.
    """
    require_person(crew, planner=False)
    preset = _resolve(crew.paths, request)
    preset_table.require_executable(preset, typed=_TYPED)
    slots = crew.paths.slots.resolve()
    run = _run_in_slot if request.cwd.resolve().is_relative_to(slots) else _run_in_checkout
    with files.convert_os_errors():
        return run(crew, preset, request, notify)


def _resolve(paths: Paths, request: RunRequest) -> Preset:
    preset = preset_table.load_presets(paths).resolve(request.program, _TYPED, request.cwd)
    if preset.via is Transport.ACP:
        model = f"@{preset.chosen_model}" if preset.chosen_model else ""
        raise UsageError(f"{request.program} has no terminal: it is driven over ACP", f"{_TYPED} {preset.name}{model}")
    return preset


def _run_in_slot(crew: Crew, preset: Preset, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run it with the brief of the slot's task, as the claim's run. The claim stays when it ends."""
    environ, cwd = request.environ, request.cwd
    caller = identify_run(crew, environ, cwd)
    agent = caller.agent
    named = environ.get("LIZA_AGENT_ID")
    if named not in (None, agent):
        raise Refused(f"this worktree is {agent}'s, and LIZA_AGENT_ID is {named}", "unset LIZA_AGENT_ID")
    slot = cwd.resolve().relative_to(crew.paths.slots.resolve()).parts[0]
    with holding_agent(crew.paths, agent):
        state = crew.board.read()
        work = find_current_work(state, agent)
        if work is None or work.run != caller.run:
            raise Refused(f"{agent} holds no work in this worktree any more", f"liza claim --agent {agent}")
        work = take_run(crew, state, work, slot)
        launcher = Launcher(crew, preset, environ, notify)
        session = SlotSession(crew, launcher, crew.paths.slot(slot), work)
        status = 1
        try:
            prepared = session.prepare(interactive=_is_terminal(), args=request.args)
            with renewing_lease(crew, work.run, notify):
                status = run_child(
                    prepared.argv,
                    cwd,
                    prepared.env,
                    stdin_text=prepared.stdin_text,
                    started=session.record_start,
                )
        finally:
            session.finish(status)
    _tell_next(crew.board, work.task, agent, notify)
    return status


def _tell_next(board: Board, task: str | None, agent: str, notify: Callable[[str], None]) -> None:
    """Say that the work is still held, and how it goes on."""
    work = find_current_work(board.read(), agent)
    if work is not None and work.task == task:
        notify(f"{agent} still holds {task}: start a program again, or liza submit, or liza task release {task}")


def _run_in_checkout(crew: Crew, preset: Preset, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run it as the person's own program: its own options and permissions, and the context in its instructions file."""
    env = {**request.environ, **preset.env, **command_line.model_env(preset)}
    env["PATH"] = f"{liza_path().parent}:{env['PATH']}" if env.get("PATH") else os.defpath
    argv = (str(preset_table.require_executable(preset)), *preset.args, *command_line.model_args(preset), *request.args)
    with checkout_brief.written(crew, preset, notify) as brief:
        if brief.placement.file is None:
            notify(f"{preset.name} starts without Liza's context: {brief.placement.reason}")
        return run_child(argv, request.cwd, env, descriptors=(brief.lock_descriptor,))


def _is_terminal() -> bool:
    """Whether the caller's input and output are a terminal. In a pipe a program runs without one, with its prompt."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


LOCK_TIMEOUT = 2.0  # seconds: a process that only checks whether the lock is free holds it for a moment


class PreparedSession(Value):
    """What to start: the command line, its environment, and its whole input if that is not the caller's."""

    argv: tuple[str, ...]
    env: dict[str, str]
    stdin_text: str | None


class SlotSession:
    """The session of ``run`` in the slot ``worktree``. ``notify`` prints notices."""

    def __init__(self, crew: Crew, launcher: Launcher, worktree: Path, work: CurrentWork) -> None:
        self.crew = crew
        self.launcher = launcher
        self.worktree = worktree
        self.work = work
        self.directory = crew.run_dir(work.run)

    def prepare(self, *, interactive: bool, args: tuple[str, ...]) -> PreparedSession:
        """Write brief and hooks into the slot; return what to start. ``args`` are the caller's for the program.

        Raises LizaError, OSError.
        """
        state, launcher = self.crew.board.read(), self.launcher
        self.directory.create(launcher.run_record(state, self.work, self.worktree))
        # First: this tells what a killed `liza run` leaves from a session that counts as a try.
        self.directory.mark_ready(self.crew.clock.now(), ReadyEvidence.BY_HAND)
        crash_points.point("by-hand", "recorded")
        launcher.install_guards(state, self.directory)
        inputs = launcher.worktree_files.install(state, self.work, self.directory, self.worktree)
        crash_points.point("by-hand", "briefed")
        launcher.terminal = interactive
        command = launcher.build_command(state, inputs, self.directory, self.worktree, args)
        env = inputs.hooks.apply_to({**launcher.session_environment(self.work, self.worktree), **command.env})
        path = str(preset_table.require_executable(launcher.preset))
        return PreparedSession((path, *command.argv[1:]), env, command.stdin_text)

    def record_start(self, pid: int) -> None:
        """Record the processes, so that others see a living session and a supervisor can adopt it."""
        child = processes.identify_process(pid)
        if child is not None:  # it has ended already
            living = RunningSession(shim=processes.identify_self(), child=child, time=self.crew.clock.now())
            atomic.write(self.directory.path / "session.json", msgspec.json.encode(living))

    def finish(self, status: int) -> None:
        """End what the program left running, remove its files from the slot, and renew the lease. Idempotent.

        The claim stays: the person goes on, or starts the program again. Raises LizaError, OSError.
        """
        if not self.directory.exists():
            return
        processes.kill_run(self.work.run, self.crew.paths.root)
        is_signal = status > SIGNAL_BASE
        end = EndedSession(
            time=self.crew.clock.now(),
            code=None if is_signal else status,
            signal=status - SIGNAL_BASE if is_signal else None,
        )
        atomic.write(self.directory.path / "exit.json", msgspec.json.encode(end))
        crash_points.point("by-hand", "ended")
        clear_session(self.crew, self.directory)
        with suppress(NotOwner):  # it submitted, handed off or lost its work
            renew(self.crew, self.work.run)


def clear_session(crew: Crew, directory: RunDir) -> None:
    """Remove the files of an ended session by hand from its slot, then its directory: the work is by hand again."""
    record = directory.read_record()
    if record is not None:
        remove_worktree_files(crew, record)
    with suppress(FileNotFoundError):
        shutil.rmtree(directory.path)


def take_run(crew: Crew, state: State, work: CurrentWork, slot: str) -> CurrentWork:
    """Return the work with a run whose directory is free: the claim's own, or the next one after an ended session.

    Raises Refused if a session of the run lives.
    """
    directory = crew.run_dir(work.run)
    if not directory.exists():
        return work
    if liveness.is_session_living(directory):
        raise Refused(f"a session of {work.run} runs already", f"liza agents {agent_of(work.run)}")
    sentinel = directory.read_sentinel()
    if sentinel is not None and sentinel.evidence == ReadyEvidence.BY_HAND:
        # Left by a killed `liza run`: it counts as no try.
        processes.kill_run(work.run, crew.paths.root)
        clear_session(crew, directory)
        return work
    if not directory.is_concluded() or work.kind is not WorkKind.WORK or work.task is None:
        raise Refused(
            f"the session {work.run} has ended, and its end is not recorded yet", f"liza-agent {agent_of(work.run)}"
        )
    with crew.change(agent_of(work.run), "resume", work.task) as tx:
        tx.state, run = claims.resume(tx.state, work.task, work.run, crew.clock.now())
    crew.worktrees.assign_run(slot, work.task, run)
    crew.worktrees.leave_box(slot)
    resumed = find_current_work(tx.state, agent_of(run))
    assert resumed is not None
    return resumed


def renew(crew: Crew, run: str) -> None:
    """Renew the lease of a run. A heartbeat adds no revision. Raises NotOwner, LizaError."""
    with crew.board.heartbeat(run) as tx:
        tx.state = leases.renew_lease(tx.state, run, crew.clock.now())


@contextmanager
def holding_agent(paths: Paths, agent: str) -> Iterator[None]:
    """Hold the lock of the agent's supervisor: none starts meanwhile, and no agent takes the task over.

    Raises Refused if a supervisor runs.
    """
    lock = Lock(paths.supervisor_lock(agent))
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout as error:
        raise Refused(
            f"{agent} has a supervisor, which starts its sessions itself: {error.message}", f"liza attach {agent}"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def renewing_lease(crew: Crew, run: str, notify: Callable[[str], None]) -> Iterator[None]:
    """Renew the lease of ``run`` every heartbeat_interval, from a thread, until the end."""
    is_over, interval = threading.Event(), float(crew.board.read().config.heartbeat_interval)

    def renew_until_over() -> None:
        while not is_over.wait(interval):
            try:
                renew(crew, run)
            except NotOwner:
                return  # it submitted, handed off or lost its work
            except (LizaError, OSError) as error:
                notify(f"! the lease of {run} was not renewed: {error}")

    thread = threading.Thread(target=renew_until_over, name="renew", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


SIGNAL_BASE = 128
"""A shell reports the end of a program by signal N as exit status 128 + N."""
_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""Signals that the terminal sends to the program itself: it is in the same process group."""
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run_child(
    argv: Sequence[str],
    directory: Path,
    env: Mapping[str, str],
    *,
    stdin_text: str | None = None,
    descriptors: Collection[int] = (),
    started: Callable[[int], None] = lambda pid: None,
) -> int:
    """Run the program until it ends; return its exit status, as a shell would report it.

    It has the caller's terminal, or the caller's pipes; ``stdin_text`` is its whole input instead. It inherits
    ``descriptors``. ``started`` gets its pid. Raises ProgramMissing if it cannot be started.
    """
    stdin = None if stdin_text is None else subprocess.PIPE
    with _passing_signals() as pass_to:
        try:
            child = subprocess.Popen(argv, cwd=directory, env=dict(env), stdin=stdin, pass_fds=tuple(descriptors))
        except OSError as error:  # such as a script whose interpreter does not exist, or arguments that are too long
            hint = f"ls -l {shlex.quote(argv[0])}"
            raise ProgramMissing(f"{argv[0]} cannot be started: {error.strerror}", hint) from error
        pass_to(child)
        started(child.pid)
        if child.stdin is not None and stdin_text is not None:
            with suppress(BrokenPipeError), child.stdin:
                child.stdin.write(stdin_text.encode())
        status = child.wait()
    return SIGNAL_BASE - status if status < 0 else status


@contextmanager
def _passing_signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Leave signals from the terminal to the program, and forward requests to end to it.

    A signal that arrives before the program runs is sent to it as soon as it does.
    """
    running: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if running:
            running[0].send_signal(number)
        else:
            early.append(number)

    def pass_to(child: subprocess.Popen[bytes]) -> None:
        running.append(child)
        for number in early:
            child.send_signal(number)

    def ignore(number: int, _frame: FrameType | None) -> None:
        """Handle a signal without SIG_IGN, which the program would inherit."""

    handlers: dict[int, Any] = {number: signal.signal(number, ignore) for number in _FROM_TERMINAL}
    handlers |= {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield pass_to
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
    # The worktrees are created beside the project, so the project needs a directory of its own.
    directory = Path(tempfile.mkdtemp(prefix="liza-check-")).resolve()
    root = directory / "project"
    root.mkdir()
    started = time.monotonic()
    try:
        crew = _crew(root, preset, config)
        model = f"@{preset.chosen_model}" if preset.chosen_model else ""
        with _run_supervisor(crew, TRIAL_PROGRAM + model) as (child, log):
            in_time = _wait(crew, child, started + limit)
        return _judge_trial(crew, preset.name, log.read_text(errors="replace"), in_time, time.monotonic() - started)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _crew(root: Path, preset: Preset, config: Config) -> Crew:
    """Create a project with a file, a crew and a task. The preset is copied: it may be from another project's file."""
    git = Git(root)
    git.out("init", "-q")
    git.out("symbolic-ref", "HEAD", "refs/heads/main")
    (root / "README.md").write_text("# A proof\n\nproof.txt holds the word done.\n", encoding="utf-8")
    git.out("add", "-A")
    git.with_identity().out("commit", "-q", "-m", "A page")
    options = InitOptions(
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
    for key in ("name", "chosen_model"):
        fields.pop(key, None)
    return f"[programs]\n{TRIAL_PROGRAM} = {formats.format_value(fields)}\n"


@contextmanager
def _run_supervisor(crew: Crew, program: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a supervisor during the block; yield its process and its log.

    The supervisor and its session are ended at the end of the block. If this process is killed, the supervisor exits at
    the end of its stdin (``--until-eof``).
    """
    log = crew.paths.liza / "trial.log"
    argv = [str(liza_path().with_name("liza-agent")), TRIAL_AGENT, "--program", program, "--until-eof"]
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
    with crew.board.watch() as watch:
        watch.subscribe(events_queue)
        while not _is_over(_task(crew.board)) and child.poll() is None:
            remaining = end - time.monotonic()
            if remaining <= 0:
                return False
            with suppress(queue.Empty):
                events_queue.get(timeout=remaining)
    return True


def _is_over(task: Task) -> bool:
    # After a session without a closing command, another one would end the same way.
    return task.status in _END_STATUSES or any(event.event in UNFINISHED_ENDS for event in task.history)


def _task(board: Board) -> Task:
    task_entry = board.read().task(TRIAL_TASK)
    assert task_entry is not None
    return task_entry


def _judge_trial(crew: Crew, program: str, log: str, in_time: bool, seconds: float) -> Trial:
    task_entry = _task(crew.board)
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
    reason = _failure_reason(crew.paths, task_entry, log, in_time, seconds)
    return Trial(checks, seconds, reason.replace(TRIAL_PROGRAM, program))


def _failure_reason(paths: Paths, task_entry: Task, log: str, in_time: bool, seconds: float) -> str:
    exit_note = run_directory.read_supervisor_exit(paths, TRIAL_AGENT)
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
