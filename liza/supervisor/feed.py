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

from liza.alarms.current_alarms import find_missing_login, find_refused_model, read_supervisor_exit
from liza.crew import layout
from liza.crew.crew import Crew
from liza.git.integration_tip import find_commits_ahead
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.narration import LIZA
from liza.model.paths import role_of
from liza.model.statuses import GoalStatus, describe_task, goal_word
from liza.supervisor.crew_options import UpOptions
from liza.supervisor.rules.decide import EXIT_UNUSABLE
from liza.tasks.rules.planning import find_stalled_tasks, is_crew_done, is_task_over, without_others
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
"""Maximum number of tasks in a line; `liza status` has all."""


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


def describe_stop(crew: Crew, options: UpOptions, codes: Sequence[int], *, needs_person: bool = False) -> str:
    """Return where the work is, and the command that continues it. A purge stops supervisors with status 0 first.

    ``needs_person``: the crew was stopped because only a person can go on.
    """
    if any(codes) and not crew.paths.root.exists():
        moved = f"all stopped; the repository is no longer at {crew.paths.root}"
        with suppress(FileNotFoundError):
            return f"{moved}. Go on: {shlex.join(['cd', str(Path.cwd())])} && {options.restart_command()}"
        return moved
    if any(codes) and layout.is_deleted(crew.paths):
        error = layout.deleted_error(crew.paths)
        return f"all stopped; {error.message}. Go on: {error.hint}"
    others = [agent for agent in options.agents() if crew.is_supervised_here(agent)]
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
    go_on = f"Go on afterwards: {options.restart_command()}" if needs_person else f"Go on: {options.restart_command()}"
    return f"all stopped; work is in {crew.paths.slots} and on task/*. {go_on}"


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
        ahead = find_commits_ahead(crew.git, state, crew.paths) if is_done(state, options) else None
    except (LizaError, OSError):
        return None
    return ahead.next if ahead is not None and ahead.commits else None


def describe_stall(crew: Crew, options: UpOptions, left: Sequence[str], running: Collection[str]) -> str | None:
    """Reason why a crew with ``exit_when_done`` can never finish without the agents that left; None if it can."""
    if not options.exit_when_done or not left:
        return None
    try:
        state = without_others(crew.board.read(), options.only)
    except (LizaError, OSError):
        return None
    others = (agent for agent in state.agents if crew.is_supervised(agent))
    roles = frozenset(role_of(agent) for agent in (*running, *others))
    tasks = find_stalled_tasks(state, roles)
    if is_crew_done(state, options.planners > 0) or not tasks:
        return None
    names = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
    exits = (read_supervisor_exit(crew, agent) for agent in left)
    causes = [exit_note.next for exit_note in exits if exit_note is not None and exit_note.next]
    step = f"next: {causes[0]}" if causes else f"liza logs {left[0]} says why"
    return f"{', '.join(left)} left, and no other agent can continue: open: {names}; {step}"


def is_done(state: State, options: UpOptions) -> bool:
    """Whether the crew has nothing more to do: for `liza start`, as soon as its task is closed and the rest waits."""
    state = without_others(state, options.only)
    if is_crew_done(state, options.planners > 0):
        return True
    roles = frozenset(map(role_of, options.agents()))
    return options.task is not None and is_task_over(state, options.task, roles)


def done_message(crew: Crew, state: State, task: str | None = None) -> str:
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
        ahead = find_commits_ahead(crew.git, state, crew.paths)
    except (LizaError, OSError) as error:
        return f"{ended}; {error}"
    return ended if ahead is None else f"{ended}; {ahead.summary}: {ahead.next}"
