"""What a crew waits for when only a person can continue it, and when `liza up --exit-when-done` may end because of it.

The rules are those of `status`: `waiting_alarms` for the board, and the signals that no person has set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from liza.alarms.current_alarms import find_missing_login, find_refused_model, halt_alarms
from liza.alarms.rules.waiting_alarms import waiting_alarms
from liza.board.signals import Signal
from liza.breaker.rules.breaker_trips import BREAKER_AUTHOR
from liza.crew.crew import Crew
from liza.merging import merge_lock
from liza.model.agent_states import SessionPhase
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import role_of, split_run
from liza.tasks import draft_specs
from liza.tasks.rules.planning import is_crew_done, may_plan_for_breaker, without_others
from liza.view import activity

MAX_LINES: Final = 5
"""Maximum number of lines for one change; `liza status` has all."""
QUIET_SECONDS: Final = 3.0
"""Seconds for which the board must stay as it is: a supervisor that can do something about it does so at once."""


class PersonWaits:
    """Knows what waits for a person, prints it when it changes, and whether the crew can end because of it.

    ``only``: with that task and those that it depends on.
    """

    def __init__(self, crew: Crew, print_line: Callable[[str, str], None], only: str | None = None) -> None:
        self._crew, self._print_line, self._only = crew, print_line, only
        self._printed: tuple[str, ...] = ()
        self._seen: tuple[int, tuple[str, ...]] | None = None
        self._since = 0.0

    def update(self, running: Collection[str]) -> None:
        """Print the lines that differ from the last ones. ``running``: supervised agents of this `up`.

        A signal is not among them: the supervisors have told it.
        """
        # The supervisors report a board that cannot be read, and `liza doctor` a git that fails.
        with suppress(LizaError, OSError):
            state = self._crew.board.read()
            lines = _format(_board_waits(self._crew, state, self._agents(state, running)))
            new = [line for line in lines if line not in self._printed]
            self._printed = lines
            self._print(new)

    def final_lines(self, running: Collection[str]) -> tuple[str, ...]:
        """Return what waits for a person, once nothing else can go on; empty before.

        Call it repeatedly: it is so when two calls that are at least QUIET_SECONDS apart find the same, and neither a
        session nor a merge in between.
        """
        try:
            state = without_others(self._crew.board.read(), self._only)
            lines = self._lines(state, running)
        except (LizaError, OSError):
            lines = ()
        if not lines:
            self._seen = None
            return ()
        if self._seen != (state.revision, lines):
            self._seen, self._since = (state.revision, lines), time.monotonic()
        return lines if time.monotonic() - self._since >= QUIET_SECONDS else ()

    def print_all(self, lines: Collection[str]) -> None:
        """Print what waits, as the last lines of `up`."""
        self._print(list(lines))

    def _print(self, lines: list[str]) -> None:
        for line in lines[:MAX_LINES]:
            self._print_line("", line)
        if len(lines) > MAX_LINES:
            self._print_line("", f"{len(lines) - MAX_LINES} more wait for you: liza status")

    def _agents(self, state: State, running: Collection[str]) -> frozenset[str]:
        return frozenset({*running, *(agent for agent in state.agents if self._crew.is_supervised(agent))})

    def _lines(self, state: State, running: Collection[str]) -> tuple[str, ...]:
        agents = self._agents(state, running)
        roles = frozenset(map(role_of, agents))
        if is_crew_done(state, "planner" in roles):
            return ()
        active = self._crew.board.signals()
        if active:
            halts = _halt_waits(self._crew, state, active, roles)
            alarms = (*halts, *_board_waits(self._crew, state, agents)) if halts else ()
        else:
            alarms = _board_waits(self._crew, state, agents)
        return () if not alarms or _is_at_work(self._crew, state, agents, tuple(active)) else _format(alarms)


def _format(alarms: Collection[Alarm]) -> tuple[str, ...]:
    return tuple(f"the crew waits for you: {alarm.message}; next: {alarm.next}" for alarm in alarms)


def _board_waits(crew: Crew, state: State, agents: frozenset[str]) -> tuple[Alarm, ...]:
    """Return what tasks and planning wait for; empty while one of these agents can go on."""
    lacks = draft_specs.find_incomplete_drafts(crew, state)
    roles = frozenset(role_of(agent) for agent in agents)
    alarms = list(waiting_alarms(state, crew.clock.now(), lacks, roles))
    # The board has no coder yet that starts for the first time.
    if any(
        alarm.kind == AlarmKind.NEEDS_ANOTHER_CODER and _has_able_coder(state, alarm.about, agents) for alarm in alarms
    ):
        return ()
    gone = state.agents.keys() - agents
    if find_missing_login(crew, gone) or find_refused_model(crew, gone):
        # The supervisor that left has said why, and so does the last line of `up`.
        alarms = [alarm for alarm in alarms if alarm.kind not in (AlarmKind.NO_TASKS, AlarmKind.NO_AGENT)]
    return tuple(alarms)


def _has_able_coder(state: State, task_id: str, agents: Collection[str]) -> bool:
    """Whether one of the agents can claim the task."""
    task = state.task(task_id)
    return task is not None and any(role_of(agent) == "coder" and agent not in task.failed_by for agent in agents)


def _halt_waits(crew: Crew, state: State, active: Mapping[str, Signal], roles: frozenset[str]) -> tuple[Alarm, ...]:
    """Return why the crew is halted, if the circuit breaker or an agent has set the signals; empty if a person has.

    A person who pauses the crew knows of it. Empty also while a planner may look for what tripped the breaker.
    """
    authors = {name: signal.author for name, signal in active.items()}
    is_own = all(author == BREAKER_AUTHOR or _agent_of(author) in state.agents for author in authors.values())
    if not is_own or (authors == {"CHECKPOINT": BREAKER_AUTHOR} and may_plan_for_breaker(state, roles)):
        return ()
    return halt_alarms(crew, state, active)


def _agent_of(author: str) -> str:
    """Return the agent of a run or an agent id; another text for any other author."""
    return split_run(author)[0] or author


def _is_at_work(crew: Crew, state: State, agents: Collection[str], active: tuple[str, ...]) -> bool:
    """Whether a session, a set-up, a merge or a proof still runs."""
    busy = (SessionPhase.SET_UP, SessionPhase.STARTING, SessionPhase.READY)
    present = (agent for agent in agents if agent in state.agents)
    return merge_lock.is_merger_running(crew.paths) or any(
        activity.gather_facts(crew, state, agent, active).session.phase in busy for agent in present
    )
