"""Print the output of a crew in the foreground, in a separate thread, and what the crew waits for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Protocol

from liza.alarms.current_alarms import find_missing_login
from liza.alarms.rules.alarms import waiting_alarms
from liza.crew.crew import Crew
from liza.model.alarm_kinds import AlarmKind
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import role_of
from liza.tasks import draft_specs

MAX_WAITING_LINES = 10_000
"""Maximum number of lines that wait for a slow reader; further lines are counted and dropped."""


class PrintTimedLine(Protocol):
    """Print a line of an agent with its time; an empty name means `up` itself.

    It must not hold the lock of a stream while it waits for a reader: Python flushes the streams at exit.
    """

    def __call__(self, agent: str, text: str, when: datetime) -> None: ...


class Feed:
    """Print lines in order without blocking the caller.

    A reader can be slow, stopped (``| less``) or gone (``| head``). None of these may block the reading of a
    supervisor's pipe or the handling of Ctrl+C. Lines that cannot be printed are dropped.
    """

    def __init__(self, say: PrintTimedLine, now: Callable[[], datetime]) -> None:
        self._print_timed, self._now = say, now
        self._lines: queue.SimpleQueue[tuple[str, str, datetime] | threading.Event | None] = queue.SimpleQueue()
        self._dropped = 0
        self._printer = threading.Thread(target=self._print, name="print", daemon=True)
        self._printer.start()

    def __call__(self, agent: str, text: str) -> None:
        if self._lines.qsize() >= MAX_WAITING_LINES:
            self._dropped += 1
        else:
            self._lines.put((agent, text, self._now()))

    def flush(self, limit: float) -> None:
        """Print the waiting lines, for at most ``limit`` seconds."""
        printed = threading.Event()
        self._lines.put(printed)
        printed.wait(limit)

    def close(self, limit: float) -> None:
        """Print the waiting lines for at most ``limit`` seconds; drop the rest."""
        self._lines.put(None)
        self._printer.join(limit)

    def _print(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._print_line(*line)
            if self._dropped and self._lines.empty():
                count, self._dropped = self._dropped, 0
                self._print_line("", f"{count} lines were dropped: the reader was too slow", self._now())

    def _print_line(self, agent: str, text: str, when: datetime) -> None:
        try:
            self._print_timed(agent, text, when)
        except OSError:
            # The disk is full or the terminal is gone: the next line may succeed.
            return


MAX_LINES = 5
"""Maximum number of lines for one change; `liza status` has all."""


def _has_able_coder(state: State, task_id: str, agents: Collection[str]) -> bool:
    """Whether one of the agents can claim the task. A coder that starts for the first time is not on the board yet."""
    task = state.task(task_id)
    return task is not None and any(role_of(agent) == "coder" and agent not in task.failed_by for agent in agents)


class WaitingLines:
    """Prints what the crew waits for when only a person can continue it, and again when that changes."""

    def __init__(self, crew: Crew, print_line: Callable[[str, str], None]) -> None:
        self._crew, self._print_line = crew, print_line
        self._last: tuple[str, ...] = ()

    def update(self, running: Collection[str]) -> None:
        """Print the lines that differ from the last ones. ``running``: supervised agents of this `up`."""
        try:
            lines = self._lines(running)
        except (LizaError, OSError):
            # The supervisors report a board that cannot be read, and `liza doctor` a git that fails.
            return
        new = [line for line in lines if line not in self._last]
        self._last = lines
        for line in new[:MAX_LINES]:
            self._print_line("", line)
        if len(new) > MAX_LINES:
            self._print_line("", f"{len(new) - MAX_LINES} more wait for you: liza status")

    def _lines(self, running: Collection[str]) -> tuple[str, ...]:
        state = self._crew.board.read()
        agents = {*running, *(agent for agent in state.agents if self._crew.is_supervised(agent))}
        lacks = draft_specs.find_incomplete_drafts(self._crew, state)
        roles = frozenset(role_of(agent) for agent in agents)
        alarms = [
            alarm
            for alarm in waiting_alarms(state, self._crew.clock.now(), lacks, roles)
            if not (alarm.kind == AlarmKind.NEEDS_ANOTHER_CODER and _has_able_coder(state, alarm.about, agents))
        ]
        if find_missing_login(self._crew, state.agents.keys() - agents):
            # The supervisor that left has said why, and so does the last line of `up`.
            alarms = [alarm for alarm in alarms if alarm.kind not in (AlarmKind.NO_TASKS, AlarmKind.NO_AGENT)]
        return tuple(f"the crew waits for you: {alarm.message}; next: {alarm.next}" for alarm in alarms)
