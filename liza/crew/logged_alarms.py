"""The record of the alarms that `.liza/alerts.log` has: each is logged once until it clears.

The supervisors search all alarms, at most once a second. An alarm that may clear sooner is logged where it arises. The
next search then reports it to the person, and does not log it again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

import msgspec

from liza.crew.crew import Crew
from liza.model.alarm_table import Alarm
from liza.model.errors import LockTimeout, NotRegularFile
from liza.model.paths import Paths
from liza.model.value_classes import decodable
from liza.system import crash_points, untrusted_files
from liza.system.file_growth import Tail
from liza.system.files import BOARD_MODE, replace_unsynced
from liza.system.locks import lock_path
from liza.text.redaction import redact

_SEARCHED_BYTES = 64 << 10  # of the end of the log: much more than one search writes
AlarmKeys = list[tuple[str, str]]
LOCK_TIMEOUT = 2.0  # seconds: a search for alarms takes less; a merger must not wait for a frozen supervisor


def log_searched(crew: Crew, alarms: Iterable[Alarm], held: Collection[tuple[str, str]] = ()) -> tuple[Alarm, ...]:
    """Log and return those of all present alarms that no search has returned yet. ``held``: new ones that a later
    search is to log.

    The caller holds ``alerts_lock``, and has read the board since it took the lock.
    """
    path, early_path = crew.paths.tx / "alerts", crew.paths.tx / "early-alerts"
    reported, early = _read_keys(path), _read_keys(early_path)
    by_key = {(alarm.kind, alarm.about): alarm for alarm in alarms}
    present = {key: alarm for key, alarm in by_key.items() if key in reported or key not in held}
    new = {key: alarm for key, alarm in present.items() if key not in reported}
    _append(crew, [alarm for key, alarm in new.items() if key not in early])
    if set(present) != reported:
        replace_unsynced(path, msgspec.json.encode(sorted(present)))
    # Last: if this process is killed before, the next search does not log these alarms again.
    early_path.unlink(missing_ok=True)
    return tuple(new.values())


def log_early(crew: Crew, alarms: Iterable[Alarm], earlier: Iterable[Alarm]) -> None:
    """Log alarms that arose now, unless they are logged. Raises LizaError, OSError.

    ``earlier`` are the alarms before the last change of the board. If it has none about the same, a record of one is
    that of an alarm which cleared since the last search. If the lock is not free within LOCK_TIMEOUT, the next search
    may log the alarms again.
    """
    present = {(alarm.kind, alarm.about): alarm for alarm in alarms}
    if not present:
        return
    path, early_path = crew.paths.tx / "alerts", crew.paths.tx / "early-alerts"
    with suppress(LockTimeout), lock_path(alerts_lock(crew.paths), LOCK_TIMEOUT, BOARD_MODE):
        early = _read_keys(early_path)
        arisen = present.keys() - {(alarm.kind, alarm.about) for alarm in earlier}
        recorded = {
            key for key in early | _read_keys(path) if key not in arisen or _is_logged(crew.paths, present[key])
        }
        new = present.keys() - recorded
        _append(crew, [present[key] for key in sorted(new)])
        if new:
            replace_unsynced(early_path, msgspec.json.encode(sorted(early | new)))
        return
    _append(crew, list(present.values()))


def alerts_lock(paths: Paths) -> Path:
    """Path of the lock of the alert log and of its records."""
    return paths.locks / "alerts.lock"


def find_times(paths: Paths, alarms: Iterable[Alarm]) -> dict[tuple[str, str], datetime]:
    """Return when alarms were logged last, by kind and subject. An alarm that the end of the log lacks is left out."""
    ends = {f"  {redact(_line(alarm))}": (alarm.kind, alarm.about) for alarm in alarms if alarm.waiting_since is None}
    if not ends:
        return {}
    times: dict[tuple[str, str], datetime] = {}
    with suppress(NotRegularFile, OSError):
        for line in Tail(paths.alerts, first=_SEARCHED_BYTES).lines():
            stamp, _, _ = line.partition("  ")
            key = ends.get(line[len(stamp) :])
            if key is not None:
                with suppress(ValueError):
                    times[key] = datetime.fromisoformat(stamp)
    return times


def _append(crew: Crew, alarms: list[Alarm]) -> None:
    if alarms:
        crew.append_alert_log(map(_line, alarms))
        crash_points.point("alarms", "logged")


def _line(alarm: Alarm) -> str:
    return f"{alarm.kind}  {alarm.message}. Next: {alarm.next}"


def _is_logged(paths: Paths, alarm: Alarm) -> bool:
    """Return whether the end of the log has this very alarm: a search may have logged it before its merger could."""
    end = f"  {redact(_line(alarm))}"
    return any(line.endswith(end) for line in Tail(paths.alerts, first=_SEARCHED_BYTES).lines())


def _read_keys(path: Path) -> set[tuple[str, str]]:
    """Return the alarms of a record; none if it is damaged or no file, so that they are logged again.

    A directory is moved away, because no file can replace it. Raises OSError.
    """
    if path.is_dir() and not path.is_symlink():
        names = (path.with_name(f"{path.name}.odd{number or ''}") for number in count())
        path.rename(next(name for name in names if not os.path.lexists(name)))
        crash_points.point("moved", "alarms")
    try:
        return set(msgspec.json.decode(untrusted_files.read_record(path), type=decodable(AlarmKeys)))
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError, RecursionError):
        return set()
