"""Path of the running Liza: agents get its absolute path, and mergers are started with it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from liza.rules.errors import Missing
from liza.rules.lazy_pattern import lazy_pattern

_COMMAND = lazy_pattern(r"(?:^|(?<=[;&|(:`] )|(?<=[(`]))liza(?= )")


def liza_path() -> Path:
    """Absolute path of the ``liza`` command of the running installation. Raises Missing."""
    candidate = Path(sys.executable).parent / "liza"
    if candidate.is_file():
        return candidate
    import shutil

    match = shutil.which("liza")
    if match is None:
        raise Missing("the liza command is not beside the Python that runs it, nor on PATH", "pip install liza")
    return Path(match).absolute()


def liza_argv() -> tuple[str, ...]:
    """Command line that starts this Liza from another process."""
    # -P: without it Python would import modules from the current directory, which is the person's checkout.
    return (sys.executable, "-P", "-m", "liza")


def qualify_command(command: str) -> str:
    """Replace ``liza`` with its absolute path in a suggested command, if called inside a session.

    The PATH of a session contains the directory, but a login shell, in which some programs run commands, resets PATH.
    """
    if not os.environ.get("LIZA_RUN"):
        return command
    try:
        path = shlex.quote(str(liza_path()))
    except Missing:
        return command
    return _COMMAND.sub(lambda _: path, command)
