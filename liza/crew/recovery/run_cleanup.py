"""Archive the directories of old runs, so that a crew that works for months does not fill `.liza/run`."""

from __future__ import annotations

from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.session import run_archive, run_directory
from liza.rules.errors import LizaError
from liza.rules.sessions import retention


def tidy(crew: Crew, agent: str) -> tuple[str, ...]:
    """The runs of an agent that were archived: settled, over, not in use and not among the newest.

    Only for the agent's supervisor, or where it has none. Raises LizaError, OSError.
    """
    runs = run_directory.runs_of(crew.paths, agent)
    if len(runs) <= retention.NEWEST:
        return ()
    used = retention.in_use(crew.board.read())
    return tuple(run for run in retention.to_archive(runs, used) if _archived(crew, run))


def _archived(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    try:
        if directory.path.is_symlink() or not directory.is_settled() or run_state.living(directory):
            return False
    except LizaError:
        # A file in it cannot be read. It stays for a person to look at.
        return False
    run_archive.archive(directory)
    return True
