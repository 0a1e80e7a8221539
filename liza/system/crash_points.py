"""Named points at which a test can end, halt or fail this very process, to prove that its leftovers are settled.

``LIZA_FAULT=board.rename`` kills the process with signal 9 when it passes that point for the first time,
``board.rename#3`` the third time. ``:group`` behind it kills the whole process group, ``:stop`` halts the process,
``:full`` has the step fail as on a full disk: ``git.switch#2:group``. ``LIZA_FAULT_TRACE=FILE`` writes down every
point that is passed. No program that Liza starts for an agent is given these names, and a process can only harm itself.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Final

_FAULT: Final = os.environ.get("LIZA_FAULT", "")
_TRACE: Final = os.environ.get("LIZA_FAULT_TRACE", "")
_ARMED: Final = bool(_FAULT or _TRACE)
_WHERE, _, _KIND = _FAULT.partition(":")
_NAME, _, _COUNT = _WHERE.partition("#")
_passed = 0


def point(name: str, detail: str = "") -> None:
    """Here a process can die: ``name`` says after which step, ``detail`` of what. Raises OSError when told to fail."""
    if _ARMED:
        _pass_point(f"{name}.{detail}" if detail else name)


def limit_write(data: memoryview) -> memoryview:
    """What the next write takes of ``data``: all of it, or half where a test looks for what a torn write leaves."""
    return data[: len(data) // 2] if _ARMED and len(data) > 1 else data


def _pass_point(name: str) -> None:
    global _passed
    if _TRACE:
        with open(_TRACE, "a") as trace:  # noqa: PTH123 - one small append, which the kernel does not tear
            trace.write(f"{os.getpid()} {name}\n")
    if name != _NAME:
        return
    _passed += 1
    if _passed == int(_COUNT or 1):
        _trigger()


def _trigger() -> None:
    match _KIND:
        case "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "group":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)
