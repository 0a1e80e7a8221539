"""The process that has a terminal, and whether it is a shell: a shell executes what is typed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from liza.box.box import is_box
from liza.programs.terminal.idle_detection import descriptor_target, is_terminal, read_argv
from liza.system import proc_stat, processes
from liza.system.processes import PROC

SHELLS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "rzsh", "rksh", "ksh93", "lksh", "oksh", "pdksh",
    "yash", "posh", "osh", "hush", "fish", "csh", "tcsh", "nu", "pwsh", "elvish", "xonsh", "rc", "es",
})  # fmt: skip
# Programs that start a shell, of which only the first name is visible.
SHELL_STARTERS = frozenset({"nix-shell", "busybox", "toybox", "su", "sudo", "doas", "script", "chroot"})


def is_shell(argv: Sequence[str]) -> bool:
    """Return whether a program executes what is typed: any shell, unless its first argument is a script or ``-c``.

    Only the flags of a script's first line, such as ``-eu``, may precede it. With any other option it counts as an
    interactive shell: the value of an option can look like a script.
    """
    if not argv:
        return False
    name = program_name(argv[0])
    first = next((word for word in argv[1:] if not re.fullmatch("-[efuvx]+", word)), "")
    return name in SHELL_STARTERS or (name in SHELLS and not _is_script(first))


def program_name(word: str) -> str:
    """Return the name of a program from its first argument; a login shell has a dash before it."""
    return word.rpartition("/")[2].removeprefix("-")


def _is_script(word: str) -> bool:
    """Return whether an argument names a script, or is ``-c``; paths in /dev and /proc may be the terminal itself."""
    if word.startswith(("-", "+")):
        return re.fullmatch("-[efuvx]*c", word) is not None
    return bool(word) and not f"{posixpath.normpath(word)}/".lstrip("/").startswith(("dev/", "proc/"))


def reveal_shell(argv: tuple[str, ...], executable: str) -> tuple[str, ...]:
    """Return the argv, with the executable in front if that is a shell under another name."""
    is_hidden = program_name(executable) in SHELLS and bool(argv) and program_name(argv[0]) not in SHELLS
    return (executable, *argv[1:]) if is_hidden else argv


def find_foreground_argv(shim: int) -> tuple[str, ...] | None:
    """Return the argv of the process that has the shim's terminal; None if there is no /proc, or no such process.

    If several processes have it, a shell that reads the terminal is preferred: it may receive what is typed.
    """
    try:
        fields = proc_stat.read_stat(shim)
        if fields is None:
            return None
        group = int(fields[proc_stat.TERMINAL_GROUP])
        argv = _argv_of(group)
    except (OSError, ValueError):
        return None
    if is_shell(argv):
        return argv
    readers = list(_foreground_readers(shim, group))
    first = next((reader for reader in readers if not is_box(reader)), argv) if is_box(argv) else argv
    return next((reader for reader in readers if is_shell(reader)), first)


def _foreground_readers(shim: int, group: int) -> Iterator[tuple[str, ...]]:
    """Yield the argv of each process of a group, below a shim, whose stdin is a terminal."""
    living = processes.identify_process(shim)
    for pid in processes.find_descendants(living) if living is not None else ():
        # A process that ended meanwhile reads nothing.
        with suppress(OSError, ValueError):
            fields = proc_stat.read_stat(pid)
            if fields is not None and int(fields[proc_stat.GROUP]) == group and is_terminal(descriptor_target(pid, 0)):
                yield _argv_of(pid)


def _argv_of(pid: int) -> tuple[str, ...]:
    """Return the argv of a process; empty for a zombie. Raises OSError if it is gone."""
    argv = read_argv(pid)
    try:
        executable = str((PROC / str(pid) / "exe").readlink())
    except OSError:
        executable = ""
    return reveal_shell(argv, executable)
