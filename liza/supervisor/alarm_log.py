"""Log each alarm of a crew once until it clears, whichever supervisor sees it first."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.crew.crew import Crew
from liza.crew.current_alarms import find_alarms
from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.model import State
from liza.system import untrusted_files
from liza.system.file_lock import Lock
from liza.system.files import replace_unsynced

AlarmKeys = list[tuple[str, str]]
SELF_LOGGED_KIND = AlarmKind.SUPERVISOR_LEFT
"""The exiting supervisor logs this kind itself: it may be the last one."""


def log_new_alarms(crew: Crew, state: State) -> tuple[Alarm, ...]:
    """Append new alarms to `.liza/alerts.log` and return them. Return none while another supervisor does this."""
    lock = Lock(crew.paths.locks / "alerts.lock")
    if not lock.try_acquire():
        return ()
    try:
        return _log_locked(crew, state)
    finally:
        lock.release()


def _log_locked(crew: Crew, state: State) -> tuple[Alarm, ...]:
    path = crew.paths.tx / "alerts"
    logged = _read_logged(path)
    alarms = {
        (alarm.kind, alarm.about): alarm
        for alarm in find_alarms(crew, state, crew.gather_evidence(state))
        if alarm.kind != SELF_LOGGED_KIND
    }
    new = tuple(alarm for key, alarm in alarms.items() if key not in logged)
    if new:
        crew.append_alert_log([f"{alarm.kind}  {alarm.message}. Next: {alarm.next}" for alarm in new])
    if set(alarms) != logged:
        replace_unsynced(path, msgspec.json.encode(sorted(alarms)))
    return new


def _read_logged(path: Path) -> set[tuple[str, str]]:
    """Return the alarms that are logged and present; none if the file is damaged, so that they are logged again."""
    try:
        return set(msgspec.json.decode(untrusted_files.read_record(path), type=AlarmKeys))
    except (FileNotFoundError, msgspec.DecodeError):
        return set()
