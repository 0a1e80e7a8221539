"""The parent of a project command (tests, set-up): kills everything that the command started.

Run as ``python -I -S /abs/_guard.py ALIVE WORD...``. ALIVE is the read end of a pipe. The caller holds its write end:
end of file means that the caller is dead, or wants the command to end.

The guard is a subreaper, so a process that left its group, its session or its parent is still its descendant. The
command's environment names the run, so such a process can be attributed to it. The guard exits as the command did: with
its exit code, or by its signal.
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
ROUND_SECONDS = 0.2  # seconds that one round of killing waits for children to die
MAX_ROUNDS = 25  # new forks may need another round; 25 rounds are 5 s


def main(alive: int, words: list[str]) -> None:
    """Run the command until it ends or the caller ends it; kill what it left running; exit as it did."""
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(name, signal.SIG_IGN)
    wakeup = _open_wakeup_pipe()
    _shim.prctl(_shim.SUBREAPER, 1)
    # A caller killed while this process started: its successor may already work where the command would.
    if _is_caller_dead(alive):
        _exit_like(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        _exec_command(alive, words)
    status = _wait(child, alive, wakeup)
    _kill_all(child)
    _exit_like(status)


def _open_wakeup_pipe() -> int:
    """Return a descriptor that becomes readable when a child ends, and when this process gets SIGTERM."""
    wakeup, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for name in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(name, lambda number, frame: None)
    return wakeup


def _exec_command(alive: int, words: list[str]) -> None:
    """Replace this process with the command."""
    try:
        os.setsid()
        os.close(alive)
        _shim.prctl(_shim.DEATH_SIGNAL, signal.SIGKILL)
        for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        os.execvpe(words[0], words, restore_run_variables(os.environ))
    except BaseException as error:  # noqa: BLE001 - any error has to reach the log
        os.write(2, f"{_shim.explain_error(error, words[0])}\n".encode(errors="replace"))
    finally:
        os._exit(127)


def restore_run_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command, with the run under its usual variable names."""
    return {name.replace(HIDDEN_PREFIX, SHOWN_PREFIX, 1): value for name, value in environ.items()}


def _wait(child: int, alive: int, wakeup: int) -> int:
    """Return the wait status of the command; that of a death by SIGTERM if it was ended early."""
    while True:
        ready, _, _ = select.select([wakeup, alive], [], [])
        if wakeup in ready and bytes([signal.SIGTERM]) in os.read(wakeup, 4096):
            return signal.SIGTERM
        if (status := _reap(child)) is not None:
            return status
        if alive in ready and not os.read(alive, 1):
            return signal.SIGTERM


def _is_caller_dead(alive: int) -> bool:
    """Return whether the write end of the pipe is closed. Nothing is ever written to it."""
    return bool(select.select([alive], [], [], 0.0)[0])


def _reap(child: int) -> int | None:
    """Return the wait status of the command once it has ended. Also reaps orphans that the subreaper inherited."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                return None
    return None


def _kill_all(child: int) -> None:
    """Send SIGKILL to all descendants until none is left, in rounds: they may fork meanwhile."""
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
        # Still running: the signal is blocked, as it was in the starting process. Exit as a shell would report it.
        os._exit(128 + os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
