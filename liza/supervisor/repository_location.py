"""A repository, or its .liza, moved or deleted while its supervisors work: they end their sessions and leave."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.layout import mending
from liza.programs.session import run_directory, session_process
from liza.programs.session.run_directory import RunDir
from liza.rules.errors import LizaError, Missing
from liza.rules.model import SupervisorExit
from liza.rules.paths import Paths
from liza.system import processes


class RepositoryLocation:
    """The directory of the repository as a supervisor found it when it started."""

    def __init__(self, crew: Crew, agent: str) -> None:
        self.crew, self.agent = crew, agent
        self.root = crew.paths.root
        self._root_id = _directory_id(self.root)
        self._lock: tuple[int, int] | None = None

    def stand_on(self, lock: int) -> None:
        """``lock``: the descriptor of the supervisor's own lock, which from now on has to be the one in .liza."""
        found = os.fstat(lock)
        self._lock = found.st_dev, found.st_ino

    def deleted(self) -> str | None:
        """What of .liza was deleted or replaced since the lock was taken, in words; None where nothing was."""
        own = self.crew.paths.supervisor_lock(self.agent)
        if self._lock is not None and _directory_id(own) != self._lock:
            return f"its lock {own} was deleted or replaced"
        pins = self.crew.paths.pins
        return None if self._lock is None or pins.exists() else f"{pins} was deleted"

    def check_not_moved(self, run: str | None, say: Callable[[str], None]) -> None:
        """Raises Missing if the repository is not where it was, or a part of its .liza was deleted; the session ``run``
        and its processes are ended first.

        Nothing is written at the former path: it may belong to another repository by now, or be under deletion.
        """
        if self._root_id is None or _directory_id(self.root) == self._root_id:
            lost = self.deleted()
            if lost is not None:
                self._end_all(say)
                raise Missing(f"{lost}: a supervisor without it would work unseen", mending(self.crew))
            return
        now = self._find_new_path()
        where = "" if now is None else f", it is {now} now"
        why = f"the repository is not {self.root} any more{where}; it was moved or deleted while its crew worked"
        if now is not None:
            self._write_exit_notes(now, run, why)
        self._end_all(say)
        raise Missing(why, "liza up" if now is None else f"cd {now} && liza up")

    def _end_all(self, say: Callable[[str], None]) -> None:
        left = processes.kill_all(lambda: processes.iter_agent_pids(self.agent, self.root))
        if left:
            say(f"processes that could not be ended: {', '.join(map(str, left))}")

    def _find_new_path(self) -> Path | None:
        """Where the repository is now, if this process was started in it: its own directory moves along."""
        with suppress(OSError):
            here = Path.cwd()
            if _directory_id(here) == self._root_id and here != self.root:
                return here
        return None

    def _write_exit_notes(self, now: Path, run: str | None, why: str) -> None:
        """Say in the moved directory why the session ended and this supervisor left."""
        paths, time = Paths(now), self.crew.clock.now()
        with suppress(OSError, LizaError):
            run_directory.write_supervisor_exit(paths, self.agent, SupervisorExit(time=time, reason=why))
        with suppress(OSError, LizaError):
            if run is not None:
                directory = RunDir(paths, run)
                directory.write_stop(time, "stop")
                session_process.stop(directory.path, run, self.root, grace=0.0)


def _directory_id(root: Path) -> tuple[int, int] | None:
    """Device and number of a directory; None if it is not there."""
    try:
        found = root.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino
