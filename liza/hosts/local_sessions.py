"""The supervisors and sessions of this host, by their files and processes."""

from __future__ import annotations

from collections.abc import Iterator

from liza.model.paths import Paths
from liza.programs import liveness
from liza.programs.session import run_directory, session_process
from liza.system.locks import is_flock_held

_GRACE = 2.0  # seconds between SIGTERM and SIGKILL


def has_supervisors(paths: Paths) -> bool:
    """Return whether a supervisor of this crew runs on this host."""
    return bool(list_supervised(paths))


def list_supervised(paths: Paths) -> list[str]:
    """Return the agents whose supervisor runs on this host."""
    locks = (path for path in sorted(paths.locks.glob("supervisor-*.lock")) if is_flock_held(path))
    return [path.stem.removeprefix("supervisor-") for path in locks]


def has_sessions(paths: Paths) -> bool:
    """Return whether a session of this crew may live on this host."""
    return next(_living_runs(paths), None) is not None


def end_sessions(paths: Paths) -> list[str]:
    """End all sessions of this crew on this host; return their runs. Raises Refused if processes survive."""
    runs = list(_living_runs(paths))
    for run in runs:
        session_process.stop(paths.run(run), run, paths.root, _GRACE)
    return runs


def _living_runs(paths: Paths) -> Iterator[str]:
    for directory in sorted(paths.runs.iterdir()) if paths.runs.is_dir() else ():
        for run in run_directory.list_runs(paths, directory.name) if directory.is_dir() else ():
            state = liveness.read_state(paths.run(run))
            if isinstance(state, liveness.RunningSession | liveness.ShimStarting):
                yield run
