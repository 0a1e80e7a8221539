"""Start a git process through GitPython: the only module that starts git, and the only one that imports the library.

Decision 014. Nothing else of GitPython is used: its objects would run git without our time limits and configuration.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final, cast

from liza.system import program_path

if TYPE_CHECKING:
    from git.cmd import Git

# The person's own choice of configuration files is kept; every other GIT_* variable would override our arguments.
_PRESERVED_VARIABLES: Final = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
_IMPORT_VARIABLES: Final = {
    "GIT_PYTHON_TRACE": "",
    # The import runs `git version`, with a PATH that was not checked yet. A file that cannot be executed stops it, and
    # "quiet" makes that no error.
    "GIT_PYTHON_GIT_EXECUTABLE": os.devnull,
    "GIT_PYTHON_REFRESH": "quiet",
}
_importing: Final = threading.Lock()


@contextmanager
def _import_environment() -> Iterator[None]:
    """Set the variables that GitPython reads when it is imported, whatever the caller has set."""
    before = {name: os.environ.get(name) for name in _IMPORT_VARIABLES}
    os.environ.update(_IMPORT_VARIABLES)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


@cache
def load_library() -> tuple[type[Git], type[Exception]]:
    """Import GitPython; return its class that starts git, and its error for a missing program.

    The import takes 50 ms, and most commands start no git. The command server calls this function before it forks.
    """
    with _importing, _import_environment():
        from git.cmd import Git
        from git.exc import GitCommandNotFound
    return Git, GitCommandNotFound


def start(
    command: list[str], directory: Path, env: Mapping[str, str], stdin: int | IO[bytes], descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, with pipes for its output.

    ``env`` is added to the environment of this process, from which ``GIT_*`` is removed. ``stdin`` is PIPE or DEVNULL
    of `subprocess`, or a file; ``descriptors`` are inherited. Raises FileNotFoundError if the program does not exist.

    If ``directory`` cannot be entered, the library uses that of this process: ``command`` must name it with ``-C``.
    """
    # The library adds variables to the environment but cannot remove one; env(1) can.
    foreign = {name for name in os.environ if name.startswith("GIT_")} - _PRESERVED_VARIABLES - env.keys()
    cleared = [word for name in sorted(foreign) for word in ("-u", name)]
    library, not_found = load_library()
    try:
        process = library(str(directory)).execute(
            [*([program_path.find_program("env"), *cleared] if cleared else []), *command],
            istream=cast("BinaryIO", stdin),
            as_process=True,
            env=dict(env),
            start_new_session=True,
            pass_fds=descriptors,
        )
    except not_found as error:
        raise FileNotFoundError(command[0]) from error
    return cast("subprocess.Popen[bytes]", process)


def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process of ``start`` and return its exit status. The library's own ``wait`` raises for a failure."""
    return cast("subprocess.Popen[bytes]", getattr(process, "proc", process)).wait()
