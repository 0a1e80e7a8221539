"""The alarms of a crew, each written down once until it clears, whichever supervisor sees it first."""

from __future__ import annotations

import msgspec

from liza.crew.crew import Crew
from liza.rules.merging.merge_alarms import Alarm
from liza.rules.model import State
from liza.system.file_lock import Lock
from liza.system.files import replace_unsynced
from liza.verbs.status import find_alarms

AlarmKeys = list[tuple[str, str]]
SELF_LOGGED_KIND = "supervisor_left"
"""The supervisor that leaves writes that itself, for it may have been the last one."""


def log_new_alarms(crew: Crew, state: State) -> tuple[Alarm, ...]:
    """Append what is new to `.liza/alerts.log`, and give it back to be said. Another supervisor's turn: nothing."""
    lock = Lock(crew.paths.locks / "alerts.lock")
    if not lock.try_acquire():
        return ()
    try:
        return _log_locked(crew, state)
    finally:
        lock.release()


def _log_locked(crew: Crew, state: State) -> tuple[Alarm, ...]:
    place = crew.paths.tx / "alerts"
    before = set(msgspec.json.decode(place.read_bytes(), type=AlarmKeys)) if place.exists() else set()
    found = {
        (one.kind, one.about): one
        for one in find_alarms(crew, state, crew.gather_evidence(state))
        if one.kind != SELF_LOGGED_KIND
    }
    new = tuple(alarm for key, alarm in found.items() if key not in before)
    if new:
        crew.append_alert_log([f"{one.kind}  {one.message}. Next: {one.next}" for one in new])
    if set(found) != before:
        replace_unsynced(place, msgspec.json.encode(sorted(found)))
    return new
