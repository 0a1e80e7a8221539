"""Find the run that a request of a worker names, and refuse a run that is unknown, over or replaced."""

from __future__ import annotations

from contextlib import suppress

from liza.model.errors import LizaError, RunIsOver, UnknownId
from liza.programs.session.run_directory import RunDir, RunRecord, list_runs


def require_known_run(run_dir: RunDir) -> RunRecord:
    """Return the record of a run. Raises UnknownId if it has none, LizaError if it cannot be read."""
    record = run_dir.read_record()
    if record is None:
        raise UnknownId(f"there is no run {run_dir.run} in this crew", f"liza agents {run_dir.agent}")
    return record


def _newest_run(run_dir: RunDir) -> str:
    """Return the agent's newest run with a record. A directory alone is none: any agent can make one."""
    for name in reversed(list_runs(run_dir.paths, run_dir.agent)):
        if name == run_dir.run:
            break
        with suppress(LizaError):
            if RunDir(run_dir.paths, name).read_record() is not None:
                return name
    return run_dir.run


def require_current_run(run_dir: RunDir) -> RunRecord:
    """Return the record of a run whose end is not recorded and that is its agent's newest.

    Raises UnknownId, RunIsOver, LizaError if a file cannot be read.
    """
    record = require_known_run(run_dir)
    if run_dir.is_concluded():
        raise RunIsOver(f"{run_dir.run} is over: its end is recorded", f"liza logs {run_dir.run}")
    newest = _newest_run(run_dir)
    if newest != run_dir.run:
        raise RunIsOver(
            f"{run_dir.run} is over: {run_dir.agent} is at its run {newest}", f"liza agents {run_dir.agent}"
        )
    return record
