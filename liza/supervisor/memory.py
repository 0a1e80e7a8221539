"""What a supervisor remembers between two looks. All of it may be lost: a new supervisor sees the same files."""

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
    """When things of one session were first seen; seconds of the steady clock."""

    run: str
    started: float
    last_activity: float
    last_heartbeat: float
    first_seen: float = 0.0
    """When this supervisor looked at it first."""
    activity_fingerprint: tuple[object, ...] = ()
    activity_checked_at: float = 0.0
    closing_command_at: float | None = None
    model_fingerprint: tuple[object, ...] = ()
    model_answered_at: float | None = None
    """When its model last showed that it answers; None before the first time."""
    listener: FailureWatch | None = None
    """What reads the output of its program as it grows."""
    meter_thread: MeterThread | None = None
    """What measures its tool calls and its use of tokens."""
    warned: bool = False
    """Whether it was told that it makes no progress, and still makes none."""
    idle_since: float | None = None
    """Since when its program waits at its terminal."""
    reminders: int = 0
    question_since: float | None = None
    """Since when its screen asks a person."""
    question_seconds: float = 0.0
    """For how long it asked a person before that: its program could not go on meanwhile."""
    is_unlogged: bool = False
    """Whether what its terminal shows is not being written down."""
    is_ready_reported: bool = False
    is_end_watched: bool = False


@dataclass
class Memory:
    """One supervisor's own: nothing here is a fact about the crew."""

    wall_time: datetime
    monotonic_time: float
    leaving: bool = False
    force: bool = False
    crashes: list[float] = field(default_factory=list)
    failed_sessions: int = 0
    """Sessions in a row that crashed or were held up."""
    quota_sessions: int = 0
    """Sessions in a row that a limit of use ended."""
    unanswered_sessions: int = 0
    """Sessions in a row whose model gave no answer that could be used."""
    rest_until: float = 0.0
    clock_gap_at: float | None = None
    session: SessionMemory | None = None
    own_run: str | None = None
    """The run whose session this supervisor started, or adopted."""
    job: Job | None = None
    last_notice: str = ""
    failed_turns: int = 0
    recorded_at: float = float("-inf")
    alarms_checked_for: object = None
    last_action: tuple[object, int] | None = None
    unusable_reason: str | None = None
    """Why no session of this program can work before a person did something."""
    needs_person: bool = False
    """Whether that is to start it once as a person does, and to answer it or log in."""
    ledger: tuple[object, tuple[LedgerEntry, ...]] = (None, ())
    """The ledger as it was last read, behind what its file looked like then."""
    last_merge_try: tuple[int, str] | None = None
    failed_merges: int = 0
    """Mergers in a row that failed and left no mark on a task: the disk, the board or git was in the way."""
    merge_rest_until: float = 0.0
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The supervisor's own environment: it names the directories in which programs keep their conversations."""
    post: Callable[[object], None] = lambda event: None
    """Hears of what is measured in a session."""

    def forget_session(self) -> None:
        """There is no session to follow any more."""
        if self.session is not None and self.session.meter_thread is not None:
            self.session.meter_thread.stop()
        self.session = None

    def count_crash(self, steady: float) -> None:
        """Count a crash, and forget those that no window holds any more."""
        self.crashes = [one for one in self.crashes if steady - one <= CRASH_WINDOW] + [steady]

    def detect_clock_gap(self, wall: datetime, steady: float, lease: float) -> bool:
        """Whether the machine slept since the last look: the wall went on and the steady clock did not."""
        slept = (wall - self.wall_time).total_seconds() - (steady - self.monotonic_time) > lease / 2
        self.wall_time, self.monotonic_time = wall, steady
        if slept:
            self.clock_gap_at = steady
        return slept
