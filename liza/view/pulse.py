"""A cheap fingerprint of what changes without a change of the board: processes, and the files of sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable

from liza.crew.crew import Crew
from liza.model.agent_states import StoppedProcesses
from liza.model.value_classes import Value
from liza.recovery.stopped_processes import find_stopped
from liza.view.rules.structs import Picture


class Pulse(Value):
    """Two equal ones: nothing has to be read again. ``files``: path, time of the last write, size."""

    stopped: StoppedProcesses
    supervised: tuple[str, ...]
    files: tuple[tuple[str, int, int], ...]


def take_pulse(crew: Crew, picture: Picture) -> Pulse:
    """Return the fingerprint now, of the agents and sessions of a picture. Raises OSError, LizaError."""
    names = [line.row.id for line in picture.agents]
    runs = [crew.paths.run(line.row.run) for line in picture.agents if line.row.run is not None]
    return Pulse(
        find_stopped(crew.paths, names),
        tuple(name for name in names if crew.is_supervised(name)),
        tuple(_stat_files([*runs, crew.paths.liza])),
    )


def _stat_files(directories: Iterable[os.PathLike[str]]) -> Iterable[tuple[str, int, int]]:
    """Yield the files of directories; those of one that is missing are none."""
    for directory in directories:
        try:
            with os.scandir(directory) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    status = entry.stat(follow_symlinks=False)
                    yield entry.path, status.st_mtime_ns, status.st_size
        except FileNotFoundError:
            continue
