"""Read small files of Liza's own in the git directory, which agents can replace by anything."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import Final

from liza.rules.errors import GitFailed

MAX_SMALL_FILE: Final = 1 << 20
"""Maximum size, in bytes."""
# Opening a pipe must not block, and a link must not lead to a file of another owner.
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def read_small_file(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises GitFailed if it is a link, not a regular file or larger than 1 MB; OSError.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_a_small_file(path) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SMALL_FILE:
            raise _not_a_small_file(path)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_SMALL_FILE)
    finally:
        os.close(descriptor)


def _not_a_small_file(path: Path) -> GitFailed:
    limit = f"{MAX_SMALL_FILE >> 20} MB"
    return GitFailed(f"{path} is not a regular file of at most {limit}", shlex.join(["mv", str(path), f"{path}.odd"]))
