"""Packs of the board's history, rolled up: few packs, and each much larger than the next newer one.

A pack for each batch makes many small packs, and ``git repack`` would also rewrite the packs of the person. So Liza
keeps a list of the packs that its own batches made, and joins only those. A joined pack has every object of the packs
that it replaces, whether a ref needs it or not: nothing is pruned. Decision 019 gives the figures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import GitFailed
from liza.system import crash_points, files

MAX_PACKS = 8
"""Number of packs from which they are joined."""
_NAME = re.compile(r"pack-[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ONE_PACK = {"GIT_CONFIG_PARAMETERS": "'pack.packSizeLimit=0'"}
"""The person's limit would make several packs; ``--max-pack-size=0`` does not override it."""
_SUFFIXES = (".idx", ".pack", ".rev")
"""Files of a pack. The index is deleted first: git looks for the others only if there is an index."""
_PERSONS_SUFFIXES = (".keep", ".bitmap", ".promisor", ".mtimes")
"""A pack with one of these is used by something else than the history."""


def parse_pack_edges(output: bytes) -> tuple[str, ...]:
    """Return the names of the packs in the output of ``git fast-import --export-pack-edges``."""
    paths = (line.partition(b": ")[0].decode("utf-8", "surrogateescape") for line in output.splitlines())
    names = (Path(path).name.removesuffix(".pack") for path in paths)
    return tuple(name for name in names if _NAME.fullmatch(name))


def join_packs(git: Git, names: Sequence[str]) -> tuple[str, ...]:
    """Join the newest of the packs ``names``, which are ordered by age, if there are many. Return the names now.

    A name without a pack, which `git gc` has replaced, is left out. Raises GitFailed.
    """
    directory = _pack_directory(git)
    packs = [name for name in dict.fromkeys(names) if _is_joinable(directory, name)]
    # An index of several packs names its packs: without one of them git prints errors.
    if len(packs) < MAX_PACKS or (directory / "multi-pack-index").exists():
        return tuple(packs)
    sizes = [(directory / f"{name}.pack").stat().st_size for name in packs]
    start = first_to_join(sizes)
    # On a full disk git leaves its temporary file, which would take the space that the board needs.
    if start == len(packs) - 1 or _free_bytes(directory) < 2 * sum(sizes[start:]):
        return tuple(packs)
    joined, old = _write_joined(git, directory, packs[start:]), packs[start:]
    if not (directory / f"{joined}.idx").is_file():
        raise GitFailed(f"git pack-objects wrote no {joined} in {directory}", "git fsck")
    # After a power cut the objects are in the joined pack, or still in the old ones.
    files.fsync_directory(directory)
    for name in old:
        if name != joined:
            _delete_pack(directory, name)
    return (*packs[:start], joined)


def first_to_join(sizes: Sequence[int]) -> int:
    """Return the index of the first pack to join with all newer ones: what stays is at least twice as large."""
    start = len(sizes) - 1
    total = sizes[start]
    while start > 0 and sizes[start - 1] < 2 * total:
        start -= 1
        total += sizes[start]
    return start


def _free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def _pack_directory(git: Git) -> Path:
    return git_dirs(git)[1] / "objects" / "pack"


def _is_joinable(directory: Path, name: str) -> bool:
    if _NAME.fullmatch(name) is None or any((directory / f"{name}{suffix}").exists() for suffix in _PERSONS_SUFFIXES):
        return False
    return all((directory / f"{name}{suffix}").is_file() for suffix in (".idx", ".pack"))


def _write_joined(git: Git, directory: Path, packs: Sequence[str]) -> str:
    """Write one pack with all objects of ``packs``; return its name. Raises GitFailed."""
    digest = git.with_environment(**_ONE_PACK).out(
        "pack-objects", "--stdin-packs", "--quiet", "--delta-base-offset", str(directory / "pack"),
        stdin="".join(f"{name}.pack\n" for name in packs),
        timeout=600,
    )  # fmt: skip
    return f"pack-{digest}"


def _delete_pack(directory: Path, name: str) -> None:
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            (directory / f"{name}{suffix}").unlink()
        crash_points.point("deleted", "pack")
