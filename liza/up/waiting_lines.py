"""Lines of `up` about what the crew waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection

from liza.crew import draft_specs
from liza.crew.crew import Crew
from liza.rules.alarm_kinds import AlarmKind
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.reports.waiting import waiting_alarms

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
        return tuple(f"the crew waits for you: {alarm.message}; next: {alarm.next}" for alarm in alarms)
