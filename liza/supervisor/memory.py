"""What a supervisor remembers between two looks. All of it may be lost: a new supervisor sees the same files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from liza.programs.session.failure_watch import Listener
from liza.rules.sessions.decide import CRASH_WINDOW
from liza.rules.sessions.spending import Spent
from liza.supervisor.jobs import Job
from liza.supervisor.metering import Metering


@dataclass
class SessionMemory:
    """When things of one session were first seen; seconds of the steady clock."""

    run: str
    started: float
    moved: float
    beat: float
    seen: float = 0.0
    """When this supervisor looked at it first."""
    traces: tuple[object, ...] = ()
    looked: float = 0.0
    word: float | None = None
    signs: tuple[object, ...] = ()
    answered: float | None = None
    """When its model last showed that it answers; None before the first time."""
    listener: Listener | None = None
    """What reads the output of its program as it grows."""
    metering: Metering | None = None
    """What measures its tool calls and its use of tokens."""
    warned: bool = False
    """Whether it was told that it makes no progress, and still makes none."""
    idle: float | None = None
    """Since when its program waits at its terminal."""
    reminders: int = 0
    asking: float | None = None
    """Since when its screen asks a person."""
    asked_for: float = 0.0
    """For how long it asked a person before that: its program could not go on meanwhile."""
    unlogged: bool = False
    """Whether what its terminal shows is not being written down."""
    told_ready: bool = False
    heard: bool = False


@dataclass
class Memory:
    """One supervisor's own: nothing here is a fact about the crew."""

    wall: datetime
    steady: float
    leaving: bool = False
    firm: bool = False
    crashes: list[float] = field(default_factory=list)
    in_vain: int = 0
    """Sessions in a row that crashed or were held up."""
    limited: int = 0
    """Sessions in a row that a limit of use ended."""
    unanswered: int = 0
    """Sessions in a row whose model gave no answer that could be used."""
    rest_until: float = 0.0
    gap_at: float | None = None
    session: SessionMemory | None = None
    own: str | None = None
    """The run whose session this supervisor started, or adopted."""
    job: Job | None = None
    last_said: str = ""
    failures: int = 0
    recorded: float = float("-inf")
    alarmed: object = None
    last_done: tuple[object, int] | None = None
    unusable: str | None = None
    """Why no session of this program can work before a person did something."""
    by_hand: bool = False
    """Whether that is to start it once as a person does, and to answer it or log in."""
    ledger: tuple[object, tuple[Spent, ...]] = (None, ())
    """The ledger as it was last read, behind what its file looked like then."""
    merge_tried: tuple[int, str] | None = None
    merges_failed: int = 0
    """Mergers in a row that failed and left no mark on a task: the disk, the board or git was in the way."""
    merge_rest_until: float = 0.0
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """The supervisor's own environment: it names the directories in which programs keep their conversations."""
    post: Callable[[object], None] = lambda event: None
    """Hears of what is measured in a session."""

    def forget_session(self) -> None:
        """There is no session to follow any more."""
        if self.session is not None and self.session.metering is not None:
            self.session.metering.stop()
        self.session = None

    def crashed(self, steady: float) -> None:
        """Count a crash, and forget those that no window holds any more."""
        self.crashes = [one for one in self.crashes if steady - one <= CRASH_WINDOW] + [steady]

    def notice_gap(self, wall: datetime, steady: float, lease: float) -> bool:
        """Whether the machine slept since the last look: the wall went on and the steady clock did not."""
        slept = (wall - self.wall).total_seconds() - (steady - self.steady) > lease / 2
        self.wall, self.steady = wall, steady
        if slept:
            self.gap_at = steady
        return slept
