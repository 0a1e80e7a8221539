"""Archive the directories of old runs, so that a crew that works for months does not fill `.liza/run`."""

from __future__ import annotations

from liza.programs import archive, rundir
from liza.rules import keeping
from liza.rules.errors import LizaError
from liza.verbs import sessions
from liza.verbs.crew import Crew


def tidy(crew: Crew, agent: str) -> tuple[str, ...]:
    """The runs of an agent that were archived: settled, over, not in use and not among the newest.

    Only for the agent's supervisor, or where it has none. Raises LizaError, OSError.
    """
    runs = rundir.runs_of(crew.paths, agent)
    if len(runs) <= keeping.NEWEST:
        return ()
    used = keeping.in_use(crew.board.read())
    return tuple(run for run in keeping.to_archive(runs, used) if _archived(crew, run))


def _archived(crew: Crew, run: str) -> bool:
    directory = crew.run_dir(run)
    try:
        if directory.path.is_symlink() or not directory.is_settled() or sessions.living(directory):
            return False
    except LizaError:
        # A file in it cannot be read. It stays for a person to look at.
        return False
    archive.archive(directory)
    return True
