"""Gather the facts about the coders of `liza up --coders auto`, and carry out what `rules.tasks.crew_size` decides."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping

from liza.board import signals
from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.model import State, Status
from liza.model.paths import role_of
from liza.model.task_groups import tasks_with
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.rules.decide import EXIT_UNUSABLE
from liza.supervisor.supervisor_exits import UpEvent, UpEventKind
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import crew_size, picking
from liza.tasks.rules.crew_size import CoderFacts, RetireCoder, SizeFacts, StartCoder
from liza.tasks.rules.picking import Evidence, Pick

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
