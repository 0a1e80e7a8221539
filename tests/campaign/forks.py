"""Processes by fork: they start in milliseconds and have the product imported, for campaigns that kill hundreds."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from liza.model.errors import LizaError
from liza.system import crash_points

BROKEN = 99
"""The exit code of a fork whose work raised what is no LizaError; its traceback is on stderr."""


def arm(fault: str = "", trace: Path | None = None) -> None:
    """Set the fault points of this very process, as ``LIZA_FAULT`` and ``LIZA_FAULT_TRACE`` would."""
    for name, value in (("LIZA_FAULT", fault), ("LIZA_FAULT_TRACE", str(trace or ""))):
        os.environ.pop(name, None)
        if value:
            os.environ[name] = value
    vars(crash_points)["_passed"] = 0


def fork(work: Callable[[], object], fault: str = "", trace: Path | None = None, quiet: Path | None = None) -> int:
    """Do ``work`` in a process of its own, in a session of its own, and its pid at once; ``quiet``: where it prints.

    It ends with 0, with the exit code of the LizaError that came of the work, or BROKEN.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        os.setsid()
        if quiet is not None:
            handle = os.open(quiet, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
        arm(fault, trace)
        work()
        code = 0
    except LizaError as refused:
        os.write(2, f"{type(refused).__name__}: {refused}\n".encode())
        code = refused.exit_code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a fork: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(work: Callable[[], object], fault: str = "", trace: Path | None = None, quiet: Path | None = None) -> int:
    """``fork`` and ``ended``."""
    return ended(fork(work, fault, trace, quiet))


def kill(pid: int) -> None:
    """Kill -9 of a fork and its group; nothing where it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def passed(trace: Path) -> list[str]:
    """Every point that a trace names, as a fault that can be asked for: ``git.update-ref#1``, ``git.update-ref#2``."""
    seen: Counter[str] = Counter()
    found = []
    for line in trace.read_text().splitlines():
        name = line.partition(" ")[2]
        seen[name] += 1
        found.append(f"{name}#{seen[name]}")
    return found
