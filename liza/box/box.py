"""Build the command line of a box: a process with its own view of the files, users and processes (bubblewrap).

Everything is read-only except what is mounted as writable. The process has no capabilities, and user, pid, ipc and uts
namespaces of its own. `specs/threat-model.md` says what a box does not stop.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from liza.model.value_classes import Value

_SIGNALS: Final = "INT,TERM,HUP,QUIT"
"""bubblewrap ends its program with SIGKILL when it gets one of these; ignored there, the program can handle them."""

_ENV: Final = "/usr/bin/env"
"""Not looked up in PATH: an agent may have written one of its directories."""


_NAME: Final = "bwrap"
START_ERRORS: Final = (f"{_NAME}: ", f"{_ENV}: ")
"""Beginnings of the line that a box prints when it cannot be made, or cannot start its program."""


def is_box(argv: Sequence[str]) -> bool:
    """Return whether a process with this command line makes a box, and waits for the program in it."""
    return bool(argv) and argv[0].rpartition("/")[2] == _NAME


class MountKind(StrEnum):
    """How a path is seen in a box."""

    READ_ONLY = "read-only"
    WRITABLE = "writable"
    EMPTY = "empty"
    """A directory of the box's own, which is gone with it: what it hides is not there."""


class Mount(Value):
    """A path of the box, and the path of the machine that it shows. ``source`` is None if both are the same."""

    kind: MountKind
    target: Path
    source: Path | None = None

    @property
    def shown(self) -> Path:
        """The path outside of the box that it shows."""
        return self.source or self.target


class Box(Value):
    """A box. Later mounts cover earlier ones. ``directory``: where its program starts."""

    program: str
    """Path of bubblewrap."""
    mounts: tuple[Mount, ...]
    directory: Path
    has_network: bool = True
    filter_descriptor: int | None = None
    """Descriptor with a filter of system calls, which the process that starts the box passes on."""

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the box. The environment is that of the process."""
        return [
            _ENV, f"--ignore-signal={_SIGNALS}", self.program,
            "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *_protect_kernel_settings(),
            *(word for mount in self.mounts for word in _mount_options(mount)),
            "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL",
            *(() if self.has_network else ("--unshare-net",)),
            *(() if self.filter_descriptor is None else ("--seccomp", str(self.filter_descriptor))),
            "--die-with-parent", "--chdir", str(self.directory),
            "--", _ENV, f"--default-signal={_SIGNALS}", *argv,
        ]  # fmt: skip


def _protect_kernel_settings() -> tuple[str, ...]:
    """Make /proc/sys read-only for root: the kernel checks the user there, not a capability.

    Not for other users: a box inside the box could not mount /proc.
    """
    return ("--ro-bind", "/proc/sys", "/proc/sys") if os.geteuid() == 0 else ()


def _mount_options(mount: Mount) -> tuple[str, ...]:
    if mount.kind is MountKind.EMPTY:
        return ("--tmpfs", str(mount.target))
    option = "--bind" if mount.kind is MountKind.WRITABLE else "--ro-bind"
    return (option, str(mount.shown), str(mount.target))


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
    """Return an inheritable descriptor with a filter that keeps a program from typing into its terminal.

    None if the system calls of this machine are not known.

    Linux before 6.2, and later where ``dev.tty.legacy_tiocsti`` is 1, lets any process put input into its terminal
    (TIOCSTI): the person's shell would run it after the box. Without a controlling terminal that is not possible
    either, but then Ctrl+C and jobs are lost.
    """
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
