"""Explain why a command of the project is red in a box and green outside of one."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from liza.model.errors import FailsInBox
from liza.model.paths import Paths
from liza.project import commands
from liza.project.rules import box_needs
from liza.project.rules.box_needs import BoxNeeds, PathKind
from liza.project.rules.init_command import INIT
from liza.system import peers

SHARE = "--share"
"""Option of `liza init` for a path of ``config.shared``."""
_WITHOUT = f"{INIT} --confinement off"


def describe_failure(what: str, outcome: commands.CommandOutcome, paths: Paths, shared: Sequence[str]) -> FailsInBox:
    """Return the error for a command that fails in a box and passes without one. ``shared``: what is shared already."""
    needs = find_needs(outcome.tail(commands.SEARCHED_LINES), paths)
    text = f"{what} only in a box: {outcome.command}\n{outcome.tail()}"
    if not needs.shares:
        text += f"\nIt needs {needs.text}" if needs.text else "\nIt passes without a box"
        return FailsInBox(text, _WITHOUT)
    create = f"{shlex.join(['mkdir', '-p', *needs.absent])} && " if needs.absent else ""
    options = " ".join(shlex.join([SHARE, path]) for path in dict.fromkeys((*shared, *needs.shares)))
    return FailsInBox(f"{text}\nIt needs {needs.text}", f"{create}{INIT} {options}, or: {_WITHOUT}")


def share_command(needs: BoxNeeds, shared: Sequence[str]) -> str:
    """Return the command that shares what commands of a crew need, besides what is shared; empty if that is nothing."""
    paths = dict.fromkeys((*shared, *needs.shares))
    return shlex.join(["liza", "config", "set", "shared", ",".join(paths)]) if needs.shares else ""


def find_needs(output: str, paths: Paths) -> BoxNeeds:
    """Return what an output of a command that failed in a box says that it needs."""
    listening = sorted(path for path in peers.list_listening().values() if path.startswith("/"))
    home = os.path.realpath(Path.home())
    return box_needs.find_needs(output, listening, _examine, home, (str(paths.slots), str(paths.liza)))


def _examine(path: str) -> tuple[PathKind, str]:
    real = os.path.realpath(path)
    try:
        mode = Path(real).stat().st_mode
    except OSError:
        return PathKind.ABSENT, real
    kinds = {stat.S_IFSOCK: PathKind.SOCKET, stat.S_IFDIR: PathKind.DIRECTORY}
    return kinds.get(stat.S_IFMT(mode), PathKind.OTHER), real
