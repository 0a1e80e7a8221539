"""watch: each thing that needs a person, said once until it is settled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import asdict as fields_of

from liza.crew.crew import Crew
from liza.rules.errors import LizaError, NoCrew
from liza.rules.merging.merge_alarms import Alarm
from liza.verbs.change_stream import watch_changes
from liza.verbs.status import find_alarms


def watch(crew: Crew) -> Iterator[dict[str, Any]]:
    """The alarms that stand, and each new one as it comes up; one that clears and comes back is said again. A board
    that cannot be read is one of them, and so is its return. Raises NoCrew where it is gone for good.

    ``since`` is when it was seen first here.
    """
    standing: set[tuple[str, str, str]] = set()
    lost = False
    for _ in watch_changes(crew):
        try:
            state = crew.board.read()
            alarms = find_alarms(crew, state, crew.gather_evidence(state))
        except NoCrew:
            raise
        except LizaError as error:
            if not lost:
                kind = error.code.replace("-", "_")
                yield _alarm_row(crew, Alarm(kind, "board", error.message, error.hint or "liza doctor"))
            lost = True
            continue
        if lost:
            back = f"the board can be read again, at revision {state.revision}"
            yield _alarm_row(crew, Alarm("board_back", "board", back, "liza status"))
            lost = False
        found = {(one.kind, one.about, one.next): one for one in alarms}
        for key, alarm in found.items():
            if key not in standing:
                yield _alarm_row(crew, alarm)
        standing = set(found)


def _alarm_row(crew: Crew, alarm: Alarm) -> dict[str, Any]:
    return {**fields_of(alarm), "since": crew.clock.now()}
