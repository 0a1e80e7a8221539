"""Measure how many files, of what size, a commit adds to a checkout, without listing them.

A pack of 2 kB can have a tree of 10^11 paths, whose directories are the same ones again and again. Each pair of a new
and an old directory is measured once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from liza.git.runner import Git
from liza.model.errors import GitFailed
from liza.model.value_classes import Value

MAX_DEPTH = 200
"""Maximum depth of directories."""
MAX_ENTRIES = 5_000_000
"""Maximum number of directory entries that are read."""
_COMMIT = "commit"
_REQUESTS = 200
_TREE_MODE = b"40000"
_LINK_MODE = b"160000"


class Growth(Value):
    """Number of paths that differ, and the size of the new files in bytes; one content counts for each path."""

    paths: int = 0
    size: int = 0

    def plus(self, other: Growth) -> Growth:
        return Growth(self.paths + other.paths, self.size + other.size)


class Objects:
    """Reads objects through one git process. Trees of the import have been verified by git."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._known: dict[str, tuple[str, int]] = {}

    def prefetch(self, names: Sequence[str]) -> None:
        """Ask for the types and sizes of many objects at once: their answers fit into the pipe's buffer in parts."""
        for start in range(0, len(names), _REQUESTS):
            chunk = names[start : start + _REQUESTS]
            self._requests.write("".join(f"info {name}\n" for name in chunk).encode())
            self._requests.flush()
            for name in chunk:
                self._known[name] = _parse_info(self._answers.readline())

    def kind(self, name: str) -> str:
        """Return the type of an object, or ``missing``."""
        return self._info(name)[0]

    def is_commit(self, name: str) -> bool:
        return self.kind(name) == _COMMIT

    def size(self, name: str) -> int:
        """Return the size of an object in bytes; 0 for one that is missing."""
        return self._info(name)[1]

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit. Raises GitFailed."""
        words = self._ask(f"info {commit}^{{tree}}").split(b" ")
        if words[1:2] != [b"tree"]:
            raise GitFailed(f"{commit[:12]} is not a commit", f"git cat-file -t {commit[:12]}")
        return words[0].decode()

    def rows(self, tree: str) -> dict[bytes, tuple[bytes, str]]:
        """Return the entries of a tree by name: mode and object. Raises GitFailed."""
        header = self._ask(f"contents {tree}").split(b" ")
        if len(header) != 3 or header[1] != b"tree":
            raise GitFailed(f"{tree[:12]} is not a tree", f"git cat-file -t {tree[:12]}")
        data = self._answers.read(int(header[2]) + 1)
        rows: dict[bytes, tuple[bytes, str]] = {}
        at, length = 0, len(tree) // 2
        while at < len(data) - 1:
            end = data.index(b"\0", at)
            mode, _, name = data[at:end].partition(b" ")
            rows[name] = (mode, data[end + 1 : end + 1 + length].hex())
            at = end + 1 + length
        return rows

    def _info(self, name: str) -> tuple[str, int]:
        if name not in self._known:
            self._known[name] = _parse_info(self._ask(f"info {name}"))
        return self._known[name]

    def _ask(self, request: str) -> bytes:
        self._requests.write(f"{request}\n".encode())
        self._requests.flush()
        return self._answers.readline().rstrip(b"\n")


def _parse_info(answer: bytes) -> tuple[str, int]:
    words = answer.decode("ascii", "replace").rstrip("\n").split(" ")
    return (words[1], int(words[2])) if len(words) == 3 and words[2].isdecimal() else ("missing", 0)


@contextmanager
def open_objects(git: Git) -> Iterator[Objects]:
    """Yield a reader of the objects of ``git``. Raises GitFailed, OSError."""
    with git.converse("cat-file", "--batch-command") as (requests, answers):
        yield Objects(requests, answers)


def measure_growth(objects: Objects, new: str, old: str | None) -> Growth:
    """Return how a checkout of the tree ``new`` differs from one of ``old``.

    Raises OverflowError with a reason if there is no end to it, GitFailed.
    """
    return _Measure(objects).of_tree(new, old, 0)


class _Measure:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._measured: dict[tuple[str, str | None], Growth] = {}
        self._entries = 0

    def of_tree(self, new: str, old: str | None, depth: int) -> Growth:
        if new == old:
            return Growth()
        pair = new, old
        if pair not in self._measured:
            if depth > MAX_DEPTH:
                raise OverflowError(f"its directories are more than {MAX_DEPTH} levels deep")
            rows = self._objects.rows(new)
            self._entries += len(rows)
            if self._entries > MAX_ENTRIES:
                raise OverflowError(f"its changed directories have more than {MAX_ENTRIES} entries")
            before = self._objects.rows(old) if old is not None else {}
            total = Growth()
            for name, entry in rows.items():
                if entry != before.get(name):
                    total = total.plus(self._of_entry(*entry, before.get(name), depth))
            self._measured[pair] = total
        return self._measured[pair]

    def _of_entry(self, mode: bytes, name: str, before: tuple[bytes, str] | None, depth: int) -> Growth:
        if mode == _LINK_MODE:
            return Growth(1)
        if mode != _TREE_MODE:
            return Growth(1, self._objects.size(name))
        was_tree = before is not None and before[0] == _TREE_MODE
        return self.of_tree(name, before[1] if before is not None and was_tree else None, depth + 1)
