"""What a supervisor remembers of a session between two observations. Pure: the time is an argument.

Times are seconds of the monotonic clock. Each class is a state; ``saw`` returns the state after an observation.
"""

from __future__ import annotations

from liza.model.value_classes import Value, replace

Fingerprint = tuple[object, ...]
CHECKS_PER_LIMIT = 20
"""Checks for activity within ``config.hung_after``: a hung session is noticed at most 5 % later than that."""
MIN_INTERVAL = 0.25  # seconds
BURST_SECONDS = 0.05
BUSY_SHARE = 0.005
"""A session that used BURST_SECONDS of CPU time, and this share of one core since its last activity, is active. A
program that sleeps and looks every second uses 0.1 to 0.3 %."""


def check_interval(hung_after: float, heartbeat_interval: float, answer_timeout: float) -> float:
    """Return the seconds between two checks for activity and for answers of the model."""
    return max(MIN_INTERVAL, min(heartbeat_interval, hung_after / CHECKS_PER_LIMIT, answer_timeout / 4))


class SessionTimes(Value):
    """Times of one session. ``first_seen``: when this supervisor observed it first."""

    started: float
    first_seen: float
    last_heartbeat: float
    closing_command_at: float | None = None

    def saw(self, *, is_closed: bool, now: float) -> SessionTimes:
        """Return the times after an observation. The first one after the closing command counts as its time."""
        is_new = is_closed and self.closing_command_at is None
        return replace(self, closing_command_at=now) if is_new else self

    def renewed(self, now: float) -> SessionTimes:
        """Return the times after a heartbeat."""
        return replace(self, last_heartbeat=now)

    def since_closing_command(self, now: float) -> float | None:
        """Return the seconds since the closing command; None before it."""
        return None if self.closing_command_at is None else now - self.closing_command_at


class ActivityWatch(Value):
    """When a session was last active: something in its ``fingerprint`` changed, or its processes used CPU time.

    ``cpu_seconds``: their CPU time then.
    """

    changed_at: float
    checked_at: float = 0.0
    fingerprint: Fingerprint = ()
    cpu_seconds: float = 0.0

    def is_due(self, now: float, interval: float) -> bool:
        """Return whether to check again: the first time, and then once per interval."""
        return not self.fingerprint or now - self.checked_at >= interval

    def seconds_to_check(self, now: float, interval: float) -> float:
        """Return the seconds until the next check."""
        return 0.0 if self.is_due(now, interval) else interval - (now - self.checked_at)

    def saw(self, fingerprint: Fingerprint, now: float, cpu_seconds: float = 0.0) -> ActivityWatch:
        """Return the state after a check."""
        used = cpu_seconds - self.cpu_seconds
        if fingerprint != self.fingerprint or used >= BURST_SECONDS + BUSY_SHARE * (now - self.changed_at):
            return ActivityWatch(now, now, fingerprint, cpu_seconds)
        # The time of a process is lost if it ends and its parent does not wait for it.
        return replace(self, checked_at=now, cpu_seconds=min(self.cpu_seconds, cpu_seconds))

    def restarted(self, now: float) -> ActivityWatch:
        """Return the state after a sleep of the machine, which does not count as inactivity."""
        return replace(self, changed_at=now)


class ModelAnswers(Value):
    """When the model of a session last answered; None before the first answer."""

    answered_at: float | None = None
    signs: Fingerprint = ()

    def saw(self, signs: Fingerprint, now: float, *, is_first_answer: bool) -> ModelAnswers:
        """Return the state after a check of signs that need a model: any change shows an answer.

        ``is_first_answer``: whether the first signs show one, because the session has run a tool already.
        """
        has_answered = signs != self.signs and (bool(self.signs) or is_first_answer)
        return ModelAnswers(now if has_answered else self.answered_at, signs)

    def answered(self, now: float) -> ModelAnswers:
        """Return the state after an answer in the program's output."""
        return replace(self, answered_at=now)


class IdleTime(Value):
    """Since when the program waits at its terminal, or None; and how often it was reminded."""

    since: float | None = None
    reminders: int = 0

    def saw(self, *, is_waiting: bool, now: float) -> IdleTime:
        """Return the state after an observation."""
        if not is_waiting:
            return replace(self, since=None)
        return replace(self, since=now) if self.since is None else self

    def reminded(self) -> IdleTime:
        """Return the state after a reminder: the time begins again."""
        return IdleTime(None, self.reminders + 1)

    def seconds(self, now: float) -> float:
        """Return the seconds that it has waited."""
        return 0.0 if self.since is None else now - self.since


class QuestionTime(Value):
    """Since when the screen shows a question for a person, or None.

    ``earlier_seconds``: duration of earlier questions. Time with a question does not count as running time: the program
    could not continue.
    """

    since: float | None = None
    earlier_seconds: float = 0.0

    def saw(self, *, is_shown: bool, now: float) -> QuestionTime:
        """Return the state after an observation."""
        if is_shown:
            return replace(self, since=now) if self.since is None else self
        return QuestionTime(None, self.seconds(now))

    def seconds(self, now: float) -> float:
        """Return the seconds with a question, including the present one."""
        return self.earlier_seconds + (0.0 if self.since is None else now - self.since)
