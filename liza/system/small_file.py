"""Small files of Liza's own that everybody who works in the repository can replace with something else."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import Final

from liza.rules.errors import GitFailed

MAX_SMALL_FILE: Final = 1 << 20
"""Bytes."""
# A pipe must not hold up who opens it, and a link must not lead to what is somebody else's.
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def read_small_file(path: Path) -> bytes:
    """The bytes of a file. Raises GitFailed where something else stands there or it is too large, OSError."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_small_file(path) from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SMALL_FILE:
            raise _not_a_small_file(path)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_SMALL_FILE)
    finally:
        os.close(descriptor)


def _not_a_small_file(path: Path) -> GitFailed:
    return GitFailed(f"{path} is no file of a sensible size any more", shlex.join(["mv", str(path), f"{path}.odd"]))
