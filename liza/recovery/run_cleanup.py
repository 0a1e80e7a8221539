"""Archive the directories of old runs, so that a crew that works for months does not fill `.liza/run`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import FINAL_STATUSES, State, Status
from liza.model.session_ends import StopReason
from liza.programs import liveness
from liza.programs.session import run_archive, run_directory, session_process
from liza.usage.costs import record_unconcluded_usage


def archive_old_runs(crew: Crew, agent: str) -> tuple[str, ...]:
    """Archive runs of an agent that are concluded, not in use and not among the newest. Return their names.

    The caller is the agent's supervisor, or the agent has none. Raises LizaError, OSError.
    """
    runs = find_old_runs(crew, agent)
    for run in runs:
        run_archive.archive_run(crew.run_dir(run))
    return runs


def find_old_runs(crew: Crew, agent: str) -> tuple[str, ...]:
    """Return the runs of an agent that ``archive_old_runs`` would archive. Raises LizaError, OSError."""
    if (crew.paths.runs / agent).is_symlink():
        # What is behind a link is not Liza's: it is neither archived nor removed.
        return ()
    runs = run_directory.list_runs(crew.paths, agent)
    if len(runs) <= UNARCHIVED_RUNS:
        return ()
    used = runs_in_use(crew.board.read())
    return tuple(run for run in runs_to_archive(runs, used) if _is_over(crew, run))


def _is_over(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    try:
        concluded = directory.is_concluded() and not liveness.is_session_living(directory)
    except LizaError:
        # A file in it cannot be read. It stays for a person to look at.
        return False
    return concluded and not directory.path.is_symlink()


def end_orphan_sessions(crew: Crew, state: State, taker: str) -> tuple[str, ...]:
    """End sessions without a supervisor whose lease expired at least ``hung_after`` ago. Return what was done.

    Until then a supervisor may still adopt the session.
    """
    limit = crew.clock.now() - timedelta(seconds=state.config.hung_after)
    ended = []
    for task in state.tasks:
        has_expired = task.lease_expires is not None and task.lease_expires < limit
        if (
            task.status is not Status.CLAIMED
            or task.run is None
            or task.assigned_to in (None, taker)
            or not has_expired
        ):
            continue
        directory = crew.run_dir(task.run)
        if crew.is_supervised(str(task.assigned_to)) or liveness.is_session_over(directory):
            continue
        directory.write_stop(crew.clock.now(), StopReason.ORPHANED)
        session_process.stop(directory.path, task.run, crew.paths.root, grace=float(state.config.grace))
        ended.append(f"{task.id}: the session {task.run} had no supervisor and was ended by {taker}")
    return tuple(ended)


def record_left_usage(crew: Crew, by: str) -> tuple[str, ...]:
    """Record the usage of ended sessions whose supervisors have died. Return their runs. Raises LizaError."""
    agents = [agent for agent in crew.board.read().agents if agent != by and not crew.is_supervised_here(agent)]
    runs = [runs[-1] for agent in agents if (runs := run_directory.list_runs(crew.paths, agent))]
    return tuple(run for run in runs if record_unconcluded_usage(crew, run))


UNARCHIVED_RUNS = 20
"""Number of an agent's newest run directories that are not archived."""


def runs_in_use(state: State) -> frozenset[str]:
    """Return the runs that are at work, and the last runs of tasks that are not final."""
    return frozenset(run for run in _named(state) if run is not None)


def _named(state: State) -> Iterator[str | None]:
    yield state.planning.run
    for task in state.tasks:
        if task.status not in FINAL_STATUSES:
            yield from (task.run, task.review_run)
        if task.reservation is not None:
            yield from (task.reservation.run, task.reservation.previous_run)


def runs_to_archive(runs: Sequence[str], used: frozenset[str], newest: int = UNARCHIVED_RUNS) -> tuple[str, ...]:
    """Return those of an agent's runs (oldest first) that are neither in use nor among the ``newest`` ones."""
    return tuple(run for run in runs[: max(0, len(runs) - newest)] if run not in used)
