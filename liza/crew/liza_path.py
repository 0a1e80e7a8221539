"""Where this very Liza is: agents get its absolute path, and mergers are started with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from liza.rules.errors import Missing

_COMMAND = re.compile(r"(?:^|(?<=[;&|(:`] )|(?<=[(`]))liza(?= )")


def liza_path() -> Path:
    """The ``liza`` command of the running installation. Raises Missing."""
    beside = Path(sys.executable).parent / "liza"
    if beside.is_file():
        return beside
    found = shutil.which("liza")
    if found is None:
        raise Missing("the liza command is not beside the Python that runs it, nor on PATH", "pip install liza")
    return Path(found).absolute()


def liza_argv() -> tuple[str, ...]:
    """The words that start this Liza from another process."""
    # -P: without it Python would import what lies in the current directory, which is the person's checkout.
    return (sys.executable, "-P", "-m", "liza")


def qualify_command(command: str) -> str:
    """A suggested command as the caller's shell finds it: with the absolute path of ``liza`` inside a session.

    The PATH of a session names the directory, but a program that runs commands in a login shell resets it.
    """
    if not os.environ.get("LIZA_RUN"):
        return command
    try:
        word = shlex.quote(str(liza_path()))
    except Missing:
        return command
    return _COMMAND.sub(lambda _: word, command)
