"""What `liza up` prints: lines of its supervisors, what waits for a person, and the last lines."""

from __future__ import annotations

import queue
import shlex
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from liza.alarms.current_alarms import find_missing_login, find_refused_model
from liza.alarms.rules.alarm_checks import waiting_alarms
from liza.crew import layout
from liza.crew.crew import Crew
from liza.git.integration_tip import find_commits_ahead
from liza.git.runner import Git
from liza.model.alarm_table import AlarmKind
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.narration import LIZA
from liza.model.paths import role_of
from liza.model.statuses import GoalStatus, describe_task, goal_word
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.rules.decide import EXIT_UNUSABLE
from liza.tasks import draft_specs
from liza.tasks.rules.planning import is_crew_done, is_task_over
from liza.tasks.rules.up_command import another_model_command
from liza.text.formats import format_duration

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
        gone = state.agents.keys() - agents
        if find_missing_login(self._crew, gone) or find_refused_model(self._crew, gone):
            # The supervisor that left has said why, and so does the last line of `up`.
            alarms = [alarm for alarm in alarms if alarm.kind not in (AlarmKind.NO_TASKS, AlarmKind.NO_AGENT)]
        return tuple(f"the crew waits for you: {alarm.message}; next: {alarm.next}" for alarm in alarms)


class MergeLines:
    """Prints the lines of supervisors, and knows which merges they were about."""

    def __init__(self, print_line: Callable[[str, str], None]) -> None:
        self._print_line = print_line
        self._printed: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, agent: str, text: str) -> None:
        """Print a line of an agent."""
        self._print_line(agent, text)
        task, is_merge, _ = text.partition(" merged as ")
        if is_merge:
            with self._changed:
                self._printed.add(task)
                self._changed.notify_all()

    def wait(self, tasks: Collection[str], limit: float) -> None:
        """Wait until the merges of these tasks were printed, at most ``limit`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._printed.issuperset(tasks), limit)


def relay_output(agent: str, child: subprocess.Popen[str], tell: Callable[[str, str], None]) -> None:
    """Print what a supervisor prints, line by line."""
    assert child.stderr is not None
    for line in child.stderr:
        text = line.rstrip("\n")
        if text.startswith(f"{LIZA}  "):
            tell(LIZA, text.removeprefix(f"{LIZA}  "))
        else:
            # Normal lines start with the agent's name; an error message of the command does not.
            tell(agent, text.removeprefix(f"{agent}  "))


def describe_stop(crew: Crew, options: UpOptions, codes: Sequence[int]) -> str:
    """Return where the work is, and the command that continues it. A purge stops supervisors with status 0 first."""
    if any(codes) and not crew.paths.root.exists():
        moved = f"all stopped; the repository is no longer at {crew.paths.root}"
        with suppress(FileNotFoundError):
            return f"{moved}. Go on: {shlex.join(['cd', str(Path.cwd())])} && {options.restart_command()}"
        return moved
    if any(codes) and layout.is_deleted(crew.paths):
        error = layout.deleted_error(crew.paths)
        return f"all stopped; {error.message}. Go on: {error.hint}"
    others = [agent for agent in options.agents() if crew.is_supervised(agent)]
    if others:
        # Another person's `liza up` may have started them: they are not stopped here.
        return f"stopped, but {', '.join(others)} goes on: another command started it: liza down"
    step = _landing_step(crew, options)
    if step is not None:
        return f"all stopped. Accept the result: {step}"
    login = find_missing_login(crew, options.agents()) if EXIT_UNUSABLE in codes else ""
    if login:
        return f"all stopped. {login}; then: {options.restart_command()}"
    model = _describe_refused_model(crew, options) if EXIT_UNUSABLE in codes else ""
    if model:
        return f"all stopped. {model}"
    return f"all stopped; work is in {crew.paths.slots} and on task/*. Go on: {options.restart_command()}"


def describe_pause(crew: Crew, since: datetime) -> str:
    """Return for how long Ctrl+Z stopped the display, and the tasks that have changed meanwhile."""
    pause = f"this display was stopped for {format_duration((crew.clock.now() - since).total_seconds())}"
    try:
        tasks = [task for task in crew.board.read().tasks if any(event.time >= since for event in task.history)]
    except (LizaError, OSError):
        return pause
    words = [describe_task(task.id, task.status) for task in tasks[:MAX_LINES]]
    words += [f"{len(tasks) - MAX_LINES} more"] if len(tasks) > MAX_LINES else []
    return f"{pause}; meanwhile: {', '.join(words)}: liza history" if words else f"{pause}; no task has changed"


def _describe_refused_model(crew: Crew, options: UpOptions) -> str:
    """Return which program does not have the named model, and the next command; empty if that is not the cause."""
    refused = [agent for agent in options.agents() if find_refused_model(crew, [agent])]
    with suppress(LizaError, OSError):
        if refused:
            step = another_model_command(crew.board.read(), refused)
            return f"{find_refused_model(crew, refused)}; next: {step}"
    return ""


def _landing_step(crew: Crew, options: UpOptions) -> str | None:
    """Command that merges what the crew has done, if every task is done; None if not, or if it cannot be read."""
    try:
        state = crew.board.read()
        ahead = find_commits_ahead(crew.git, state) if is_done(state, options) else None
    except (LizaError, OSError):
        return None
    return ahead.next if ahead is not None and ahead.commits else None


def is_done(state: State, options: UpOptions) -> bool:
    """Whether the crew has nothing more to do: for `liza start`, as soon as its task is closed and the rest waits."""
    if is_crew_done(state, options.planners > 0):
        return True
    roles = frozenset(map(role_of, options.agents()))
    return options.task is not None and is_task_over(state, options.task, roles)


def done_message(git: Git, state: State, task: str | None = None) -> str:
    """Describe what is done, and how far integration is ahead; if git fails, its error instead.

    ``task``: the one of `liza start`, which is closed when this is called; others may wait for a person.
    """
    if state.goal.status != GoalStatus.IN_PROGRESS:
        ended = f"the goal is {goal_word(state.goal.status)}"
    elif task is not None and not is_crew_done(state, has_planner=False):
        ended = f"{task} is closed; other tasks wait for you (liza status)"
    else:
        ended = "every task is done"
    try:
        ahead = find_commits_ahead(git, state)
    except (LizaError, OSError) as error:
        return f"{ended}; {error}"
    return ended if ahead is None else f"{ended}; {ahead.summary}: {ahead.next}"
