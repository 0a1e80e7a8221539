"""PATH as Liza uses it: the programs that it runs itself come from absolute directories that no agent writes to.

A relative or an empty entry means the current directory, and Liza and its gits work in worktrees: a file that an agent
committed would run as Liza's own git. So such entries are dropped from this process's PATH when it starts, and those
inside the worktrees of a crew as soon as the crew is known. What git looks up by itself is found the same way.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from liza.rules.errors import Missing

_cache: dict[tuple[str, str], str | None] = {}


def remove_unsafe_entries(*trees: Path) -> None:
    """Drop from PATH what is relative, empty, or inside one of these directories."""
    now = os.environ.get("PATH")
    if now is not None and (kept := _filter_path(now, trees)) != now:
        os.environ["PATH"] = kept


def find_program(name: str) -> str:
    """The absolute path of a program that Liza runs itself. Raises Missing."""
    found = _find_cached(name, _filter_path(os.environ.get("PATH", os.defpath), ()))
    if found is None:
        raise Missing(f"{name} is not installed, or not in PATH", "liza doctor")
    return found


def _find_cached(name: str, path: str) -> str | None:
    known = _cache.get((name, path))
    if known is None or not os.access(known, os.X_OK):
        import shutil  # slow to import, and a hook of a program looks nothing up

        known = _cache[name, path] = shutil.which(name, path=path)
    return known


@lru_cache(maxsize=16)
def _filter_path(path: str, trees: tuple[Path, ...]) -> str:
    real = [os.path.realpath(tree) for tree in trees]
    kept = [entry for entry in path.split(os.pathsep) if os.path.isabs(entry) and not _is_inside(entry, real)]  # noqa: PTH117
    return os.pathsep.join(kept)


def _is_inside(entry: str, trees: list[str]) -> bool:
    if not trees:
        return False
    place = os.path.realpath(entry)
    return any(place == tree or place.startswith(tree + os.sep) for tree in trees)
