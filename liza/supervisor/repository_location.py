"""Detect that the repository or its .liza was moved or deleted: the supervisors end their sessions and exit."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from liza.board.opening import open_board
from liza.crew import layout
from liza.crew.crew import Crew
from liza.model.errors import LizaError, Missing, Refused
from liza.model.model import SupervisorExit
from liza.model.paths import Paths
from liza.model.session_ends import StopReason
from liza.model.statuses import AgentStatus
from liza.programs.session import run_directory, session_process
from liza.programs.session.run_directory import RunDir
from liza.system import processes
from liza.tasks.rules.up_command import restart_command_for


@contextmanager
def naming_deletion(paths: Paths) -> Iterator[None]:
    """Replace an error that only follows from a deleted .liza by the error that names the deletion."""
    root_id = _directory_id(paths.root)
    try:
        yield
    except (LizaError, OSError) as error:
        is_moved = _directory_id(paths.root) != root_id
        if isinstance(error, Refused) or is_moved or not layout.is_deleted(paths):
            raise
        raise layout.deleted_error(paths) from error


class RepositoryLocation:
    """The repository's directory as the supervisor found it at its start."""

    def __init__(self, crew: Crew, agent: str) -> None:
        self.crew, self.agent = crew, agent
        self.root = crew.paths.root
        self._root_id = _directory_id(self.root)
        self._lock: tuple[int, int] | None = None

    def stand_on(self, lock: int) -> None:
        """Remember the supervisor's own lock by its descriptor ``lock``: the lock file in .liza must stay this file."""
        lock_stat = os.fstat(lock)
        self._lock = lock_stat.st_dev, lock_stat.st_ino

    def deleted(self) -> str | None:
        """Return what of .liza was deleted or replaced since the lock was taken, as text, or None."""
        own = self.crew.paths.supervisor_lock(self.agent)
        if self._lock is not None and _directory_id(own) != self._lock:
            return f"its lock {own} was deleted or replaced"
        pins = self.crew.paths.pins
        return None if self._lock is None or pins.exists() else f"{pins} was deleted"

    def check_not_moved(self, run: str | None, notify: Callable[[str], None]) -> None:
        """Raise Missing if the repository was moved or a part of its .liza was deleted.

        The session ``run`` and its processes are ended first. Nothing is written at the former path: it may belong to
        another repository, or be under deletion.
        """
        if self._root_id is None or _directory_id(self.root) == self._root_id:
            if self.deleted() is not None:
                self._end_all(notify)
                raise layout.deleted_error(self.crew.paths)
            return
        new_path = self._find_new_path()
        moved_to = "" if new_path is None else f", it is now at {new_path}"
        reason = f"the repository is no longer at {self.root}{moved_to}: it was moved or deleted while its crew worked"
        if new_path is not None:
            self._write_exit_notes(new_path, run, reason)
        self._end_all(notify)
        if new_path is None:
            raise Missing(reason, "liza up")
        raise Missing(reason, f"cd {shlex.quote(str(new_path))} && {self._restart_command(new_path)}")

    def _end_all(self, notify: Callable[[str], None]) -> None:
        survivors = processes.kill_all(lambda: processes.iter_agent_pids(self.agent, self.root))
        if survivors:
            notify(f"processes that could not be ended: {', '.join(map(str, survivors))}")

    def _restart_command(self, root: Path) -> str:
        """Return the command that starts the crew again, by the board in the moved directory."""
        try:
            state = open_board(Paths(root), self.crew.clock).read()
        except (LizaError, OSError):
            return "liza up"
        at_work = {
            name for name, agent in state.agents.items() if agent.program and agent.status != AgentStatus.OFFLINE
        }
        return restart_command_for(state, at_work | {self.agent})

    def _find_new_path(self) -> Path | None:
        """Return the repository's new path if this process runs in it: its working directory moves along."""
        with suppress(OSError):
            cwd = Path.cwd()
            if _directory_id(cwd) == self._root_id and cwd != self.root:
                return cwd
        return None

    def _write_exit_notes(self, root: Path, run: str | None, reason: str) -> None:
        """Record in the moved directory why the session ended and this supervisor exited."""
        paths, now = Paths(root), self.crew.clock.now()
        with suppress(OSError, LizaError):
            run_directory.write_supervisor_exit(paths, self.agent, SupervisorExit(time=now, reason=reason))
        with suppress(OSError, LizaError):
            if run is not None:
                directory = RunDir(paths, run)
                directory.write_stop(now, StopReason.STOP)
                session_process.stop(directory.path, run, self.root, grace=0.0)


def _directory_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a path, or None if it does not exist."""
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_dev, stat.st_ino
