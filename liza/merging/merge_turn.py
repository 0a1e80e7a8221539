"""The turn to start a merger: a file lock that a supervisor takes and its merger inherits.

All supervisors see an approved task at the same revision of the board. Without the turn each of them starts a merger,
and all but one are refused by the merge lock. Decision 018 gives the figures. The merge lock still guards the merge
itself: a person's `liza merge` takes no turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.system import files, untrusted_files, wake_up
from liza.system.lock_holders import last_holder_pid
from liza.system.locks import is_flock_held, try_flock

CHECK_LIMIT = 0.5  # seconds: a process that only checks whether the turn is free holds it for a moment
RETRY_DELAY = 0.001  # seconds between two tries


def is_merger_running(paths: Paths) -> bool:
    """Return whether a merger is running: a supervisor's, or a person's. Raises WriteFailed."""
    with files.convert_os_errors():
        return is_flock_held(paths.merge_turn) or is_flock_held(paths.merge_lock)


def take_turn(paths: Paths) -> AbstractContextManager[int | None]:
    """Take the turn to merge, as ``take_file_turn`` does."""
    return take_file_turn(paths.merge_turn)


@contextmanager
def take_file_turn(turn: Path) -> Iterator[int | None]:
    """Take a turn if it is free; yield the descriptor of its file ``turn``, or None.

    A child that inherits the descriptor keeps the turn until it ends, also if this process is killed. Here the
    descriptor is closed at the end of the block; an unlock would end the child's turn, too. Raises WriteFailed.
    """
    with files.convert_os_errors():
        descriptor = untrusted_files.open_regular(turn, os.O_RDWR | os.O_CREAT, files.BOARD_MODE)
    try:
        yield descriptor if _try_until_held(turn, descriptor) else None
    finally:
        os.close(descriptor)


def _try_until_held(turn: Path, descriptor: int) -> bool:
    """Try again while the lock was refused only because another process checked at that moment whether it is free.

    Not for ever: any process of this user can hold it in shared mode, and the supervisor has other work.
    """
    end = time.monotonic() + CHECK_LIMIT
    while not try_flock(descriptor):
        if is_flock_held(turn) or time.monotonic() >= end:
            return False
        time.sleep(RETRY_DELAY)  # no event tells the end of a check
    return True


def pass_on_orphaned_turn(paths: Paths, agent: str) -> None:
    """End the turn of this process, a merger, and wake the supervisors, if the supervisor of ``agent`` that started it
    is gone, or has released its lock and ends. Else that supervisor does it after this process ended.

    A failure only delays the next merge to the next poll.
    """
    with suppress(LizaError, OSError):
        lock = paths.supervisor_lock(agent)
        if last_holder_pid(lock) != os.getppid() or not is_flock_held(lock):
            _close_turn(paths)
            wake_up.wake_watchers(paths, agent)


def _close_turn(paths: Paths) -> None:
    """Close the inherited descriptor, which is the last one of the lock: the supervisors see the turn free."""
    turn = paths.merge_turn.stat()
    for descriptor in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), turn):
                os.close(descriptor)
