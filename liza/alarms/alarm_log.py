"""Log each alarm of a crew once until it clears, whichever supervisor sees it first.

To find the alarms costs as much as ten looks at the board, and all supervisors wake up for the same revision. So one of
them checks, and leaves a record of what it checked; the others read the record. It is only an optimization: a missing
or damaged record, or one from before a restart of the machine, makes the next supervisor check.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from liza.alarms.current_alarms import find_alarms
from liza.breaker import breaker
from liza.breaker.rules.breaker_trips import is_worth_a_check
from liza.crew import keeper_start, logged_alarms
from liza.crew.crew import Crew
from liza.merging import drift
from liza.merging.drift import RepositoryStamp
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.errors import LizaError, NotRegularFile, WriteFailed
from liza.model.model import State, Task
from liza.model.paths import Paths
from liza.model.value_classes import Value, decodable
from liza.system import untrusted_files
from liza.system.files import BOARD_MODE, replace_unsynced
from liza.system.locks import try_lock_path
from liza.tasks import draft_specs
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules.picking import failed_by_every_coder

SELF_LOGGED_KIND = AlarmKind.SUPERVISOR_LEFT
"""The exiting supervisor logs this kind itself: it may be the last one."""
MIN_INTERVAL = 1.0
"""Seconds between two checks: a crew of quick agents makes many revisions in a second."""
STAMP_INTERVAL = 5.0
"""Seconds after which the repository is looked at again without an event: some of its files are not watched."""


NEWCOMER_LIMIT = 3.0
"""Seconds for which a task must wait for another coder before that is reported: `liza up` may just start that
coder."""


class AlarmCheck(msgspec.Struct, frozen=True):
    """The last check: the revision and the repository that it saw. Times are seconds of the monotonic clock.

    ``looked_at`` is the time before the repository was looked at, ``found_at`` the time before alarms were found.
    ``breaker`` is the fingerprint of the events that the circuit breaker judged.
    """

    revision: int
    stamp: RepositoryStamp
    looked_at: float
    found_at: float
    breaker: str = ""


_NO_REVISION = -1
"""Revision of a check that is to be made again."""


class AlarmNews(Value):
    """What one check found: a line for each draft that was released, and the new alarms.

    ``next_check``: seconds until a check is due that was not made yet; None if nothing has changed since the last one.
    """

    released: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    next_check: float | None = None


def check_alarms(crew: Crew, state: State, changed_at: float) -> AlarmNews:
    """Release drafts and log new alarms, unless a supervisor has done so for this revision and repository.

    ``changed_at`` is the monotonic time of the last change of the repository that this supervisor was told of. Nothing
    is done while another supervisor checks, or sooner than MIN_INTERVAL after the last check: then ``next_check`` says
    when to call this again. Raises LizaError, OSError.
    """
    seconds = _seconds_to_check(_read_check(crew.paths), state.revision, changed_at, crew.clock.monotonic())
    if seconds != 0:
        return AlarmNews(next_check=seconds)
    with try_lock_path(logged_alarms.alerts_lock(crew.paths), BOARD_MODE) as is_locked:
        # Read again: an alarm that was logged where it arose must not count as cleared.
        return _check_locked(crew, crew.board.read(), changed_at) if is_locked else AlarmNews(next_check=MIN_INTERVAL)


def _seconds_to_check(last: AlarmCheck | None, revision: int, changed_at: float, now: float) -> float | None:
    """Return the seconds until a check is due, 0 if it is due now; None if nothing has changed since the last one."""
    if last is None or last.looked_at > now:
        return 0.0
    if last.revision == revision and max(changed_at, now - STAMP_INTERVAL) < last.looked_at:
        return None
    return max(0.0, last.looked_at + MIN_INTERVAL - now)


def _check_locked(crew: Crew, state: State, changed_at: float) -> AlarmNews:
    now, last = crew.clock.monotonic(), _read_check(crew.paths)
    seconds = _seconds_to_check(last, state.revision, changed_at, now)
    if seconds != 0:
        return AlarmNews(next_check=seconds)
    stamp = drift.stamp_repository(crew.paths, state)
    is_same = last is not None and (last.revision, last.stamp) == (state.revision, stamp)
    if last is not None and is_same and 0 <= now - last.found_at < state.config.poll_interval:
        _write_check(crew.paths, AlarmCheck(state.revision, stamp, now, last.found_at, last.breaker))
        return AlarmNews()
    released = draft_specs.release_drafts(crew)
    judged, failure = _check_breaker(crew, state, "" if last is None else last.breaker)
    # Before the search: a task whose time ends between the two is searched for once more, and not forgotten.
    is_held = bool(_find_early_tasks(crew, state))
    alarms = log_new_alarms(crew, crew.board.read(), failure)
    keeper_start.restart_if_killed(crew)
    # Last: if this supervisor is killed before, the next one checks again.
    _write_check(crew.paths, AlarmCheck(_NO_REVISION if is_held else state.revision, stamp, now, now, judged))
    return AlarmNews(released, alarms, MIN_INTERVAL if is_held else None)


def _check_breaker(crew: Crew, state: State, last: str) -> tuple[str, tuple[Alarm, ...]]:
    """Check the circuit breaker if enough happened for a trip. Return the fingerprint of the events, and the alarm of a
    check that failed: work and other alarms go on without it.
    """
    if not is_worth_a_check(state):
        return "", ()

    try:
        return breaker.check_breaker(crew, state, last), ()
    except LizaError as error:
        kind = AlarmKind.BREAKER_UNCHECKED
        return "", (kind.alarm("circuit breaker", reason=error.message, step=str(error.hint or "")),)


def log_new_alarms(crew: Crew, state: State, more: tuple[Alarm, ...] = ()) -> tuple[Alarm, ...]:
    """Append new alarms to `.liza/alerts.log`; return those that no search has returned yet. The caller holds the lock
    of the log, and has read ``state`` since. ``more``: alarms that a search does not find.
    """
    alarms = (*more, *find_alarms(crew, state, gather_evidence(crew, state)))
    early = {(AlarmKind.NEEDS_ANOTHER_CODER, task) for task in _find_early_tasks(crew, state)}
    return logged_alarms.log_searched(crew, (alarm for alarm in alarms if alarm.kind != SELF_LOGGED_KIND), early)


def _find_early_tasks(crew: Crew, state: State) -> list[str]:
    """Return the tasks that wait for another coder, and whose last event or a supervisor's start is very recent."""
    tasks = [task for task in state.tasks if failed_by_every_coder(state, task)]
    if not tasks:
        return []
    now, starts = crew.clock.now().timestamp(), []
    for agent in state.agents:
        with suppress(OSError):
            # A supervisor writes its lock file when it starts.
            starts.append(crew.paths.supervisor_lock(agent).stat().st_mtime)

    def is_early(task: Task) -> bool:
        times = [*starts, *(event.time.timestamp() for event in task.history[-1:])]
        return any(0 <= now - time < NEWCOMER_LIMIT for time in times)

    return [task.id for task in tasks if is_early(task)]


def _read_check(paths: Paths) -> AlarmCheck | None:
    """Return the last check; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(untrusted_files.read_record(_check_path(paths)), type=decodable(AlarmCheck))
    except (FileNotFoundError, NotRegularFile, msgspec.DecodeError, RecursionError):
        return None


def _write_check(paths: Paths, check: AlarmCheck) -> None:
    # Without the record, the next supervisor checks again.
    with suppress(WriteFailed):
        replace_unsynced(_check_path(paths), msgspec.json.encode(check))


def _check_path(paths: Paths) -> Path:
    return paths.tx / "alarm-check"
