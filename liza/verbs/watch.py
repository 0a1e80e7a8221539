"""watch: report each alarm once, until it clears."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from liza.crew.crew import Crew
from liza.crew.current_alarms import find_alarms
from liza.crew.evidence import gather_evidence
from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.errors import LizaError, NoCrew
from liza.rules.value_classes import asdict as fields_of
from liza.verbs.change_stream import watch_changes


def _no_notices(alarms: Sequence[Alarm]) -> None:
    return


def watch(
    crew: Crew,
    notify: Callable[[Sequence[Alarm]], None] = _no_notices,
) -> Iterator[dict[str, Any]]:
    """Yield the present alarms, then each new one; an alarm that clears and returns is yielded again.

    ``notify`` is called at each look with all present alarms; while the board cannot be read, with those of the last
    look and that error.

    A board that cannot be read is an alarm, and so is its return. ``since`` is the time at which this command first saw
    the alarm. Raises NoCrew if the board is gone.
    """
    reported: set[tuple[str, str, str]] = set()
    alarms: tuple[Alarm, ...] = ()
    is_unreadable = False
    for _ in watch_changes(crew):
        try:
            state = crew.board.read()
            alarms = find_alarms(crew, state, gather_evidence(crew, state))
        except NoCrew:
            raise
        except LizaError as error:
            if not is_unreadable:
                unreadable = Alarm(error.code.replace("-", "_"), "board", error.message, error.hint or "liza doctor")
                notify((*alarms, unreadable))
                yield _alarm_row(crew, unreadable)
            is_unreadable = True
            continue
        notify(alarms)
        if is_unreadable:
            message = f"the board can be read again, at revision {state.revision}"
            yield _alarm_row(crew, Alarm(AlarmKind.BOARD_BACK, "board", message, "liza status"))
            is_unreadable = False
        current = {(alarm.kind, alarm.about, alarm.next): alarm for alarm in alarms}
        for key, alarm in current.items():
            if key not in reported:
                yield _alarm_row(crew, alarm)
        reported = set(current)


def _alarm_row(crew: Crew, alarm: Alarm) -> dict[str, Any]:
    return {**fields_of(alarm), "since": crew.clock.now()}
