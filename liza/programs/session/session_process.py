"""The operating-system process of a run: start it under a shim, read its state, wait for it, and end it.

All state is in the run directory, so a new supervisor can adopt the session of a crashed one: it reads
``session.json``, waits for the shim, and then reads ``exit.json``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any

from liza.model.errors import Refused
from liza.model.model import AwareDatetime, FrozenStruct, ProcessIdentity
from liza.model.value_classes import asdict
from liza.programs.session import run_directory
from liza.programs.session.session_verbs import SessionVerbs
from liza.system import atomic, crash_points, file_growth, processes, untrusted_files
from liza.system.ancestors import SHIM_PREFIX
from liza.system.locks import try_flock

SHIM_SCRIPT = Path(__file__).with_name("_shim.py").resolve()
START_LIMIT = 30.0  # seconds for the shim to answer; it takes 50 ms on a quiet machine
AGAIN = 0.1
"""Seconds until the next check of a session that cannot be awaited: its shim has not recorded its child yet, or the
system has no pidfd. A file that the shim writes ends the wait early; polling is still needed, because a killed shim
writes none and not every system has inotify."""
EXIT_RECORD_LIMIT = 10.0  # seconds for the shim to write the end after everything below it was killed


class RunningSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The shim and its child, the program."""

    shim: ProcessIdentity
    child: ProcessIdentity
    time: AwareDatetime


class EndedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended: an exit code, a signal, or the ``error`` that kept it from starting. ``strays`` is the number of
    orphans that were killed at its end. ``unplugged``: its terminal had hung up."""

    time: AwareDatetime
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    strays: int = 0
    unplugged: bool = False


class NoSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """No session was started for this run."""


class ShimStarting(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A shim holds the run's lock and has not recorded its child yet."""


class VanishedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Shim and program are proved dead, and there is no end record: they were killed, or the machine went down."""

    shim: ProcessIdentity
    child: ProcessIdentity


class StartFailed(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The program could not be started, and the reason."""

    reason: str


ProcessState = NoSession | ShimStarting | RunningSession | EndedSession | VanishedSession
ShimStarter = Callable[[Path, int, Mapping[str, Any]], tuple[str, str]]
"""Start a shim in a run directory, with the descriptor of the lock to hold and the launch data. Return the shim's
report of the start, and its error output if it reported nothing."""


def start(
    run_dir: Path,
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin_text: str | None = None,
    verbs: SessionVerbs | None = None,
) -> RunningSession | StartFailed:
    """Start a program with ``stdin_text`` as its whole input, or none. Return once it runs, or is known to have failed.

    With ``verbs`` the shim answers commands from inside the program's box at ``session.sock`` in the run directory.

    A run has at most one session: raises Refused if this run directory has or had one.
    """
    if stdin_text is None:
        return start_with(_start_shim, run_dir, argv, cwd, env, verbs=verbs)
    atomic.write(run_dir / "stdin", stdin_text.encode())
    return start_with(_start_shim, run_dir, argv, cwd, env, str(run_dir / "stdin"), verbs)


def start_with(
    bring: ShimStarter,
    run_dir: Path,
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = os.devnull,
    verbs: SessionVerbs | None = None,
) -> RunningSession | StartFailed:
    """Start a program under a shim that is started by ``bring``. Otherwise as ``start``."""
    run_dir = run_dir.resolve()
    launch = {"argv": list(argv), "cwd": str(cwd), "stdin": stdin}
    with _lock_session(run_dir) as lock:
        # Values of the environment may be API keys, so they are passed through a pipe; the file has only the names.
        atomic.write(run_dir / "launch.json", json.dumps({**launch, "env": sorted(env)}).encode())
        own = {} if verbs is None else {"verbs": asdict(verbs)}
        report, error_output = bring(run_dir, lock.fileno(), {**launch, **own, "env": dict(env)})
    crash_points.point("started", "session")
    living = run_directory.read_struct(run_dir / "session.json", RunningSession)
    if report == "started" and living is not None:
        return living
    wait_for_end(run_dir, EXIT_RECORD_LIMIT)
    return StartFailed(reason=report or error_output or f"the shim left no session in {run_dir}")


def shim_argv(run_dir: Path, by: str) -> list[str]:
    """Return the command line of a shim; ``by`` is the descriptor of its lock, or the socket that passes it."""
    return [sys.executable, "-I", "-S", str(SHIM_SCRIPT), str(run_dir), by]


def _start_shim(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Start a shim as a child process, with the launch data on its stdin."""
    argv = shim_argv(run_dir, str(lock))
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shim_env(launch["env"]),
        pass_fds=(lock,),
        start_new_session=True,
        text=True,
    ) as shim:
        crash_points.point("spawned", "shim")
        try:
            report, error_output = shim.communicate(json.dumps(launch), timeout=START_LIMIT)
        except subprocess.TimeoutExpired:
            shim.kill()
            return f"the shim did not answer within {START_LIMIT:.0f} s", ""
    return report.strip(), error_output.strip().rpartition("\n")[2]


def shim_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return a minimal environment that names the run under other variables.

    Processes with the run's usual variables are killed at the end of the session; the shim must survive them to
    write the end record.
    """
    run = {name.replace("LIZA_", SHIM_PREFIX): env[name] for name in ("LIZA_RUN", "LIZA_ROOT") if name in env}
    return {"PATH": os.environ.get("PATH", os.defpath), **run}


@contextmanager
def _lock_session(run_dir: Path) -> Iterator[IO[bytes]]:
    """Acquire the run's session lock. The shim inherits it and holds it until the shim exits.

    Raises Refused, NotRegularFile.
    """
    descriptor = untrusted_files.open_regular(run_dir / "session.lock", os.O_RDWR | os.O_APPEND | os.O_CREAT)
    with os.fdopen(descriptor, "ab") as lock:
        if not try_flock(lock.fileno()) or (run_dir / "session.json").exists() or (run_dir / "exit.json").exists():
            raise Refused(f"run {run_dir.name} has a session already; each start takes the next run", "liza agents")
        yield lock


def read_state(run_dir: Path) -> ProcessState:
    """Return the state of the run's session, from its files and the process table.

    Raises LizaError if a file is unreadable.
    """
    end = read_end(run_dir)
    if end is not None:
        return end
    living = run_directory.read_struct(run_dir / "session.json", RunningSession)
    if living is None:
        return ShimStarting() if is_locked(run_dir) else read_end(run_dir) or NoSession()
    if processes.may_be_alive(living.shim) or processes.may_be_alive(living.child):
        return living
    # The shim writes exit.json as its last act; it may have done so between the read above and the liveness check.
    return read_end(run_dir) or VanishedSession(shim=living.shim, child=living.child)


def read_end(run_dir: Path) -> EndedSession | None:
    """Return the end record, or None until the shim has written it."""
    return run_directory.read_struct(run_dir / "exit.json", EndedSession)


def is_locked(run_dir: Path) -> bool:
    """Return whether a shim holds the lock of this run: its session is running."""
    try:
        with untrusted_files.open_to_read(run_dir / "session.lock") as lock:
            return not try_flock(lock.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_wait_fd(living: RunningSession) -> int | None:
    """Return a descriptor that becomes readable when the session is over; None if it is over or there is no pidfd."""
    handle = processes.open_pidfd(living.shim)
    return processes.open_pidfd(living.child) if handle is None else handle


def wait_for_end(run_dir: Path, limit: float) -> ProcessState:
    """Wait for the end, at most ``limit`` seconds. Return the state at that time."""
    end = time.monotonic() + limit
    # The watch starts before the first read, so no file written between a read and the wait is missed.
    with file_growth.watch_growth(run_dir, file_growth.NEWS) as wait_for_news:
        while True:
            state = read_state(run_dir)
            left = end - time.monotonic()
            if not isinstance(state, RunningSession | ShimStarting) or left <= 0:
                return state
            handle = open_wait_fd(state) if isinstance(state, RunningSession) else None
            if handle is None:
                wait_for_news(min(left, AGAIN))
                continue
            try:
                processes.wait_readable(handle, left)
            finally:
                os.close(handle)


def stop(run_dir: Path, run: str, root: Path, grace: float) -> ProcessState:
    """End the session and everything that it started: SIGTERM to the group, ``grace`` seconds, then SIGKILL.

    Return the final state. Also valid for a session that is over, or whose shim vanished: then only its orphans are
    killed. The same holds if the shim in ``session.json`` does not belong to this run. Raises Refused if processes
    survive.
    """
    state = wait_for_end(run_dir, START_LIMIT) if isinstance(read_state(run_dir), ShimStarting) else read_state(run_dir)
    if isinstance(state, RunningSession) and not _is_of_run(state, run, root):
        state = VanishedSession(shim=state.shim, child=state.child)
    if isinstance(state, RunningSession):
        terminate(state)
        state = wait_for_end(run_dir, grace)
    survivors = _kill_all(state, run, root)
    if isinstance(state, RunningSession):
        state = wait_for_end(run_dir, EXIT_RECORD_LIMIT)
    if isinstance(state, RunningSession):
        # The shim cannot write its end record: it is stopped by a debugger, or the disk is full. Kill it as well.
        shim = state.shim
        processes.kill_all(lambda: _pid_if_alive(shim))
        state = read_state(run_dir)
    if survivors:
        pids = ",".join(map(str, survivors))
        raise Refused(f"run {run} left processes that cannot be ended: {pids}", f"ps -fp {pids}")
    return state


def _is_of_run(session: RunningSession, run: str, root: Path) -> bool:
    """Return whether the recorded processes are the run's shim and its child. Agents can write the record."""
    if processes.is_guard_of(session.shim.pid, run, root) is False:
        return False
    parent = processes.parent_pid(session.child.pid)
    return parent is None or parent == session.shim.pid


def terminate(living: RunningSession) -> None:
    """Send SIGTERM, then SIGCONT, to the program's process group: a stopped process handles SIGTERM only once
    continued. Do nothing if it is dead."""
    if processes.is_proved_dead(living.child) is False:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(living.child.pid, signal.SIGTERM)
            os.killpg(living.child.pid, signal.SIGCONT)


def _kill_all(state: ProcessState, run: str, root: Path) -> tuple[int, ...]:
    """Send SIGKILL to every process with the run in its environment, and to the shim's descendants. Return the
    survivors."""
    if not processes.has_proc():
        if isinstance(state, RunningSession) and processes.is_proved_dead(state.child) is False:
            with suppress(ProcessLookupError):
                os.killpg(state.child.pid, signal.SIGKILL)
        return ()
    shim = state.shim if isinstance(state, RunningSession) else None
    return processes.kill_all(
        lambda: chain(processes.iter_run_pids(run, root), processes.find_descendants(shim) if shim else ())
    )


def _pid_if_alive(process: ProcessIdentity) -> tuple[int, ...]:
    return (process.pid,) if processes.is_proved_dead(process) is False else ()


def describe_end(end: EndedSession) -> str:
    """Return the end for a person: ``exit 1``, ``ended by SIGKILL``, ``could not start: …``."""
    if end.error is not None:
        return f"could not start: {end.error}"
    if end.signal is not None:
        return f"ended by {signal_name(end.signal)}"
    return f"exit {end.code}"


def signal_name(number: int) -> str:
    """Return the signal's name: ``SIGTERM`` for 15."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
