"""PATH without directories that agents can write to, and commands that wait in the same terminal.

An empty or relative entry means the current directory, which for Liza and its git processes is often a worktree: a file
that an agent committed there would run as Liza's own git. Such entries are removed from this process's PATH when it
starts, and entries inside the worktrees of a crew as soon as the crew is known. Child processes, such as git, inherit
the same PATH.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from liza.model.errors import Missing

_cache: dict[tuple[str, str], str | None] = {}


def remove_unsafe_entries(*trees: Path) -> None:
    """Remove entries from PATH that are relative, empty, or inside one of ``trees``."""
    now = os.environ.get("PATH")
    if now is not None and (kept := _filter_path(now, trees)) != now:
        os.environ["PATH"] = kept


def find_program(name: str) -> str:
    """Return the absolute path of a program. Raises Missing if it is not in PATH."""
    path = _find_cached(name, _filter_path(os.environ.get("PATH", os.defpath), ()))
    if path is None:
        raise Missing(f"{name} is not installed, or not in PATH", "liza doctor")
    return path


def _find_cached(name: str, path: str) -> str | None:
    program = _cache.get((name, path))
    if program is None or not os.access(program, os.X_OK):
        program = _cache[name, path] = shutil.which(name, path=path)
    return program


@lru_cache(maxsize=16)
def _filter_path(path: str, trees: tuple[Path, ...]) -> str:
    real = [os.path.realpath(tree) for tree in trees]
    kept = [entry for entry in path.split(os.pathsep) if os.path.isabs(entry) and not _is_inside(entry, real)]  # noqa: PTH117
    return os.pathsep.join(kept)


def _is_inside(entry: str, trees: list[str]) -> bool:
    if not trees:
        return False
    real = os.path.realpath(entry)
    return any(real == tree or real.startswith(tree + os.sep) for tree in trees)


def run_command(command: Sequence[str]) -> int:
    """Run a command to its end; return its exit status, 128 + n if signal n killed it. Raises Missing.

    The command gets SIGINT from the terminal too: the caller keeps its lock until it has exited. A KeyboardInterrupt
    just after the end of the wait would lose its result.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _do_nothing)
    try:
        code = subprocess.run(list(command), check=False).returncode
    except OSError as error:
        raise Missing(f"{command[0]!r} cannot be run: {error.strerror}", f"command -v {command[0]}") from None
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _do_nothing(_: int, __: object) -> None:
    """Handle a signal. A handler, unlike SIG_IGN, is not inherited by the command."""
