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
from liza.rules.model import Entry, Identity, Moment
from liza.system import atomic, crash_points, file_growth, processes
from liza.system.ancestors import SHIM_PREFIX

SHIM = Path(__file__).with_name("_shim.py").resolve()
START_LIMIT = 30.0  # seconds for the shim to answer; it takes 50 ms on a quiet machine
AGAIN = 0.1
"""Seconds until the next look at a session without a process to wait for: its shim has not named its child yet, or the
system has no pidfd. A file that the shim writes ends the wait; a killed shim writes none, and not all have inotify."""
SETTLE = 10.0  # seconds for the shim to write the end after everything below it was killed


class Living(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """The shim and the program that it is the parent of."""

    shim: Identity
    child: Identity
    time: Moment


class Ended(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended: a code, a signal, or the ``error`` that kept it from starting. ``strays`` were ended with it.
    ``unplugged``: its terminal was gone by then."""

    time: Moment
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    strays: int = 0
    unplugged: bool = False


class Never(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """No session was started for this run."""


class ShimStarting(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """A shim holds the run, and has not named its child yet."""


class Vanished(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """Shim and program are proved dead and no end was left: killed, or the machine went down."""

    shim: Identity
    child: Identity


class NotStarted(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """The program could not be started, and why."""

    reason: str


Look = Never | ShimStarting | Living | Ended | Vanished
Bring = Callable[[Path, int, Mapping[str, Any]], tuple[str, str]]
"""Brings up a shim in a run directory, with the lock to hold and the launch; what it says of its start, and its
complaint if it could not even do that."""


def start(
    run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin_text: str | None = None
) -> Living | NotStarted:
    """Start a program with ``stdin_text`` as its whole input, or none; back when it runs, or is known not to.

    A run has one session: raises Refused when this run directory has, or had, one.
    """
    if stdin_text is None:
        return start_by(_shim, run_dir, argv, cwd, env)
    atomic.write(run_dir / "stdin", stdin_text.encode())
    return start_by(_shim, run_dir, argv, cwd, env, str(run_dir / "stdin"))


def start_by(
    bring: Bring, run_dir: Path, argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str = os.devnull
) -> Living | NotStarted:
    """Start a program under a shim that ``bring`` starts. Otherwise as ``start``."""
    run_dir = run_dir.resolve()
    launch = {"argv": list(argv), "cwd": str(cwd), "stdin": stdin}
    with _only_session(run_dir) as lock:
        # Values of the environment may be keys, so they go through a pipe; the record has the names.
        atomic.write(run_dir / "launch.json", json.dumps({**launch, "env": sorted(env)}).encode())
        said, complaint = bring(run_dir, lock.fileno(), {**launch, "env": dict(env)})
    crash_points.point("started", "session")
    living = run_directory.read(run_dir / "session.json", Living)
    if said == "started" and living is not None:
        return living
    wait(run_dir, SETTLE)
    return NotStarted(reason=said or complaint or f"the shim left no session in {run_dir}")


def shim_words(run_dir: Path, by: str) -> list[str]:
    """The command line of a shim; ``by`` is the descriptor of its lock, or the socket that it comes through."""
    return [sys.executable, "-I", "-S", str(SHIM), str(run_dir), by]


def _shim(run_dir: Path, lock: int, launch: Mapping[str, Any]) -> tuple[str, str]:
    """Bring up a shim as a child, with the launch on its stdin."""
    words = shim_words(run_dir, str(lock))
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
def _only_session(run_dir: Path) -> Iterator[IO[bytes]]:
    """The run's session lock, handed on to the shim, which holds it until it is gone."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(run_dir / "session.lock", flags, 0o600), "ab") as lock:
        if not _taken(lock) or (run_dir / "session.json").exists() or (run_dir / "exit.json").exists():
            raise Refused(f"run {run_dir.name} has a session already; each start takes the next run", "liza agents")
        yield lock


def _taken(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def look(run_dir: Path) -> Look:
    """Where the session of a run stands, by its files and the process table. Raises LizaError on an unreadable file."""
    end = ended(run_dir)
    if end is not None:
        return end
    living = run_directory.read(run_dir / "session.json", Living)
    if living is None:
        return ShimStarting() if is_held(run_dir) else ended(run_dir) or Never()
    if processes.alive(living.shim) or processes.alive(living.child):
        return living
    # Its last act was the rename; it may have come between the two looks.
    return ended(run_dir) or Vanished(shim=living.shim, child=living.child)


def ended(run_dir: Path) -> Ended | None:
    """The end, once the shim has written it."""
    return run_directory.read(run_dir / "exit.json", Ended)


def is_held(run_dir: Path) -> bool:
    """Whether a shim holds the lock of this run: its session lives."""
    try:
        with (run_dir / "session.lock").open("rb") as lock:
            return not _taken(lock)
    except (FileNotFoundError, NotADirectoryError):
        return False


def wait_fd(living: Living) -> int | None:
    """A descriptor that becomes readable when the session is over; None when it is, or the system has none."""
    handle = processes.handle_on(living.shim)
    return processes.handle_on(living.child) if handle is None else handle


def wait(run_dir: Path, limit: float) -> Look:
    """Wait for the end, at most ``limit`` seconds; how the session stands then."""
    end = time.monotonic() + limit
    # The watch is older than each look, so that nothing that the shim writes falls between a look and its rest.
    with file_growth.heard(run_dir, file_growth.NEWS) as rest:
        while True:
            found = look(run_dir)
            left = end - time.monotonic()
            if not isinstance(found, Living | ShimStarting) or left <= 0:
                return found
            handle = wait_fd(found) if isinstance(found, Living) else None
            if handle is None:
                rest(min(left, AGAIN))
                continue
            try:
                processes.readable(handle, left)
            finally:
                os.close(handle)


def stop(run_dir: Path, run: str, root: Path, grace: float) -> Look:
    """End the session and everything that it started: TERM to the group, ``grace`` seconds, then KILL. How it ended.

    Also right for a session that is over, or whose shim vanished: then only what it left behind is ended.
    """
    found = wait(run_dir, START_LIMIT) if isinstance(look(run_dir), ShimStarting) else look(run_dir)
    if isinstance(found, Living):
        ask(found)
        found = wait(run_dir, grace)
    left = _end_all(found, run, root)
    if isinstance(found, Living):
        found = wait(run_dir, SETTLE)
    if isinstance(found, Living):
        # It cannot write its end: stopped by a debugger, a full disk. Death is an end as well.
        shim = found.shim
        processes.kill_all(lambda: _still(shim))
        found = look(run_dir)
    if left:
        pids = ",".join(map(str, left))
        raise Refused(f"run {run} left processes that cannot be ended: {pids}", f"ps -fp {pids}")
    return found


def ask(living: Living) -> None:
    """Ask the program to end: TERM to its group, and a word to one that stands still. Nothing if it is gone."""
    if processes.proved_dead(living.child) is False:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(living.child.pid, signal.SIGTERM)
            os.killpg(living.child.pid, signal.SIGCONT)


def _end_all(found: Look, run: str, root: Path) -> tuple[int, ...]:
    """KILL what bears the run in its environment, and what hangs below the shim; what is left."""
    if not processes.has_proc():
        if isinstance(found, Living) and processes.proved_dead(found.child) is False:
            with suppress(ProcessLookupError):
                os.killpg(found.child.pid, signal.SIGKILL)
        return ()
    shim = found.shim if isinstance(found, Living) else None
    return processes.kill_all(lambda: chain(processes.each_of_run(run, root), processes.below(shim) if shim else ()))


def _still(process: Identity) -> tuple[int, ...]:
    return (process.pid,) if processes.proved_dead(process) is False else ()


def described(end: Ended) -> str:
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
