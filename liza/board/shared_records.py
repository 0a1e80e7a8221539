"""What the hosts of a crew share beside the board. A crew with its board in files has one host, and files for all this.

Read by each host into files of its own, so that supervisors ask no server: `crew/shared_logs.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class SharedLog(StrEnum):
    """A log to which each host appends lines."""

    USAGE = "usage"
    """One line for each session: `.liza/usage.jsonl`."""
    GATES = "gates"
    """One line for each run of a gate: `.liza/gates.jsonl`."""


class NumberedLine(NamedTuple):
    """A line of a log. Numbers ascend, with gaps."""

    number: int
    line: str


class SharedMessage(NamedTuple):
    """A message that waits for the host of its agent. ``body`` is that of `briefs/inbox.py`, in JSON."""

    id: str
    agent: str
    body: str


class SharedFacts(NamedTuple):
    """What a host told of an agent that it has, and when. ``body`` is that of `usage/shared_facts.py`, in JSON."""

    agent: str
    host: str
    body: str
    time: datetime


class SharedRecords(ABC):
    """The records of one crew on its server. All methods raise BoardServerRefused, BoardUnavailable."""

    @abstractmethod
    def append_lines(self, log: SharedLog, lines: Sequence[str]) -> int:
        """Add those lines that the log does not have; return how many these are."""

    @abstractmethod
    def read_lines(self, log: SharedLog, after: int, limit: int) -> list[NumberedLine]:
        """Return the lines with numbers above ``after``, at most ``limit``."""

    @abstractmethod
    def find_place(self, log: SharedLog, newest: int) -> tuple[int, int]:
        """Return the number before the ``newest`` lines of a log, and that of its last line; 0 without one."""

    @abstractmethod
    def post_message(self, message: SharedMessage) -> None:
        """Keep a message until the host of its agent takes it. One with the same id is kept once."""

    @abstractmethod
    def list_messages(self, agents: Iterable[str]) -> list[SharedMessage]:
        """Return the messages for these agents that no host has taken, oldest first."""

    @abstractmethod
    def take_messages(self, agents: Iterable[str], store: Callable[[SharedMessage], None]) -> int:
        """Let ``store`` keep each message for these agents, and then forget it; return how many there were.

        After a crash in between, or if ``store`` raises, ``store`` gets the messages again.
        """

    @abstractmethod
    def remove_message(self, message: str) -> None:
        """Forget a message."""

    @abstractmethod
    def write_facts(self, host: str, bodies: Mapping[str, str]) -> None:
        """Replace what a host told before. ``bodies``: by agent."""

    @abstractmethod
    def read_facts(self) -> Mapping[str, SharedFacts]:
        """Return what hosts told last, by agent. It may be a second old."""
