"""Wait for the supervisors of `liza up`, start and retire coders, and stop all when the crew can do nothing more."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from liza.board import signals
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import State, Status
from liza.model.paths import role_of
from liza.model.task_groups import tasks_with
from liza.programs.presets.preset import Preset
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.healing import LOOK_SECONDS, Look
from liza.supervisor.rules.decide import EXIT_UNUSABLE
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import crew_size, picking
from liza.tasks.rules.crew_size import CoderFacts, RetireCoder, SizeFacts, StartCoder
from liza.tasks.rules.picking import Evidence, Pick
from liza.text.counts import count_noun

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
    are running can do nothing more. ``resize``: start or retire agents; it returns those that were started. ``heal``:
    start supervisors that died again, and tell which are to be started later.
    """

    tell: Callable[[str, str], None]
    is_there: Callable[[str], bool]
    when_done: Callable[[], bool] = lambda: False
    is_stuck: Callable[[Collection[str]], bool] = lambda running: False
    resize: Callable[[Collection[str]], Collection[str]] = lambda running: ()
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
                self._resize()
            case UpEventKind.BOARD_CHANGED:
                # First: a task that waits for another coder does not wait for a person if that coder is started now.
                self._resize()
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

    def _resize(self) -> None:
        # A crew whose last supervisor has exited ends; it is not started again.
        if self._running and not self._requests:
            self._running |= set(self._calls.resize(self._staying))

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


IDLE_POLLS = 2
"""A coder is retired after it found no task for so many times config.poll_interval."""
RETIRE_SIGNAL = signal.SIGUSR1


class ElasticCoders:
    """Starts and retires coders between the limits of the options.

    Its memory is only since when each coder is idle and which were asked to leave; the rest is read each time.
    """

    def __init__(
        self,
        crew: Crew,
        options: UpOptions,
        children: Mapping[str, subprocess.Popen[str]],
        start: Callable[[str], None],
        say: Callable[[str, str], None],
    ) -> None:
        self._crew, self._options, self._children = crew, options, children
        self._start, self._say = start, say
        self._idle_since: dict[str, float] = {}
        self._retiring: set[str] = set()
        self._timer: threading.Timer | None = None

    def update(self, running: Collection[str], up_events: queue.SimpleQueue[UpEvent]) -> Collection[str]:
        """Start or retire at most one coder; return those that were started. ``running``: supervisors of this `up`."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            facts = self._gather_facts(running)
        except (LizaError, OSError):
            # The supervisors report a board that cannot be read.
            return ()
        decision = crew_size.decide_size(facts)
        if isinstance(decision, StartCoder):
            self._say(decision.agent, f"started: {decision.why}")
            self._start(decision.agent)
            return (decision.agent,)
        if isinstance(decision, RetireCoder):
            self._say(decision.agent, f"asked to leave: {decision.why}")
            self._retiring.add(decision.agent)
            self._children[decision.agent].send_signal(RETIRE_SIGNAL)
        elif decision.seconds is not None:
            self._timer = threading.Timer(decision.seconds, up_events.put, [UpEvent(UpEventKind.BOARD_CHANGED)])
            self._timer.daemon = True
            self._timer.start()
        return ()

    def _gather_facts(self, running: Collection[str]) -> SizeFacts:
        state = self._crew.board.read()
        evidence = gather_evidence(self._crew, state)
        self._retiring &= set(running)
        coders = tuple(
            self._coder_facts(state, agent, evidence)
            for agent in self._options.agents()
            if agent in running and role_of(agent) == "coder"
        )
        failed = [
            code
            for agent, child in self._children.items()
            if role_of(agent) == "coder" and agent not in running and (code := child.returncode) not in (0, None)
        ]
        newcomer = self._find_newcomer(running)
        return SizeFacts(
            minimum=self._options.coders,
            maximum=self._options.most_coders(),
            patience=float(IDLE_POLLS * state.config.poll_interval),
            coders=coders,
            failed=len(failed),
            newcomer=newcomer,
            waiting_task=None if newcomer is None else self._find_task(state, newcomer, evidence),
            halt=self._find_halt(failed),
        )

    def _coder_facts(self, state: State, agent: str, evidence: Evidence) -> CoderFacts:
        is_busy = picking.occupation(state, agent) is not None
        can_claim = self._find_task(state, agent, evidence) is not None
        submitted = tasks_with(state, Status.READY_FOR_REVIEW) + tasks_with(state, Status.APPROVED)
        has_open_task = any(task.assigned_to == agent for task in submitted)
        # Before it holds its lock it has not installed its signal handlers: it is not idle yet.
        now = self._crew.clock.monotonic()
        if is_busy or can_claim or has_open_task or not self._crew.is_supervised(agent):
            self._idle_since[agent] = now
        since = self._idle_since.setdefault(agent, now)
        return CoderFacts(
            agent=agent,
            is_busy=is_busy,
            is_leaving=agent in self._retiring,
            can_claim=can_claim,
            has_open_task=has_open_task,
            idle_seconds=now - since,
        )

    def _find_newcomer(self, running: Collection[str]) -> str | None:
        """Return the first coder that may be started: it does not run, here or elsewhere, and has not failed."""
        coders = [agent for agent in self._options.agents() if role_of(agent) == "coder" and agent not in running]
        return next((agent for agent in coders if self._may_start(agent)), None)

    def _may_start(self, agent: str) -> bool:
        child = self._children.get(agent)
        return (child is None or child.returncode == 0) and not self._crew.is_supervised(agent)

    def _find_task(self, state: State, agent: str, evidence: Evidence) -> str | None:
        pick = picking.pick_task(state, agent, self._crew.clock.now(), evidence)
        return pick.task.id if isinstance(pick, Pick) else None

    def _find_halt(self, failed: Collection[int]) -> str | None:
        if EXIT_UNUSABLE in failed:
            return "the program of a coder cannot be used"
        return next((f"{name} is set" for name in signals.active_signals(self._crew.paths)), None)
