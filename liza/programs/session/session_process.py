"""The operating-system process of a run: start it under a shim, wait for it, and end it; and commands of the project.

All state is in the run directory, so a new supervisor can adopt the session of a crashed one: it reads
``session.json``, waits for the shim, and then reads ``exit.json``. A command of the project runs under a guard, which
kills everything that the command started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final

from liza.box.box import START_ERRORS
from liza.model.errors import Refused
from liza.model.model import ProcessIdentity
from liza.model.paths import HOST_LEASE, Paths
from liza.model.value_classes import FrozenStruct, Mutable, Value, asdict, field
from liza.programs.liveness import ProcessState, RunningSession, ShimStarting, VanishedSession, read_state
from liza.programs.presets.command_line import UNATTENDED_VARIABLES
from liza.programs.session import run_directory
from liza.system import ancestors, atomic, command_socket, crash_points, file_growth, processes, untrusted_files
from liza.system.ancestors import CONFINED, SHIM_PREFIX
from liza.system.locks import try_flock

SHIM_SCRIPT = Path(__file__).with_name("_shim.py").resolve()
START_LIMIT = 30.0  # seconds for the shim to answer; it takes 50 ms on a quiet machine
AGAIN = 0.1
"""Seconds until the next check of a session that cannot be awaited: its shim has not recorded its child yet, or the
system has no pidfd. A file that the shim writes ends the wait early; polling is still needed, because a killed shim
writes none and not every system has inotify."""
EXIT_RECORD_LIMIT = 10.0  # seconds for the shim to write the end after everything below it was killed


class StartFailed(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The program could not be started, and the reason."""

    reason: str


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

    With ``verbs`` the shim answers the program's commands at ``session.sock`` in the run directory.

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
        own: dict[str, Any] = {} if verbs is None else {"verbs": asdict(verbs)}
        if (lease := run_dir.parents[1] / HOST_LEASE).exists():
            own["lease"] = str(lease)
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


SOCKET_VARIABLE: Final = "LIZA_SESSION_SOCKET"
"""Variable of a session without a box whose commands run outside of it: the path of its socket. See `client.py`."""
FROM_CLIENT: Final = ("COLUMNS", "TERM", "NO_COLOR", "LANG", "TZ")
"""Variables of such a command that the calling process sets: they change only how its output looks."""
_RUN_DIRECTLY: Final = "import sys; from liza.cli.entry_points import liza; sys.exit(liza())"


class SessionVerbs(Value):
    """Launch data of a shim. It is never written to a file: ``env`` has the values of the supervisor's variables.

    ``root``: directory of the commands. ``names``: variables of ``env`` that the client sets. ``server`` and
    ``installation``: the command server. ``argv``: what runs a command without it. ``api``: the worker API's socket.
    ``start_errors``: beginnings of a line of output that tells that the box could not start the program.
    """

    root: str
    env: dict[str, str]
    names: tuple[str, ...]
    server: str
    installation: str
    argv: tuple[str, ...]
    api: str
    start_errors: tuple[str, ...]


def describe_verbs(
    paths: Paths, outside: Mapping[str, str], session: Mapping[str, str], session_id_env: str, *, is_confined: bool
) -> SessionVerbs:
    """Return how the commands of a session run: with the variables ``outside``, those of the supervisor, and who calls.

    ``session`` is the environment of the session, ``session_id_env`` the variable in which its program tells its tools
    the id of the conversation; empty if the program sets no such variable.
    """
    own = {name: session[name] for name in ("LIZA_AGENT_ID", "LIZA_RUN", "LIZA_ROOT", "LIZA_TASK") if name in session}
    # No program starts that an agent could use, such as a pager at a terminal of the agent's own.
    env = {**outside, **UNATTENDED_VARIABLES, **own, **({CONFINED: "yes"} if is_confined else {})}
    if "LIZA_TASK" not in own:
        env.pop("LIZA_TASK", None)
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    return SessionVerbs(
        root=str(paths.root),
        env=env,
        names=(*FROM_CLIENT, *((session_id_env,) if session_id_env else ())),
        server=os.fsdecode(command_socket.find_socket(variables)),
        installation=os.fsdecode(command_socket.identify_installation()),
        argv=(sys.executable, "-P", "-c", _RUN_DIRECTLY),
        api=str(paths.api_socket),
        start_errors=START_ERRORS if is_confined else (),
    )


GUARD_SCRIPT = Path(__file__).with_name("_guard.py").resolve()
END_LIMIT = 10.0
"""Seconds that a guard may take to kill what its command started."""


class GuardedCommand(Mutable):
    """A guard and its command. ``alive_fd`` is open while the command may run, and -1 once it is to end."""

    process: subprocess.Popen[bytes]
    alive_fd: int
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def terminate(self) -> None:
        """End the command and everything that it started, and wait for that. Do nothing if it is over."""
        with self._ending:
            if self.alive_fd >= 0:
                os.close(self.alive_fd)
                self.alive_fd = -1
        try:
            self.process.wait(timeout=END_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_guarded(words: Sequence[str], directory: Path, out: IO[bytes], env: Mapping[str, str]) -> GuardedCommand:
    """Start the command with its output to ``out``; ``env`` names its run as LIZA_RUN and LIZA_ROOT. Raises OSError."""
    read_end, alive = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD_SCRIPT), str(read_end), *words],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_hide_run(env),
            start_new_session=True,
            pass_fds=(read_end,),
        )
    except BaseException:
        with suppress(OSError):
            os.close(alive)
        raise
    finally:
        os.close(read_end)
    return GuardedCommand(process, alive)


def _hide_run(env: Mapping[str, str]) -> dict[str, str]:
    """Rename the run's variables: processes with the usual names are killed with the run, and the guard must go
    last."""
    return {
        ancestors.SHIM_PREFIX + name.removeprefix("LIZA_") if name.startswith("LIZA_") else name: value
        for name, value in env.items()
    }
