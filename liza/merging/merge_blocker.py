"""What keeps approved tasks from being merged and is not on the board: a process that is not Liza and holds a lock that
a merge needs, and tasks whose entries cannot be changed on the board."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from liza.crew.crew import Crew
from liza.merging.rules import epic_rules
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.errors import NotRegularFile
from liza.model.model import State, Status
from liza.model.value_classes import decodable
from liza.system import lock_holders, untrusted_files
from liza.system.files import convert_os_errors, replace_unsynced
from liza.text.redaction import redact
from liza.text.undecoded import encode_json

_LIZA_COMMANDS = ("liza", "liza-agent")
_COMMAND_WORDS = 4  # python -P -m liza
MAX_COMMAND_LENGTH = 100


def find_merge_blocker(crew: Crew, state: State) -> Alarm | None:
    """Return an alarm if a merge is due, and another program holds the turn or the merge lock.

    There is no alarm about a git that a killed merger left. It ends by itself, and must not be killed while it moves a
    ref.
    """
    if epic_rules.next_subject(state, crew.clock.now()) is None:
        return None
    for path in (crew.paths.merge_turn, crew.paths.merge_lock):
        for pid in lock_holders.find_holders(path):
            command = lock_holders.read_command(pid)
            if command and not _is_liza(command) and not _is_own_git(crew, pid, command):
                name = path.relative_to(crew.paths.root)
                text = redact(shlex.join(command))[:MAX_COMMAND_LENGTH]
                message = f"nothing is merged: process {pid} holds {name}, and is not Liza: {text}"
                return Alarm(AlarmKind.MERGE_LOCK_HELD, "merge", message, f"kill {pid}")
    return None


def record_unwritable(crew: Crew, reasons: Mapping[str, str]) -> None:
    """Record the tasks that the last merger could not set aside on the board, with the reasons. Raises WriteFailed."""
    path = crew.paths.unwritable_tasks
    if reasons:
        replace_unsynced(path, encode_json(reasons))
    else:
        with convert_os_errors():
            path.unlink(missing_ok=True)


def find_unwritable(crew: Crew, state: State) -> Iterator[Alarm]:
    """Yield an alarm for each approved task that the last merger could not set aside on the board."""
    try:
        reasons = msgspec.json.decode(
            untrusted_files.read_record(crew.paths.unwritable_tasks), type=decodable(dict[str, str])
        )
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError, RecursionError):
        return  # the next merger writes it again
    for task_id, reason in reasons.items():
        task = state.task(task_id)
        if task is not None and task.status is Status.APPROVED:
            yield Alarm(AlarmKind.MERGE_SET_ASIDE, task_id, f"{reason}; it is not merged", "liza edit")


def _is_liza(command: tuple[str, ...]) -> bool:
    return any(Path(word).name in _LIZA_COMMANDS for word in command[:_COMMAND_WORDS])


def _is_own_git(crew: Crew, pid: int, command: tuple[str, ...]) -> bool:
    """Return whether a git with a lock of this crew works in its directories: Liza started it."""
    if Path(command[0]).name != "git":
        return False
    directory = lock_holders.read_directory(pid)
    return directory is not None and any(
        directory.is_relative_to(parent) for parent in (crew.paths.root, crew.paths.slots)
    )
