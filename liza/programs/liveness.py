"""Who is alive: the state of a session by its files and processes, and whether an agent has a supervisor.

This module only reads evidence. Rules decide what follows from it: `tasks/rules/picking.py`, `model/agent_states.py`.
"""

from __future__ import annotations

import signal
from pathlib import Path

from liza.model.errors import LizaError
from liza.model.model import ProcessIdentity
from liza.model.paths import Paths
from liza.model.value_classes import AwareDatetime, FrozenStruct
from liza.programs.session import run_directory
from liza.programs.session.run_directory import RunDir
from liza.system import files, processes, untrusted_files
from liza.system.locks import is_flock_held, try_flock


class RunningSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The shim and its child, the program."""

    shim: ProcessIdentity
    child: ProcessIdentity
    time: AwareDatetime


class EndedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended: an exit code, a signal, or the ``error`` that kept it from starting. ``strays`` is the number of
    orphans that were killed at its end. ``unplugged``: its terminal had hung up. ``fenced``: the lease of its host was
    over."""

    time: AwareDatetime
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    strays: int = 0
    unplugged: bool = False
    fenced: bool = False


class NoSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """No session was started for this run."""


class ShimStarting(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A shim holds the run's lock and has not recorded its child yet."""


class VanishedSession(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Shim and program are proved dead, and there is no end record: they were killed, or the machine went down."""

    shim: ProcessIdentity
    child: ProcessIdentity


ProcessState = NoSession | ShimStarting | RunningSession | EndedSession | VanishedSession


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


def is_session_over(run_dir: RunDir) -> bool:
    """Whether the session is proved over or never existed: no process of the run can still call a command."""
    return isinstance(
        read_state(run_dir.path),
        EndedSession | VanishedSession | NoSession,
    )


def is_session_living(run_dir: RunDir) -> bool:
    """Whether the session lives, or cannot be proved dead."""
    return not is_session_over(run_dir)


def is_proved_over(run_dir: RunDir) -> bool:
    """As ``is_session_over``, but an unreadable file proves nothing: it must not stop other agents."""
    try:
        return is_session_over(run_dir)
    except LizaError:
        return False


def is_supervised(paths: Paths, agent: str) -> bool:
    """Return whether a supervisor of ``agent`` runs: its lock is held. Raises LizaError."""
    with files.convert_os_errors():
        return is_flock_held(paths.supervisor_lock(agent))
