"""The parent of a command of the project (its tests, its set-up): ends everything that the command started.

Run as ``python -I -S /abs/_guard.py ALIVE WORD...``. ALIVE is the read end of a pipe whose write end the caller holds:
its end of file says that the caller is dead, or wants the command to end. The guard is a subreaper, so that a process
that left its group, its session or its parent is still below it; and its environment names the run, so that such a
process is known to come from a command. It ends as the command ended: with its exit code, or by its signal.
"""
# pathlib would double the time that this takes to start.

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping

sys.path.append(os.path.abspath(f"{__file__}/../../../.."))  # noqa: PTH100

from liza.programs.session import _shim

HIDDEN_PREFIX, SHOWN_PREFIX = "LIZA_SHIM_", "LIZA_"
ROUND_SECONDS = 0.2  # seconds that one round of killing waits for its dead
MAX_ROUNDS = 25


def main(alive: int, words: list[str]) -> None:
    """Run the command to its end, or to the caller's; end what it left; end as it did."""
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(name, signal.SIG_IGN)
    heard = _open_wakeup_pipe()
    _shim.prctl(_shim.SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        _exec_command(alive, words)
    status = _wait(child, alive, heard)
    _kill_all(child)
    _exit_like(status)


def _open_wakeup_pipe() -> int:
    """A descriptor that becomes readable when a child ends, and when this process is asked to end."""
    heard, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for name in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(name, lambda number, frame: None)
    return heard


def _exec_command(alive: int, words: list[str]) -> None:
    """Turn this process into the command."""
    try:
        os.setsid()
        os.close(alive)
        _shim.prctl(_shim.DEATH_SIGNAL, signal.SIGKILL)
        for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        os.execvpe(words[0], words, restore_run_variables(os.environ))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the log has to say it
        os.write(2, f"{_shim.explain_error(error, words[0])}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def restore_run_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: the run under its usual names."""
    return {name.replace(HIDDEN_PREFIX, SHOWN_PREFIX, 1): value for name, value in environ.items()}


def _wait(child: int, alive: int, heard: int) -> int:
    """The wait status of the command; that of one killed by SIGTERM where it was to end before."""
    while True:
        ready, _, _ = select.select([heard, alive], [], [])
        if heard in ready and bytes([signal.SIGTERM]) in os.read(heard, 4096):
            return signal.SIGTERM
        if (status := _reap(child)) is not None:
            return status
        if alive in ready and not os.read(alive, 1):
            return signal.SIGTERM


def _reap(child: int) -> int | None:
    """The wait status of the command once it has ended; orphans that came to the subreaper are reaped on the way."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                return None
    return None


def _kill_all(child: int) -> None:
    """Send SIGKILL to everything below this process until nothing is left: it may fork meanwhile."""
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    for _ in range(MAX_ROUNDS):
        for pid in _shim.find_descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if _shim.reap_children(ROUND_SECONDS):
            return


def _exit_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no other action.
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
        # Still here: the signal is blocked, as it was for whoever started this. The lower half of the status is 0.
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
