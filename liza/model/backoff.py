"""How long to wait before the next try, and how long a supervisor rests after failures. Pure.

Times are seconds of the monotonic clock. Each class is a state with transitions that return the next state.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from liza.model.configuration import Config
from liza.model.session_ends import OUTCOME_RULES, Fault, RestKind, SessionOutcome
from liza.model.value_classes import Value, replace


def backoff(failures: int, first: float, longest: float, factor: float = 2.0) -> float:
    """Return the seconds to wait after ``failures`` failures in a row; 0 for none.

    The first failure is followed by ``first`` seconds, each further one by ``factor`` times as many, at most
    ``longest``.
    """
    return 0.0 if failures <= 0 else float(min(longest, first * factor ** min(failures - 1, 60)))


CRASH_WINDOW = 300.0  # seconds
MAX_CRASHES_IN_WINDOW = 3  # tasks whose sessions crashed within CRASH_WINDOW, before the supervisor exits
MAX_CRASHED_TASKS = 10
"""As MAX_CRASHES_IN_WINDOW while tasks without a crash are left: a program that is broken for all tasks must not
spend a session on each of many."""
MAX_BACKOFF = 300.0  # seconds
MAX_QUOTA_REST = 3600.0  # seconds
MIN_QUOTA_REST, MAX_RETRY_DELAY = 5.0, 60.0
"""Seconds to wait at least where the end of a usage limit is known: after the first session that it ended, and after
many. Programs round that end, and report a limit that has ended until their vendor's servers agree."""
MAX_LIMIT = timedelta(days=32)
"""Maximum time until a usage limit ends: some are monthly. A later end is a misread number."""
QUOTA_FACTOR = 12.0
"""First pause after a usage limit whose end is unknown, in units of ``config.restart_after_crash``."""


class CrashRecord(Value):
    """A crash of a session. ``task``: None for the planning. ``started``: whether its program was started."""

    time: float
    task: str | None = None
    started: bool = True


class TaskRest(Value):
    """A rest for one task alone. ``failed``: its sessions that crashed or made no progress, since one ended well."""

    task: str
    failed: int
    until: float


class FailureStreak(Value):
    """Failed sessions of one supervisor in a row, by cause, and the rest before the next session.

    ``failed``: sessions that were held up, and planning sessions that crashed or made no progress. ``limited``:
    sessions that a usage limit ended. ``unanswered``: sessions whose model gave no usable answer. ``crashes``: the
    crashes in the last CRASH_WINDOW since a session ended well. ``rest_until``: no session starts before.
    ``task_rests``: no session of that task starts before.
    """

    failed: int = 0
    limited: int = 0
    unanswered: int = 0
    crashes: tuple[CrashRecord, ...] = ()
    rest_until: float = 0.0
    task_rests: tuple[TaskRest, ...] = ()

    def saw(
        self,
        outcome: SessionOutcome,
        now: float,
        config: Config,
        limit_seconds: float | None = None,
        task: str | None = None,
    ) -> FailureStreak:
        """Return the state after the end of a session of ``task``. ``limit_seconds``: until its usage limit ends, if
        known."""
        rule, first = OUTCOME_RULES[outcome], config.restart_after_crash
        match rule.rest:
            case RestKind.BACKOFF if task is not None and rule.fault is not Fault.NONE:
                count = 1 + sum(rest.failed for rest in self.task_rests if rest.task == task)
                rest_of_task = TaskRest(task, count, now + backoff(count, first, MAX_BACKOFF))
                streak = replace(self, task_rests=(*self._rests_without(task), rest_of_task))
            case RestKind.BACKOFF:
                count = self.failed + 1
                streak = replace(self, failed=count, rest_until=now + backoff(count, first, MAX_BACKOFF))
            case RestKind.NO_ANSWER:
                count = self.unanswered + 1
                streak = replace(self, unanswered=count, rest_until=now + backoff(count, first, MAX_BACKOFF))
            case RestKind.USAGE_LIMIT:
                count = self.limited + 1
                rest = backoff(count, first * QUOTA_FACTOR, MAX_QUOTA_REST)
                if limit_seconds is not None:
                    rest = max(limit_seconds + 1.0, backoff(count, MIN_QUOTA_REST, MAX_RETRY_DELAY))
                streak = replace(self, limited=count, rest_until=now + rest)
            case RestKind.AFTER_HANDOFF:
                streak = replace(self, rest_until=now + config.restart_after_handoff, crashes=())
            case _:
                streak = self
        if not rule.ends_failures:
            return streak
        return replace(streak, failed=0, limited=0, unanswered=0, crashes=(), task_rests=self._rests_without(task))

    def crashed(self, now: float, task: str | None, *, started: bool = True) -> FailureStreak:
        """Return the state with one more crash, without those older than CRASH_WINDOW."""
        return replace(self, crashes=(*self._recent(now), CrashRecord(now, task, started)))

    def rest_seconds(self, now: float) -> float:
        """Return the seconds until the next session may start."""
        return max(0.0, self.rest_until - now)

    def seconds_by_task(self, now: float) -> dict[str, float]:
        """Return the seconds until the next session of each resting task may start."""
        return {rest.task: rest.until - now for rest in self.task_rests if rest.until > now}

    def crash_loop(self, now: float, *, has_untried: bool) -> str | None:
        """Return why the supervisor is to exit: its sessions crash whatever the task, or none starts. None: go on.

        ``has_untried``: a task without a crash is left for it. That one shows whether the tasks or the program crash.
        Crashes of one task count against that task, which has a limit of its own. The planning has none, so each of
        its crashes counts.
        """
        recent = self._recent(now)
        minutes = f"within {CRASH_WINDOW / 60:.0f} minutes"
        tasks = {crash.task for crash in recent if crash.task is not None}
        planned = sum(crash.task is None for crash in recent)
        last = recent[-MAX_CRASHES_IN_WINDOW:]
        if len(last) == MAX_CRASHES_IN_WINDOW and not any(crash.started for crash in last):
            return f"{len(recent)} sessions crashed {minutes}"
        if len(tasks) + planned < (MAX_CRASHED_TASKS if has_untried else MAX_CRASHES_IN_WINDOW):
            return None
        which = f" of {len(tasks)} tasks" if tasks else ""
        return f"{len(recent)} sessions{which} crashed {minutes}"

    def _rests_without(self, task: str | None) -> tuple[TaskRest, ...]:
        return tuple(rest for rest in self.task_rests if rest.task != task)

    def _recent(self, now: float) -> tuple[CrashRecord, ...]:
        return tuple(crash for crash in self.crashes if now - crash.time <= CRASH_WINDOW)


class MergeTries(Value):
    """Mergers of one supervisor. ``last``: the board's revision and the task of the last one.

    ``failed``: mergers in a row that failed without a mark on a task: the disk, the board or git failed.
    """

    last: tuple[int, str] | None = None
    failed: int = 0
    rest_until: float = 0.0

    def started(self, revision: int, task: str) -> MergeTries:
        """Return the state after the start of a merger."""
        return replace(self, last=(revision, task))

    def saw(self, *, failed: bool, now: float, first: float) -> MergeTries:
        """Return the state after the end of a merger. After a failure it may be started again on the same revision,
        after a rest that begins with ``first`` seconds."""
        if not failed:
            return replace(self, failed=0)
        return MergeTries(None, self.failed + 1, now + backoff(self.failed + 1, first, MAX_BACKOFF))

    def was_tried(self, revision: int, task: str) -> bool:
        """Return whether a merger was started for this task on this revision of the board."""
        return self.last == (revision, task)

    def is_resting(self, now: float) -> bool:
        """Return whether no merger may be started yet."""
        return now < self.rest_until


class ClockWatch(Value):
    """The times of the last observation, and when the machine was last found to have slept."""

    wall_time: datetime
    monotonic_time: float
    slept_at: float | None = None

    def saw(self, wall_time: datetime, monotonic_time: float, lease: float) -> ClockWatch:
        """Return the state after an observation. Only the wall clock advances while the machine sleeps."""
        gap = (wall_time - self.wall_time).total_seconds() - (monotonic_time - self.monotonic_time)
        return ClockWatch(wall_time, monotonic_time, monotonic_time if gap > lease / 2 else self.slept_at)

    @property
    def has_just_slept(self) -> bool:
        """Whether the machine slept before the last observation."""
        return self.slept_at == self.monotonic_time

    def seconds_since_sleep(self, now: float) -> float | None:
        """Return the seconds since the machine slept; None if it did not."""
        return None if self.slept_at is None else now - self.slept_at


LONG_LIFE: Final = 60.0
"""Seconds after which an end counts as the first one again."""
FIRST_DELAY: Final = 0.5
MAX_DELAY: Final = 60.0


def restart_delay(failures: int) -> float:
    """Return the seconds to wait before a start; ``failures`` counts the ends in a row after a short life."""
    return backoff(failures, FIRST_DELAY, MAX_DELAY)
