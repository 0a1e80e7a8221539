"""State that a supervisor keeps between two observations. It may be lost: a new supervisor reads the same files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from liza.programs.session.failure_watch import FailureWatch
from liza.rules.sessions.decide import CRASH_WINDOW
from liza.rules.sessions.spending import LedgerEntry
from liza.supervisor.jobs import Job
from liza.supervisor.metering import MeterThread


@dataclass
class SessionMemory:
    """What was observed of one session. Times are seconds of the monotonic clock."""

    run: str
    started: float
    last_activity: float
    last_heartbeat: float
    first_seen: float = 0.0
    """When this supervisor observed it first."""
    activity_fingerprint: tuple[object, ...] = ()
    activity_checked_at: float = 0.0
    closing_command_at: float | None = None
    model_fingerprint: tuple[object, ...] = ()
    model_answered_at: float | None = None
    """When its model last answered; None before the first answer."""
    listener: FailureWatch | None = None
    """Reads the program's output as it grows."""
    meter_thread: MeterThread | None = None
    """Measures its tool calls and tokens."""
    warned: bool = False
    """Whether it was warned that it makes no progress, and still makes none."""
    idle_since: float | None = None
    """Since when its program waits at its terminal, or None."""
    reminders: int = 0
    question_since: float | None = None
    """Since when its screen shows a question for a person, or None."""
    question_seconds: float = 0.0
    """Seconds of earlier questions. They do not count as running time: the program could not continue."""
    is_unlogged: bool = False
    """Whether its terminal is not being logged."""
    is_ready_reported: bool = False
    is_end_watched: bool = False


@dataclass
class Memory:
    """State of one supervisor. Nothing here is a fact about the crew."""

    wall_time: datetime
    monotonic_time: float
    leaving: bool = False
    force: bool = False
    crashes: list[float] = field(default_factory=list)
    failed_sessions: int = 0
    """Sessions in a row that crashed or were held up."""
    quota_sessions: int = 0
    """Sessions in a row that a usage limit ended."""
    unanswered_sessions: int = 0
    """Sessions in a row whose model gave no usable answer."""
    rest_until: float = 0.0
    clock_gap_at: float | None = None
    session: SessionMemory | None = None
    own_run: str | None = None
    """The run whose session this supervisor started or adopted."""
    job: Job | None = None
    last_notice: str = ""
    failed_turns: int = 0
    recorded_at: float = float("-inf")
    alarms_checked_for: object = None
    last_action: tuple[object, int] | None = None
    unusable_reason: str | None = None
    """Why no session of this program can work until a person acts, or None."""
    needs_person: bool = False
    """Whether a person has to start the program once, to answer it or to log in."""
    ledger: tuple[object, tuple[LedgerEntry, ...]] = (None, ())
    """The file's stamp and the entries of the last read of the ledger."""
    last_merge_try: tuple[int, str] | None = None
    failed_merges: int = 0
    """Mergers in a row that failed without a mark on a task: the disk, the board or git failed."""
    merge_rest_until: float = 0.0
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The supervisor's own environment. It names the directories where programs store conversations."""
    post: Callable[[object], None] = lambda event: None
    """Receives the events of the session's measurement."""

    def forget_session(self) -> None:
        """Stop to follow the session: it has ended."""
        if self.session is not None and self.session.meter_thread is not None:
            self.session.meter_thread.stop()
        self.session = None

    def count_crash(self, monotonic_time: float) -> None:
        """Count a crash, and drop those older than CRASH_WINDOW."""
        self.crashes = [crash for crash in self.crashes if monotonic_time - crash <= CRASH_WINDOW] + [monotonic_time]

    def detect_clock_gap(self, wall_time: datetime, monotonic_time: float, lease: float) -> bool:
        """Whether the machine slept since the last observation: only the wall clock advanced then."""
        has_slept = (wall_time - self.wall_time).total_seconds() - (monotonic_time - self.monotonic_time) > lease / 2
        self.wall_time, self.monotonic_time = wall_time, monotonic_time
        if has_slept:
            self.clock_gap_at = monotonic_time
        return has_slept
