"""Path of the running Liza: agents get its absolute path, and mergers are started with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from liza.model.errors import Missing
from liza.system import boxed_calls, installation

_COMMAND = re.compile(r"(?:^|(?<=[;&|(:`] )|(?<=[(`]))liza(?= )")


def liza_path() -> Path:
    """Absolute path of the ``liza`` command of the running installation. Raises Missing."""
    candidate = Path(sys.executable).parent / "liza"
    if candidate.is_file():
        return candidate

    match = shutil.which("liza")
    if match is None:
        message = "the liza command is not beside the Python that runs it, nor on PATH"
        raise Missing(message, installation.reinstall_command())
    return Path(match).absolute()


def liza_argv() -> tuple[str, ...]:
    """Command line that starts this Liza from another process."""
    # -P: without it Python would import modules from the current directory, which is the person's checkout.
    return (sys.executable, "-P", "-m", "liza")


def sidecar_argv(run_dir: Path) -> tuple[str, ...]:
    """Command line of the ACP sidecar of a run. It is started in the worktree, see ``liza_argv``."""
    return (sys.executable, "-P", "-m", "liza.api.acp", str(run_dir))


def qualify_command(command: str) -> str:
    """Replace ``liza`` with its absolute path in a suggested command, if called inside a session that needs the path.

    The PATH of a session contains the directory, but a login shell, in which some programs run commands, resets PATH.
    That of a caller in a box is not known here.
    """
    if not os.environ.get("LIZA_RUN"):
        return command
    try:
        path = liza_path()
    except Missing:
        return command
    if not boxed_calls.is_called_from_box() and _is_on_path(path):
        return command
    return _COMMAND.sub(lambda _: shlex.quote(str(path)), command)


def _is_on_path(path: Path) -> bool:
    """Whether the first ``liza`` on PATH is this file. A relative directory depends on where a command runs."""
    with suppress(OSError):
        for directory in map(Path, os.get_exec_path()):
            candidate = directory / "liza"
            if not directory.is_absolute() or candidate.is_file():
                return directory.is_absolute() and candidate.samefile(path)
    return False
