"""Wait for the supervisors of `liza up`, and stop all when the crew can do nothing more."""

from __future__ import annotations

import queue
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from liza.model.paths import role_of
from liza.programs.presets.preset import Preset
from liza.supervisor.healing import LOOK_SECONDS, Look
from liza.text.formats import count_noun

NEXT_SIGNAL_HINTS: Final = ("again: at once", "once more: kill everything")
_ROLE_VERBS = {"planner": "plans", "coder": "codes", "code-reviewer": "reviews"}


class UpEventKind(Enum):
    """What `liza up` is told while it waits."""

    STOP_REQUESTED = "stop requested"
    SUPERVISOR_EXITED = "supervisor exited"
    PROGRAM_UNUSABLE = "program unusable"
    """It is put before SUPERVISOR_EXITED."""
    GOAL_DONE = "goal done"
    BOARD_CHANGED = "board changed"


class UpEvent(NamedTuple):
    """An event and the agent that it is about; empty if it is about the whole crew."""

    kind: UpEventKind
    agent: str = ""


class UpCallbacks(NamedTuple):
    """What the wait asks and reports.

    ``tell``: print a line of an agent. ``is_there``: whether a role has a running agent. ``when_done``: report that the
    goal is reached; true if the crew is to stop then. ``is_stuck``: true if the crew is to stop because the agents that
    are running can do nothing more. ``heal``: start supervisors that died again, or tell which to start later.
    """

    tell: Callable[[str, str], None]
    is_there: Callable[[str], bool]
    when_done: Callable[[], bool] = lambda: False
    is_stuck: Callable[[Collection[str]], bool] = lambda running: False
    heal: Callable[[Collection[str]], Look] = lambda running: Look()


class SupervisorWait:
    """The supervisors that are running, those that died and are to be started again, those that were asked to leave,
    and the number of stop requests."""

    def __init__(
        self, children: Mapping[str, subprocess.Popen[str]], programs: Mapping[str, Preset], calls: UpCallbacks
    ) -> None:
        self._children = children
        self._programs = programs
        self._calls = calls
        self._running, self._leaving, self._requests = set(children), set[str](), 0
        self._awaited: set[str] = set()
        self._look_at = 0.0

    def wait(self, events: queue.SimpleQueue[UpEvent]) -> bool:
        """Wait until all supervisors have exited; pass each stop request on to them. Return whether there was one."""
        while self._running or self._awaited:
            # An event that never comes: a supervisor of another process may end, and a pause may be over.
            with suppress(queue.Empty):
                self._handle(events.get(timeout=max(0.0, self._look_at - time.monotonic())))
            if time.monotonic() >= self._look_at:
                self._heal()
        return self._requests > 0

    def _handle(self, event: UpEvent) -> None:
        match event.kind:
            case UpEventKind.STOP_REQUESTED:
                self._stop_all()
            case UpEventKind.SUPERVISOR_EXITED:
                self._running.remove(event.agent)
                self._heal()
                self._tell_if_last(event.agent)
                self._stop_if_stuck()
            case UpEventKind.BOARD_CHANGED:
                self._stop_if_stuck()
            case UpEventKind.PROGRAM_UNUSABLE:
                self._stop_alike(event.agent)
            case UpEventKind.GOAL_DONE:
                if not self._requests and self._calls.when_done():
                    self._stop_all()

    @property
    def _staying(self) -> frozenset[str]:
        """The supervisors that are running or are to be started again."""
        return frozenset(self._running | self._awaited)

    def _heal(self) -> None:
        self._look_at = time.monotonic() + LOOK_SECONDS
        if self._requests:
            self._awaited = set()
            return
        healed = self._calls.heal(frozenset(self._running))
        self._running |= set(healed.started)
        self._awaited = set(healed.awaited)

    def _tell_if_last(self, agent: str) -> None:
        role = role_of(agent)
        if agent in self._staying:
            return
        if self._running - self._leaving and not self._requests and not self._calls.is_there(role):
            self._calls.tell("", f"no agent {_ROLE_VERBS[role]} now: liza status says why; the others continue")

    def _stop_if_stuck(self) -> None:
        # is_stuck reports the reason, also if no supervisor is left to stop.
        if not self._requests and self._calls.is_stuck(self._staying) and self._running:
            self._stop_all()

    def _stop_alike(self, agent: str) -> None:
        """Stop the supervisors of the same program: they would fail in the same way, one after the other."""
        if self._requests:
            return
        command = self._programs[agent].command
        for name in self._running - {agent}:
            if self._programs[name].command == command:
                self._leaving.add(name)
                self._children[name].send_signal(signal.SIGTERM)

    def _stop_all(self) -> None:
        self._requests += 1
        self._awaited = set()
        if self._requests <= len(NEXT_SIGNAL_HINTS):
            whom = count_noun(len(self._running), "agent") if self._requests == 1 else "at once"
            self._calls.tell("", f"stopping {whom}… ({NEXT_SIGNAL_HINTS[self._requests - 1]})")
        for name in self._running:
            # The second time, a different signal: two pending SIGTERM are delivered as one.
            self._children[name].send_signal(signal.SIGTERM if self._requests == 1 else signal.SIGINT)
