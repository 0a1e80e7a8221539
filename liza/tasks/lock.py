"""lock: run a command with the board's lock held, then check the board."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

from liza.board import revision_journal
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model import invariants
from liza.model.errors import BoardInconsistent, LizaError
from liza.model.value_classes import Value
from liza.system.foreground_command import run_command
from liza.system.locks import Lock

MAX_SHOWN = 3
_OUTSIDE_PREFIX = "changed outside liza: "


class LockedRun(Value):
    """Exit status of a command that ran with the lock, and the first new error of the board, if any."""

    exit_status: int
    board_error: LizaError | None = None


def lock(crew: Crew, command: Sequence[str]) -> LockedRun:
    """Run ``command`` with the board's lock held; the exit status is 128 + n if signal n killed it.

    Its changes count as an edit from outside: they are kept and checked. Raises LockTimeout, Missing, Refused inside a
    session.
    """
    require_person(crew, planner=False)
    with suppress(BoardInconsistent):
        # Reading records earlier edits from outside first, so that they are not attributed to this command.
        crew.board.read()
    before = revision_journal.highest_revision(crew.paths.journal)
    with Lock(crew.paths.state_lock):
        status = run_command(command)
    return LockedRun(status, _find_damage(crew, before))


def _find_damage(crew: Crew, before: int) -> LizaError | None:
    """Return the errors that are new since revision ``before``.

    They are read from the journal, because another process may have checked the board first.
    """
    try:
        state = crew.board.read()
        crew.log_board_alerts()
        records = takewhile(
            lambda record: record.revision > before, revision_journal.iter_newest_first(crew.paths.journal)
        )
        alerts = [alert.removeprefix(_OUTSIDE_PREFIX) for record in records for alert in record.alerts]
    except LizaError as error:
        return error
    if not alerts:
        return None
    shown = alerts[:MAX_SHOWN] + [f"and {len(alerts) - MAX_SHOWN} more"] * (len(alerts) > MAX_SHOWN)
    is_broken = not {str(violation) for violation in invariants.check_board(state)}.isdisjoint(alerts)
    rules = "a rule" if len(alerts) == 1 else f"{len(alerts)} rules"
    message = f"the changes of the command are kept, and break {rules} that held before:"
    return BoardInconsistent("\n    ".join([message, *shown]), "liza edit" if is_broken else "liza history -p")
