"""Where this very Liza is: agents get its absolute path, and mergers are started with it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from liza.rules.errors import Missing


def liza_path() -> Path:
    """The ``liza`` command of the running installation. Raises Missing."""
    beside = Path(sys.executable).parent / "liza"
    if beside.is_file():
        return beside
    found = shutil.which("liza")
    if found is None:
        raise Missing("the liza command is not beside the Python that runs it, nor on PATH", "pip install liza")
    return Path(found).absolute()


def liza_words() -> tuple[str, ...]:
    """The words that start this Liza from another process."""
    # -P: without it Python would import what lies in the current directory, which is the person's checkout.
    return (sys.executable, "-P", "-m", "liza")
