"""Named points at which a test can kill, stop or fail this process, to prove that the next start repairs its state.

``LIZA_FAULT=board.rename`` kills the process with signal 9 when it passes that point for the first time,
``board.rename#3`` the third time. The suffix ``:group`` kills the whole process group, ``:stop`` stops the process,
``:full`` makes the step fail as on a full disk: ``git.switch#2:group``. ``LIZA_FAULT_TRACE=FILE`` appends every passed
point to a file. Agent programs do not get these variables, and they affect only the process that has them.
"""

from __future__ import annotations

import errno
import os
import signal

_passed = 0


def point(name: str, detail: str = "") -> None:
    """Mark a point after the step ``name`` on the object ``detail``. Raises OSError if a test set ``:full``."""
    if _is_armed():
        _pass_point(f"{name}.{detail}" if detail else name)


def limit_write(data: memoryview) -> memoryview:
    """Return the bytes for the first write: all of ``data``; in a test half of it, so that a crash tears the write."""
    return data[: len(data) // 2] if len(data) > 1 and _is_armed() else data


def _is_armed() -> bool:
    return "LIZA_FAULT" in os.environ or "LIZA_FAULT_TRACE" in os.environ


def _pass_point(name: str) -> None:
    global _passed
    where, _, how = os.environ.get("LIZA_FAULT", "").partition(":")
    wanted, _, count = where.partition("#")
    if trace_path := os.environ.get("LIZA_FAULT_TRACE"):
        with open(trace_path, "a") as trace:  # noqa: PTH123 - one small append is atomic
            trace.write(f"{os.getpid()} {name}\n")
    if name != wanted:
        return
    _passed += 1
    if _passed == int(count or 1):
        _trigger(how)


def _trigger(how: str) -> None:
    match how:
        case "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "group":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)
