"""Build the command line of a box: a process with its own view of the files, users and processes (bubblewrap).

Everything is read-only except what is mounted as writable. The process has no capabilities, and user, pid, ipc and uts
namespaces of its own. `specs/threat-model.md` says what a box does not stop.
"""

from __future__ import annotations

import os
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
