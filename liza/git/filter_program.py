"""Clean filter: removes the blocks of living runs from a file before git stores it.

git runs it as ``python -I -S filter_program.py`` in every status of a bound file, so it imports only what Python has
loaded already, and the marks.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Isolated Python does not find the package by itself.
    sys.path.append(__file__.rpartition("/liza/git/")[0])

from liza.text import brief_marks

_MAX_FILE_SIZE = 1 << 24  # bytes: an agent can put a device in the place of a file


def read_keys(git_dir: str) -> tuple[str, ...]:
    """Return the keys of the runs whose blocks are hidden in the worktree with this git directory. Raises OSError."""
    common = _read(f"{git_dir}/commondir").decode(errors="surrogateescape").rstrip("\n")
    return brief_marks.find_keys(_read(f"{os.path.join(git_dir, common)}/info/attributes"))  # noqa: PTH118


def _find_git_dir() -> str:
    """Return the git directory of the worktree in which git has started this process."""
    path = os.environ.get("GIT_DIR", ".git")
    named = _read(path).removeprefix(b"gitdir: ").rstrip(b"\n")
    return named.decode(errors="surrogateescape") or path


def _read(path: str) -> bytes:
    """Return the content of a file; empty if the file does not exist."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(_MAX_FILE_SIZE)
    except (FileNotFoundError, IsADirectoryError):
        return b""


if __name__ == "__main__":
    keys = read_keys(_find_git_dir())
    sys.stdout.buffer.write(brief_marks.strip_blocks(sys.stdin.buffer.read(), keys))
