"""A filter of system calls that keeps a program from typing into its terminal.

Linux before 6.2, and later where ``dev.tty.legacy_tiocsti`` is 1, lets any process put input into its terminal
(TIOCSTI): the person's shell would run it after the box. Without a controlling terminal that is not possible either,
but then Ctrl+C and jobs are lost.
"""

from __future__ import annotations

import os
import struct
from typing import Final

_LOAD, _EQUALS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # instructions of the kernel's linux/filter.h
_NUMBER, _ARCHITECTURE, _REQUEST = 0, 4, 24  # offsets in seccomp_data; the request is the second argument
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO with EPERM
_REQUESTS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_X32: Final = 0x40000000
_CALLS: Final = {
    "x86_64": {0xC000003E: 16, 0x40000003: 54},
    "aarch64": {0xC00000B7: 29, 0x40000028: 54},
}
"""Number of ioctl by the architecture of a call (linux/audit.h), for each machine."""


def open_filter() -> int | None:
    """Return an inheritable descriptor with the filter for this machine; None if its calls are not known."""
    calls = _CALLS.get(os.uname().machine)
    if calls is None:
        return None
    reading, writing = os.pipe()
    os.write(writing, build_filter(calls))
    os.close(writing)
    os.set_inheritable(reading, True)
    return reading


def build_filter(calls: dict[int, int]) -> bytes:
    """Return the instructions: ioctl with one of the requests is refused, and so is each call of an architecture that
    the machine has besides.
    """
    program = [_row(_LOAD, _ARCHITECTURE)]
    for architecture, number in calls.items():
        part = [
            _row(_LOAD, _NUMBER),
            _row(_AT_LEAST, _X32, 4),  # the x32 interface has numbers of its own
            _row(_EQUALS, number, 0, 4),
            _row(_LOAD, _REQUEST),
            _row(_EQUALS, _REQUESTS[0], 1),
            _row(_EQUALS, _REQUESTS[1], 0, 1),
            _row(_RETURN, _REFUSE),
            _row(_RETURN, _ALLOW),
        ]
        program += [_row(_EQUALS, architecture, 0, len(part)), *part]
    return b"".join([*program, _row(_RETURN, _REFUSE)])


def _row(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
