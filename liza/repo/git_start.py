"""Start a git process: directly, or through GitPython in processes that live long.

Decision 014 says why there are two ways. Both start the same command with the same environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, cast

from liza.system import program_path

if TYPE_CHECKING:
    import subprocess

# The person's own choice of configuration files is kept; every other GIT_* variable would override our arguments.
_PRESERVED_VARIABLES = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}


class _Start(Protocol):
    def __call__(
        self,
        command: list[str],
        directory: Path,
        env: Mapping[str, str],
        stdin: int | BinaryIO,
        descriptors: Sequence[int],
    ) -> subprocess.Popen[bytes]: ...


def start(
    command: list[str], directory: Path, env: Mapping[str, str], stdin: int | BinaryIO, descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, with pipes for its output.

    ``env`` is added to the environment of this process, from which ``GIT_*`` is removed. ``stdin`` is PIPE or DEVNULL
    of `subprocess`, or a file; ``descriptors`` are inherited. Raises FileNotFoundError if the program does not exist.
    """
    return _starters[-1](command, directory, env, stdin, descriptors)


def use_library() -> None:
    """Start every git of this process through GitPython from now on. Its import takes 90 ms of CPU time."""
    before = os.environ.get("GIT_PYTHON_REFRESH")
    # Otherwise the import runs `git version`, and fails where there is no git.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    try:
        import git.cmd  # noqa: F401
    finally:
        os.environ.pop("GIT_PYTHON_REFRESH")
        if before is not None:
            os.environ["GIT_PYTHON_REFRESH"] = before
    _starters.append(_start_with_library)


def _start_directly(
    command: list[str], directory: Path, env: Mapping[str, str], stdin: int | BinaryIO, descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    import subprocess

    removed = _foreign_variables()
    kept = {name: value for name, value in os.environ.items() if name not in removed}
    return subprocess.Popen(
        command,
        cwd=directory,
        env={**kept, "LANGUAGE": "C", "LC_ALL": "C", **env},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=descriptors,
    )


def _start_with_library(
    command: list[str], directory: Path, env: Mapping[str, str], stdin: int | BinaryIO, descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    from git.cmd import Git as Library
    from git.exc import GitCommandNotFound

    # The library adds variables to the environment but cannot remove one; env(1) can.
    cleared = [word for name in sorted(_foreign_variables() - env.keys()) for word in ("-u", name)]
    try:
        process = Library(str(directory)).execute(
            [*([program_path.find_program("env"), *cleared] if cleared else []), *command],
            istream=stdin,
            as_process=True,
            env=dict(env),
            start_new_session=True,
            pass_fds=descriptors,
        )
    except GitCommandNotFound as error:
        raise FileNotFoundError(command[0]) from error
    return cast("subprocess.Popen[bytes]", process)


def _foreign_variables() -> set[str]:
    return {name for name in os.environ if name.startswith("GIT_") and name not in _PRESERVED_VARIABLES}


_starters: list[_Start] = [_start_directly]
