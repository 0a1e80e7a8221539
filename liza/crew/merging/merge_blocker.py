"""Find a process that is not Liza and holds a lock that a merge needs: then nothing is merged."""

from __future__ import annotations

import shlex
from pathlib import Path

from liza.crew.crew import Crew
from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.formatting.redaction import redact
from liza.rules.merging import epic_rules
from liza.rules.model import State
from liza.system import lock_holders

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
