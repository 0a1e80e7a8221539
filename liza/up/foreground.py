"""A crew of supervisors that lives as long as `liza up` in a terminal."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from liza.board import events
from liza.crew.commits_ahead import find_commits_ahead
from liza.crew.crew import Crew
from liza.programs.presets.preset import Preset
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.paths import role_of
from liza.rules.reports.narration import LIZA
from liza.rules.sessions.decide import EXIT_UNUSABLE
from liza.rules.tasks.planning import find_stalled_tasks, is_crew_done
from liza.system import processes
from liza.system.signal_repeats import Repeats
from liza.up.crew_options import UpOptions, start_supervisor
from liza.up.feed import Feed
from liza.verbs.down import end_unsupervised_sessions

PrintLine = Callable[[str, str], None]
STOP_REQUESTED, SUPERVISOR_EXITED, PROGRAM_UNUSABLE, GOAL_DONE, BOARD_CHANGED = (
    "stop",
    "left",
    "useless",
    "done",
    "changed",
)
KILLED_STATUS: Final = 130
"""The exit status of a command that its third Ctrl+C ended."""
LAST_OUTPUT_LIMIT: Final = (
    2.0  # seconds for the last lines of a supervisor that is gone, whose pipe somebody else may hold
)
KILL_LIMIT: Final = 5.0  # seconds
_ROLE_VERBS = {"planner": "plans", "coder": "codes", "code-reviewer": "reviews"}
_NEXT_SIGNAL_HINTS = ("again: at once", "once more: kill everything")


def run_foreground(
    crew: Crew, agents: Sequence[str], options: UpOptions, programs: Mapping[str, Preset], feed: Feed
) -> int:
    """Start the supervisors and stay until all have left; the worst of their exit codes."""
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    children: dict[str, subprocess.Popen[str]] = {}
    before = _install_signal_handlers(crew, children, heard, feed)
    try:
        return _stay(crew, agents, options, programs, feed, heard, children)
    finally:
        # Nobody hears any more what a signal asks for, and what is still to be said may find no reader.
        for number, handler in before.items():
            signal.signal(number, handler)


def _stay(
    crew: Crew,
    agents: Sequence[str],
    options: UpOptions,
    programs: Mapping[str, Preset],
    feed: Feed,
    heard: queue.SimpleQueue[str],
    children: dict[str, subprocess.Popen[str]],
) -> int:
    for agent in agents:
        children[agent] = start_supervisor(crew, agent, options)
    for agent, child in children.items():
        threading.Thread(target=_wait_for_supervisor, args=(agent, child, feed, heard), daemon=True).start()
    threading.Thread(target=_watch_goal, args=(crew, options, heard), daemon=True).start()

    def is_there(role: str) -> bool:
        return any(crew.is_supervised(agent) for agent in options.agents() if role_of(agent) == role)

    def when_done() -> bool:
        return _report_done(crew, options, feed)

    undone: list[str] = []

    def is_stuck(there: Collection[str]) -> bool:
        told = _stalled_reason(crew, options, sorted(children.keys() - there), there)
        if told is not None:
            undone.append(told)
            feed("", told)
        return told is not None

    asked = _wait_for_exits(children, programs, heard, feed, is_there, when_done, is_stuck)
    if asked:
        # Sessions of supervisors that were killed, or were stopped before they could adopt.
        end_unsupervised_sessions(crew)
    feed("", f"all stopped; work is in .worktrees/ and on task/*. Go on: {options.restart_command()}")
    return _exit_status([child.returncode for child in children.values()], asked) or int(bool(undone))


def _stalled_reason(crew: Crew, options: UpOptions, left: Sequence[str], there: Collection[str]) -> str | None:
    """Why a crew that is to stop by itself will never be done without those that left; None where it may be."""
    if not options.exit_when_done or not left:
        return None
    try:
        state = crew.board.read()
    except (LizaError, OSError):
        return None
    others = (agent for agent in state.agents if crew.is_supervised(agent))
    roles = frozenset(role_of(agent) for agent in (*there, *others))
    tasks = find_stalled_tasks(state, roles)
    if is_crew_done(state, options.planners > 0) or not tasks:
        return None
    names = ", ".join(tasks[:5]) + (f" and {len(tasks) - 5} more" if len(tasks) > 5 else "")
    return f"{', '.join(left)} left, and nobody else can go on: open: {names}; liza logs {left[0]} says why"


def _exit_status(codes: Sequence[int], asked: bool) -> int:
    if EXIT_UNUSABLE in codes:
        return EXIT_UNUSABLE
    # One that was asked before it could hear ended by the signal, and had begun nothing.
    fine = (0, -signal.SIGTERM) if asked else (0,)
    return int(any(code not in fine for code in codes))


def _install_signal_handlers(
    crew: Crew, children: Mapping[str, subprocess.Popen[str]], heard: queue.SimpleQueue[str], feed: Feed
) -> dict[signal.Signals, Any]:
    """Before the first child is there: one that started without them would be left behind. Returns the handlers that
    were there before.

    The third signal does not wait for the main thread, which may be held up by a disk or a lock.
    """
    times, repeats = {"heard": 0}, Repeats()

    def hear(number: int, frame: object) -> None:
        if not repeats.is_new(number):
            return
        times["heard"] += 1
        if times["heard"] == len(_NEXT_SIGNAL_HINTS) + 1:
            threading.Thread(target=_kill_crew, args=(crew, dict(children), feed), daemon=True).start()
        heard.put(STOP_REQUESTED)

    return {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}


def _kill_crew(crew: Crew, children: Mapping[str, subprocess.Popen[str]], feed: Feed) -> None:
    """SIGKILL to every supervisor, to what each started, and to the sessions of its agent; then exit."""
    try:
        feed("", "killed; what was not committed is still in .worktrees/: liza status")
        # The number of one that has left may be another process's by now.
        there = {agent: child for agent, child in children.items() if child.returncode is None}
        known = {agent: processes.identify_process(child.pid) for agent, child in there.items()}
        # Before the supervisors: afterwards nobody knows any more whose children a merger and its tests were.
        below = [pid for one in known.values() if one is not None for pid in processes.find_descendants(one)]
        for child in there.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        for pid in below:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for agent in children:
            processes.kill_all(lambda agent=agent: processes.iter_agent_pids(agent, crew.paths.root), KILL_LIMIT)  # type: ignore[misc]
        feed.close(LAST_OUTPUT_LIMIT)
    finally:
        os._exit(KILLED_STATUS)


def _wait_for_exits(
    children: Mapping[str, subprocess.Popen[str]],
    programs: Mapping[str, Preset],
    heard: queue.SimpleQueue[str],
    tell: PrintLine,
    is_there: Callable[[str], bool],
    when_done: Callable[[], bool] = lambda: False,
    is_stuck: Callable[[Collection[str]], bool] = lambda there: False,
) -> bool:
    """Ask all to stop, as often as it is asked for; whether it was. Where a program turns out to be of no use, those
    that run it are asked by themselves, and the others go on. ``is_there`` tells whether a role has anybody,
    ``when_done`` says that the goal is reached and whether the crew is to stop then, ``is_stuck`` whether it is to stop
    because those that are there can do nothing more."""
    asked, there, leaving = 0, set(children), set[str]()
    while there:
        event, _, agent = heard.get().partition(" ")
        if event == SUPERVISOR_EXITED:
            there.remove(agent)
            if there - leaving and not asked and not is_there(role_of(agent)):
                tell("", f"nobody {_ROLE_VERBS[role_of(agent)]} now: liza status says why; the others go on")
        if event in (SUPERVISOR_EXITED, BOARD_CHANGED) and (asked or not is_stuck(there) or not there):
            continue
        if event == PROGRAM_UNUSABLE:
            # Others with the same program would only find out the same, one after the other.
            alike = [name for name in there if name != agent and programs[name].command == programs[agent].command]
            for name in alike if not asked else ():
                leaving.add(name)
                children[name].send_signal(signal.SIGTERM)
            continue
        if event == GOAL_DONE and (asked or not when_done()):
            continue
        asked += 1
        if asked <= len(_NEXT_SIGNAL_HINTS):
            what = f"{len(there)} {'agent' if len(there) == 1 else 'agents'}" if asked == 1 else "at once"
            tell("", f"stopping {what}… ({_NEXT_SIGNAL_HINTS[asked - 1]})")
        for name in there:
            # The second time another signal: a supervisor takes two SIGTERM that come together for one.
            children[name].send_signal(signal.SIGTERM if asked == 1 else signal.SIGINT)
    return asked > 0


def _watch_goal(crew: Crew, options: UpOptions, heard: queue.SimpleQueue[str]) -> None:
    """Post DONE each time that the crew comes to its end, and at the start where it has done so before."""
    changes: queue.Queue[Any] = queue.Queue()
    was = False
    with events.watch(crew.paths) as watch:
        watch.subscribe(changes)
        while True:
            # A board that cannot be read now is told of by the supervisors.
            with suppress(LizaError, OSError):
                now = is_crew_done(crew.board.read(), options.planners > 0)
                if now and not was:
                    heard.put(GOAL_DONE)
                was = now
            changes.get()
            heard.put(BOARD_CHANGED)


def _report_done(crew: Crew, options: UpOptions, tell: PrintLine) -> bool:
    """Say that the goal is reached and what comes next; whether the crew was to stop then."""
    tell(LIZA, done_message(crew, crew.board.read()))
    if options.exit_when_done:
        return True
    tell("", "the crew waits for new tasks: Ctrl+C stops it")
    return False


def done_message(crew: Crew, state: State) -> str:
    """What is done, and how far integration is ahead, as far as git can be asked."""
    ended = "every task is done" if state.goal.status == "IN_PROGRESS" else f"the goal is {state.goal.status}"
    try:
        found = find_commits_ahead(crew, state)
    except (LizaError, OSError) as error:
        return f"{ended}; {error}"
    return ended if found is None else f"{ended}; {found.summary}: {found.next}"


def _wait_for_supervisor(
    agent: str, child: subprocess.Popen[str], tell: PrintLine, heard: queue.SimpleQueue[str]
) -> None:
    """Post the end of a supervisor, whatever becomes of what it says."""
    lines = threading.Thread(target=_relay_output, args=(agent, child, tell), daemon=True)
    lines.start()
    code = child.wait()
    lines.join(LAST_OUTPUT_LIMIT)
    if code == EXIT_UNUSABLE:
        heard.put(f"{PROGRAM_UNUSABLE} {agent}")
    heard.put(f"{SUPERVISOR_EXITED} {agent}")


def _relay_output(agent: str, child: subprocess.Popen[str], tell: PrintLine) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        text = line.rstrip("\n")
        if text.startswith(f"{LIZA}  "):
            tell(LIZA, text.removeprefix(f"{LIZA}  "))
        else:
            # What it ends with in spite of itself has another beginning.
            tell(agent, text.removeprefix(f"{agent}  "))
