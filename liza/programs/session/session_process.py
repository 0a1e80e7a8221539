"""The living process of a run: started under a shim, looked at by anyone, ended for good.

A supervisor that died leaves nothing but this directory behind, and it is enough: who adopts reads ``session.json``,
waits on the shim, and finds ``exit.json``.
"""

from __future__ import annotations

import fcntl
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

from liza.programs.session import run_directory
from liza.rules.errors import Refused
from liza.rules.model import AwareDatetime, FrozenStruct, ProcessIdentity
from liza.system import atomic, crash_points, file_growth, processes
from liza.system.ancestors import SHIM_PREFIX

SHIM_SCRIPT = Path(__file__).with_name("_shim.py").resolve()
START_LIMIT = 30.0  # seconds for the shim to answer; it takes 50 ms on a quiet machine
AGAIN = 0.1
"""Seconds until the next look at a session without a process to wait for: its shim has not named its child yet, or the
system has no pidfd. A file that the shim writes ends the wait; a killed shim writes none, and not all have inotify."""
EXIT_RECORD_LIMIT = 10.0  # seconds for the shim to write the end after everything below it was killed


class RunningSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The shim and the program that it is the parent of."""

    shim: ProcessIdentity
    child: ProcessIdentity
    time: AwareDatetime


class EndedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended: a code, a signal, or the ``error`` that kept it from starting. ``strays`` were ended with it.
    ``unplugged``: its terminal was gone by then."""

    time: AwareDatetime
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    strays: int = 0
    unplugged: bool = False


class NoSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """No session was started for this run."""


class ShimStarting(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A shim holds the run, and has not named its child yet."""


class VanishedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Shim and program are proved dead and no end was left: killed, or the machine went down."""

    shim: ProcessIdentity
    child: ProcessIdentity


class StartFailed(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The program could not be started, and why."""

    reason: str


ProcessState = NoSession | ShimStarting | RunningSession | EndedSession | VanishedSession
ShimStarter = Callable[[Path, int, Mapping[str, Any]], tuple[str, str]]
"""Brings up a shim in a run directory, with the lock to hold and the launch; what it says of its start, and its
complaint if it could not even do that."""


def start(
    run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin_text: str | None = None
) -> RunningSession | StartFailed:
    """Start a program with ``stdin_text`` as its whole input, or none; back when it runs, or is known not to.

    A run has one session: raises Refused when this run directory has, or had, one.
    """
    if stdin_text is None:
        return start_with(_start_shim, run_dir, argv, cwd, env)
    atomic.write(run_dir / "stdin", stdin_text.encode())
    return start_with(_start_shim, run_dir, argv, cwd, env, str(run_dir / "stdin"))


def start_with(
    bring: ShimStarter, run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str = os.devnull
) -> RunningSession | StartFailed:
    """Start a program under a shim that ``bring`` starts. Otherwise as ``start``."""
    run_dir = run_dir.resolve()
    launch = {"argv": list(argv), "cwd": str(cwd), "stdin": stdin}
    with _lock_session(run_dir) as lock:
        # Values of the environment may be keys, so they go through a pipe; the record has the names.
        atomic.write(run_dir / "launch.json", json.dumps({**launch, "env": sorted(env)}).encode())
        said, complaint = bring(run_dir, lock.fileno(), {**launch, "env": dict(env)})
    crash_points.point("started", "session")
    living = run_directory.read_struct(run_dir / "session.json", RunningSession)
    if said == "started" and living is not None:
        return living
    wait_for_end(run_dir, EXIT_RECORD_LIMIT)
    return StartFailed(reason=said or complaint or f"the shim left no session in {run_dir}")


def shim_argv(run_dir: Path, by: str) -> list[str]:
    """The command line of a shim; ``by`` is the descriptor of its lock, or the socket that it comes through."""
    return [sys.executable, "-I", "-S", str(SHIM_SCRIPT), str(run_dir), by]


def _start_shim(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Bring up a shim as a child, with the launch on its stdin."""
    words = shim_argv(run_dir, str(lock))
    with subprocess.Popen(
        words,
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
            said, complaint = shim.communicate(json.dumps(launch), timeout=START_LIMIT)
        except subprocess.TimeoutExpired:
            shim.kill()
            return f"the shim did not answer within {START_LIMIT:.0f} s", ""
    return said.strip(), complaint.strip().rpartition("\n")[2]


def shim_env(env: Mapping[str, str]) -> dict[str, str]:
    """Little, and the run under other names: what bears the run itself is ended with it, and the shim has to report."""
    run = {name.replace("LIZA_", SHIM_PREFIX): env[name] for name in ("LIZA_RUN", "LIZA_ROOT") if name in env}
    return {"PATH": os.environ.get("PATH", os.defpath), **run}


@contextmanager
def _lock_session(run_dir: Path) -> Iterator[IO[bytes]]:
    """The run's session lock, handed on to the shim, which holds it until it is gone."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(run_dir / "session.lock", flags, 0o600), "ab") as lock:
        if not _try_lock(lock) or (run_dir / "session.json").exists() or (run_dir / "exit.json").exists():
            raise Refused(f"run {run_dir.name} has a session already; each start takes the next run", "liza agents")
        yield lock


def _try_lock(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read_state(run_dir: Path) -> ProcessState:
    """Where the session of a run stands, by its files and the process table. Raises LizaError on an unreadable file."""
    end = read_end(run_dir)
    if end is not None:
        return end
    living = run_directory.read_struct(run_dir / "session.json", RunningSession)
    if living is None:
        return ShimStarting() if is_locked(run_dir) else read_end(run_dir) or NoSession()
    if processes.may_be_alive(living.shim) or processes.may_be_alive(living.child):
        return living
    # Its last act was the rename; it may have come between the two looks.
    return read_end(run_dir) or VanishedSession(shim=living.shim, child=living.child)


def read_end(run_dir: Path) -> EndedSession | None:
    """The end, once the shim has written it."""
    return run_directory.read_struct(run_dir / "exit.json", EndedSession)


def is_locked(run_dir: Path) -> bool:
    """Whether a shim holds the lock of this run: its session lives."""
    try:
        with (run_dir / "session.lock").open("rb") as lock:
            return not _try_lock(lock)
    except (FileNotFoundError, NotADirectoryError):
        return False


def open_wait_fd(living: RunningSession) -> int | None:
    """A descriptor that becomes readable when the session is over; None when it is, or the system has none."""
    handle = processes.open_pidfd(living.shim)
    return processes.open_pidfd(living.child) if handle is None else handle


def wait_for_end(run_dir: Path, limit: float) -> ProcessState:
    """Wait for the end, at most ``limit`` seconds; how the session stands then."""
    end = time.monotonic() + limit
    # The watch is older than each look, so that nothing that the shim writes falls between a look and its rest.
    with file_growth.watch_growth(run_dir, file_growth.NEWS) as rest:
        while True:
            found = read_state(run_dir)
            left = end - time.monotonic()
            if not isinstance(found, RunningSession | ShimStarting) or left <= 0:
                return found
            handle = open_wait_fd(found) if isinstance(found, RunningSession) else None
            if handle is None:
                rest(min(left, AGAIN))
                continue
            try:
                processes.wait_readable(handle, left)
            finally:
                os.close(handle)


def stop(run_dir: Path, run: str, root: Path, grace: float) -> ProcessState:
    """End the session and everything that it started: TERM to the group, ``grace`` seconds, then KILL. How it ended.

    Also right for a session that is over, or whose shim vanished: then only what it left behind is ended.
    """
    found = wait_for_end(run_dir, START_LIMIT) if isinstance(read_state(run_dir), ShimStarting) else read_state(run_dir)
    if isinstance(found, RunningSession):
        terminate(found)
        found = wait_for_end(run_dir, grace)
    left = _kill_all(found, run, root)
    if isinstance(found, RunningSession):
        found = wait_for_end(run_dir, EXIT_RECORD_LIMIT)
    if isinstance(found, RunningSession):
        # It cannot write its end: stopped by a debugger, a full disk. Death is an end as well.
        shim = found.shim
        processes.kill_all(lambda: _pid_if_alive(shim))
        found = read_state(run_dir)
    if left:
        pids = ",".join(map(str, left))
        raise Refused(f"run {run} left processes that cannot be ended: {pids}", f"ps -fp {pids}")
    return found


def terminate(living: RunningSession) -> None:
    """Ask the program to end: TERM to its group, and a word to one that stands still. Nothing if it is gone."""
    if processes.is_proved_dead(living.child) is False:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(living.child.pid, signal.SIGTERM)
            os.killpg(living.child.pid, signal.SIGCONT)


def _kill_all(found: ProcessState, run: str, root: Path) -> tuple[int, ...]:
    """KILL what bears the run in its environment, and what hangs below the shim; what is left."""
    if not processes.has_proc():
        if isinstance(found, RunningSession) and processes.is_proved_dead(found.child) is False:
            with suppress(ProcessLookupError):
                os.killpg(found.child.pid, signal.SIGKILL)
        return ()
    shim = found.shim if isinstance(found, RunningSession) else None
    return processes.kill_all(
        lambda: chain(processes.iter_run_pids(run, root), processes.find_descendants(shim) if shim else ())
    )


def _pid_if_alive(process: ProcessIdentity) -> tuple[int, ...]:
    return (process.pid,) if processes.is_proved_dead(process) is False else ()


def describe_end(end: EndedSession) -> str:
    """``exit 1``, ``ended by SIGKILL``, ``could not start: …``."""
    if end.error is not None:
        return f"could not start: {end.error}"
    if end.signal is not None:
        return f"ended by {signal_name(end.signal)}"
    return f"exit {end.code}"


def signal_name(number: int) -> str:
    """``SIGTERM`` for 15."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
