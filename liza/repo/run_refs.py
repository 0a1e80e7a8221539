"""Read files of a git directory that an agent can write, by hand: no git runs, and no link is followed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from liza.repo.runner import COMMIT
from liza.rules.errors import GitFailed, NotRegularFile
from liza.system import untrusted_files

_MAX_REFS: Final = 64 << 20


class ImportRefused(GitFailed):
    """What a run made cannot be imported: it is damaged, invalid or too large. Nothing was changed. Exit code 3."""

    code = "import-refused"


def read_tip(git_dir: Path, ref: str) -> str | None:
    """Return the commit id that a ref of a run names, unchecked; None without that ref.

    No git runs, and no link is followed. Raises ImportRefused if the ref has another value.
    """
    try:
        value = read_below(git_dir, ref, 128)
        if value is None:
            packed = read_below(git_dir, "packed-refs", _MAX_REFS) or b""
            match = re.search(rb"(?m)^([0-9a-f]+) " + re.escape(ref.encode()) + rb"$", packed)
            value = match[1] if match is not None else None
    except (OSError, NotRegularFile) as error:
        raise ImportRefused(
            f"{ref} of {git_dir} cannot be read: {error}", shlex.join(["ls", "-lR", str(git_dir / "refs")])
        ) from error
    if value is None:
        return None
    text = value.decode("ascii", "replace").strip()
    if not COMMIT.fullmatch(text):
        raise ImportRefused(f"{ref} of {git_dir} is {text[:60]!r}, not a commit", f"git update-ref {ref} HEAD")
    return text


@contextmanager
def open_directory(root: Path, parts: Sequence[str]) -> Iterator[int]:
    """Yield a descriptor of a directory below ``root``; no part may be a link. Raises OSError."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_below(parent: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_below(root: Path, path: str, limit: int) -> bytes | None:
    """Return a file below ``root``, without following a link at any part; None if it does not exist.

    Raises NotRegularFile, also for more than ``limit`` bytes, OSError.
    """
    *parents, name = path.split("/")
    try:
        with open_directory(root, parents) as directory:
            descriptor = untrusted_files.open_regular(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise NotRegularFile(f"{root / path} has more than {limit} bytes", shlex.join(["ls", "-l", str(root / path)]))
    return data
