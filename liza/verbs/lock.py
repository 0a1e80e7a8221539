"""lock: run a command while nobody else writes the board, and look at what it left."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from liza.board import revision_journal
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.rules import invariants
from liza.rules.errors import BoardInconsistent, LizaError, Missing
from liza.system.file_lock import Lock

MAX_SHOWN = 3
_OUTSIDE_PREFIX = "changed outside liza: "


@dataclass(frozen=True)
class LockedRun:
    """How a command ended that had the lock: its exit code, and what is wrong with the board that it left, if anything
    is that was not before."""

    exit_status: int
    board_error: LizaError | None = None


def lock(crew: Crew, command: Sequence[str]) -> LockedRun:
    """Run ``command`` with the board's lock held; its exit code is 128 + n where signal n ended it.

    What it changes is an edit from outside: it stands, and is judged. Raises LockTimeout, Missing, Refused inside a
    session.
    """
    require_person(crew, planner=False)
    with suppress(BoardInconsistent):
        # What others left until now is settled first: it is not this command's doing.
        crew.board.read()
    before = revision_journal.highest_revision(crew.paths.journal)
    with Lock(crew.paths.state_lock):
        try:
            process = subprocess.Popen(list(command))
        except OSError as wrong:
            raise Missing(f"{command[0]!r} cannot be run: {wrong.strerror}", f"command -v {command[0]}") from None
        code = _wait_for_exit(process)
    return LockedRun(code if code >= 0 else 128 - code, _find_damage(crew, before))


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The terminal told the command too; the lock must not be let go before it has ended.
            continue


def _find_damage(crew: Crew, before: int) -> LizaError | None:
    """What is wrong since ``before``, the revision until then; the journal tells, whoever was first to judge it."""
    try:
        state = crew.board.read()
        crew.log_board_alerts()
        since = takewhile(
            lambda record: record.revision > before, revision_journal.iter_newest_first(crew.paths.journal)
        )
        told = [alert.removeprefix(_OUTSIDE_PREFIX) for record in since for alert in record.alerts]
    except LizaError as wrong:
        return wrong
    if not told:
        return None
    shown = told[:MAX_SHOWN] + [f"and {len(told) - MAX_SHOWN} more"] * (len(told) > MAX_SHOWN)
    broken = not {str(one) for one in invariants.check_board(state)}.isdisjoint(told)
    rules = "a rule" if len(told) == 1 else f"{len(told)} rules"
    said = f"what the command left on the board stands, and breaks {rules} that held before:"
    return BoardInconsistent("\n    ".join([said, *shown]), "liza edit" if broken else "liza history -p")
