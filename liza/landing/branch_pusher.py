"""Start `liza push` for the branches of tasks, while `config.push` is `auto`, as a child of a supervisor.

The supervisor does not wait for it. A turn, which the child inherits, keeps the supervisors of a crew from starting one
each.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from liza.crew.crew import Crew
from liza.landing import backup_record, branch_backup
from liza.landing.rules import backup_rules
from liza.merging import merge_turn
from liza.model.model import State
from liza.programs.session import log_file
from liza.system import crash_points
from liza.system.liza_path import liza_argv

MAX_LOG: Final = 1 << 18  # bytes
FINISH_LIMIT: Final = 2.0
"""Seconds from the end of the supervisor to SIGINT: a push that works is over by then."""
STOP_LIMIT: Final = 5.0  # seconds from SIGINT to SIGKILL


class BranchPusher:
    """The pushes of one supervisor. ``wake`` is called when a push has ended."""

    def __init__(self, crew: Crew, environ: Mapping[str, str], wake: Callable[[], None]) -> None:
        self._crew, self._environ, self._wake = crew, environ, wake
        self._child: subprocess.Popen[bytes] | None = None
        self._pushed: tuple[str, ...] = ()
        self._has_ended = False
        self._repeats = 0
        self._seen: object = None
        """Revision of the board and stamp of the record of failures at the last look; None: look again."""
        self._look_at = 0.0
        self._held_until = 0.0

    def look(self, state: State) -> None:
        """Start a push if a task is due. Nothing is read while board and record are as before and a delay runs.

        Raises GitFailed, OSError, WriteFailed.
        """
        now = self._crew.clock.monotonic()
        if state.config.push != "auto" or self._is_pushing() or now < self._held_until:
            return
        seen = (state.revision, backup_record.stamp_failure(self._crew))
        if seen == self._seen and now < self._look_at:
            return
        due = branch_backup.find_due_tasks(self._crew, state)
        if self._has_repeated(due):
            self._held_until = now + backup_rules.retry_delay(self._repeats)
            return
        self._seen, self._look_at = seen, now + self._seconds_to_retry()
        if due:
            self._start(due)

    def close(self) -> None:
        """Wait a moment for a push that runs, then end it, with git and its children."""
        if self._child is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(FINISH_LIMIT)
            return
        # SIGINT and not SIGTERM: the child then kills its git, which has a session of its own.
        self._child.send_signal(signal.SIGINT)
        try:
            self._child.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _is_pushing(self) -> bool:
        """Return whether the child runs. After its end the next look happens at once."""
        if self._child is not None and self._child.poll() is not None:
            self._child, self._seen, self._has_ended = None, None, True
        return self._child is not None

    def _has_repeated(self, due: tuple[str, ...]) -> bool:
        """Return whether a push has just ended that changed nothing and recorded no failure, such as a crash."""
        has_ended, self._has_ended = self._has_ended, False
        if has_ended:
            self._repeats = self._repeats + 1 if due and due == self._pushed else 0
        return has_ended and self._repeats > 0

    def _seconds_to_retry(self) -> float:
        seconds = backup_rules.seconds_to_retry(backup_record.read_failure(self._crew), self._crew.clock.now())
        return seconds or float("inf")

    def _start(self, tasks: tuple[str, ...]) -> None:
        with merge_turn.take_file_turn(self._crew.paths.push_turn) as turn:
            if turn is None:
                self._seen = None
                return
            path = self._crew.paths.logs / "push.log"
            self._crew.paths.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
            log_file.cap(path, MAX_LOG, MAX_LOG // 2)
            with log_file.open_for_append(path) as log:
                child = subprocess.Popen(
                    [*liza_argv(), "push", *tasks, "--json"],
                    cwd=self._crew.paths.root,
                    env=dict(self._environ),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(turn,),
                )
        crash_points.point("spawned", "push")
        self._child, self._pushed = child, tasks
        threading.Thread(target=self._await_end, args=(child,), name="wait-push", daemon=True).start()

    def _await_end(self, child: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            child.wait()
        self._wake()
