"""Archive the directories of old runs, so that a crew that works for months does not fill `.liza/run`."""

from __future__ import annotations

from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.session import run_archive, run_directory
from liza.rules.errors import LizaError
from liza.rules.sessions import retention


def archive_old_runs(crew: Crew, agent: str) -> tuple[str, ...]:
    """Archive runs of an agent that are concluded, not in use and not among the newest. Return their names.

    The caller is the agent's supervisor, or the agent has none. Raises LizaError, OSError.
    """
    runs = run_directory.list_runs(crew.paths, agent)
    if len(runs) <= retention.UNARCHIVED_RUNS:
        return ()
    used = retention.runs_in_use(crew.board.read())
    return tuple(run for run in retention.runs_to_archive(runs, used) if _archive_run(crew, run))


def _archive_run(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    try:
        if directory.path.is_symlink() or not directory.is_concluded() or run_state.is_session_living(directory):
            return False
    except LizaError:
        # A file in it cannot be read. It stays for a person to look at.
        return False
    run_archive.archive_run(directory)
    return True
