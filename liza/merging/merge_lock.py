"""The lock of a merge, and the turn to start a merger: a file lock that a supervisor takes and its merger inherits.

All supervisors see an approved task at the same revision of the board. Without the turn each of them starts a merger,
and all but one are refused by the merge lock. Decision 018 gives the figures. The merge lock still guards the merge
itself: a person's `liza merge` takes no turn.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec

from liza.crew.crew import Crew
from liza.merging.rules import epic_rules
from liza.model.errors import LizaError, LockTimeout, NotRegularFile, Refused
from liza.model.model import State, Status
from liza.model.paths import Paths
from liza.model.value_classes import Value, decodable
from liza.system import file_growth, files, locks, untrusted_files
from liza.system.files import convert_os_errors, replace_unsynced
from liza.system.locks import Lock, is_flock_held, last_holder_pid, try_flock
from liza.text.redaction import redact
from liza.text.undecoded import encode_json

CHECK_LIMIT = 0.5  # seconds: a process that only checks whether the turn is free holds it for a moment
LOCK_TIMEOUT = 0.5  # seconds: a process that only checks whether the lock is free holds it for a moment
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
            file_growth.wake_watchers(paths, agent)


def _close_turn(paths: Paths) -> None:
    """Close the inherited descriptor, which is the last one of the lock: the supervisors see the turn free."""
    turn = paths.merge_turn.stat()
    for descriptor in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), turn):
                os.close(descriptor)


@contextmanager
def hold_merge_lock(crew: Crew, refusal: str = "another merge is under way") -> Iterator[Crew]:
    """Yield the crew with the merge lock, and wake the supervisors at the end if a merge is due.

    Raises Refused with the text ``refusal`` if another process holds it.
    """
    lock = Lock(crew.paths.merge_lock)
    try:
        lock.acquire(timeout=LOCK_TIMEOUT)
    except LockTimeout:
        raise Refused(refusal, "liza status") from None
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()
        wake_for_next_merge(crew)


@contextmanager
def hold_merge_lock_in_turn(crew: Crew) -> Iterator[Crew]:
    """Yield the crew with the merge lock, for a supervisor's merger, whose turn it is to merge.

    Raises LockTimeout if another process holds it: the supervisor tries again on the same revision.
    """
    lock = Lock(crew.paths.merge_lock)
    lock.acquire(timeout=LOCK_TIMEOUT)
    try:
        yield crew.with_lock(lock)
    finally:
        lock.release()


def wake_for_next_merge(crew: Crew) -> None:
    """Wake the supervisors if a merge is due: they found the merge lock held, and its end causes no event for them.

    A failure only delays the merge to their next poll.
    """
    with suppress(LizaError, OSError):
        if epic_rules.next_subject(crew.board.read(), crew.clock.now()) is not None:
            file_growth.wake_watchers(crew.paths, "merge")


_LIZA_COMMANDS = ("liza", "liza-agent")
_COMMAND_WORDS = 4  # python -P -m liza
MAX_COMMAND_LENGTH = 100


class MergeBlocker(Value):
    """A program that is not Liza, and holds the turn or the lock of the merges: its process, the ``file`` that it
    holds, and its command line."""

    pid: int
    file: str
    program: str


def find_merge_blocker(crew: Crew, state: State) -> MergeBlocker | None:
    """Return the other program that holds the turn or the merge lock while a merge is due.

    A git that a killed merger left does not count. It ends by itself, and must not be killed while it moves a ref.
    """
    if epic_rules.next_subject(state, crew.clock.now()) is None:
        return None
    for path in (crew.paths.merge_turn, crew.paths.merge_lock):
        for pid in locks.find_holders(path):
            command = locks.read_command(pid)
            if command and not _is_liza(command) and not _is_own_git(crew.paths, pid, command):
                program = redact(shlex.join(command))[:MAX_COMMAND_LENGTH]
                return MergeBlocker(pid, str(path.relative_to(crew.paths.root)), program)
    return None


def record_unwritable(paths: Paths, reasons: Mapping[str, str]) -> None:
    """Record the tasks that the last merger could not set aside on the board, with the reasons. Raises WriteFailed."""
    path = paths.unwritable_tasks
    if reasons:
        replace_unsynced(path, encode_json(reasons))
    else:
        with convert_os_errors():
            path.unlink(missing_ok=True)


def find_unwritable(paths: Paths, state: State) -> dict[str, str]:
    """Return the approved tasks that the last merger could not set aside on the board, with the reasons."""
    try:
        reasons = msgspec.json.decode(
            untrusted_files.read_record(paths.unwritable_tasks), type=decodable(dict[str, str])
        )
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError, RecursionError):
        return {}  # the next merger writes it again
    approved = {task.id for task in state.tasks if task.status is Status.APPROVED}
    return {task_id: reason for task_id, reason in reasons.items() if task_id in approved}


def _is_liza(command: tuple[str, ...]) -> bool:
    return any(Path(word).name in _LIZA_COMMANDS for word in command[:_COMMAND_WORDS])


def _is_own_git(paths: Paths, pid: int, command: tuple[str, ...]) -> bool:
    """Return whether a git with a lock of this crew works in its directories: Liza started it."""
    if Path(command[0]).name != "git":
        return False
    directory = locks.read_directory(pid)
    return directory is not None and any(directory.is_relative_to(parent) for parent in (paths.root, paths.slots))
