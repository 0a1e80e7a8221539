"""Run the supervisors of a crew as children of `liza up` in a terminal, and poll its open pull request."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from liza.alarms import current_alarms
from liza.api import api_server
from liza.crew import layout
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.hosts import host_start
from liza.landing import forge, remotes, submitted_tips
from liza.landing.rules.remote_failures import next_poll_seconds
from liza.landing.sync import sync_request
from liza.model.errors import EXIT_ONLY_PERSON, LizaError
from liza.model.history_events import HistoryEvent
from liza.model.model import State, SupervisorExit
from liza.model.narration import LIZA
from liza.model.paths import role_of
from liza.programs.presets.preset import Preset
from liza.programs.session import run_directory
from liza.supervisor.crew_options import UpOptions, start_supervisor
from liza.supervisor.down import end_unsupervised_sessions, is_under_way
from liza.supervisor.feed import (
    Feed,
    MergeLines,
    describe_pause,
    describe_stall,
    describe_stop,
    done_message,
    is_done,
    relay_output,
)
from liza.supervisor.healing import LOOK_SECONDS, Healer, Look
from liza.supervisor.person_waits import PersonWaits
from liza.supervisor.rules.decide import EXIT_UNUSABLE
from liza.system import processes
from liza.system.locks import Lock
from liza.system.processes import Repeats
from liza.text.formats import count_noun

PrintLine = Callable[[str, str], None]
MERGE_LINE_LIMIT: Final = 2.0
"""Seconds to wait for the line about a merge; its supervisor may have been killed after the merge."""
STOP_LINE: Final = (
    "stopped by Ctrl+Z: only this display. The crew goes on, and spends: fg shows it again, liza down stops it"
)
PRINT_LIMIT: Final = 1.0
"""Seconds to print a line before this process is stopped."""
KILLED_STATUS: Final = 130
"""Exit status after the third Ctrl+C."""
LAST_OUTPUT_LIMIT: Final = 2.0
"""Seconds to read the last lines of an exited supervisor; another process may still hold its pipe open."""
KILL_LIMIT: Final = 5.0  # seconds to kill the processes of one agent
RECORD_LIMIT: Final = 1.0
"""Seconds to record that a person stopped the supervisors; a disk that blocks must not keep them alive."""
STOPPED_BY_PERSON: Final = "ended at once by a third Ctrl+C"


def run_foreground(
    crew: Crew, agents: Sequence[str], options: UpOptions, programs: Mapping[str, Preset], feed: Feed
) -> int:
    """Start the supervisors and wait until all have exited; return the worst of their exit codes."""
    up_events: queue.SimpleQueue[UpEvent] = queue.SimpleQueue()
    children: dict[str, subprocess.Popen[str]] = {}
    killers: list[threading.Thread] = []
    former_handlers = _install_signal_handlers(crew, children, up_events, feed, killers)
    try:
        return _stay(crew, agents, options, programs, feed, up_events, children)
    finally:
        for killer in killers:
            killer.join()  # It ends this process: without this, the exit of the killed supervisors would do it first.
        # From here on no thread reads the events, and the feed may block: a signal must end the process.
        for number, handler in former_handlers.items():
            signal.signal(number, handler)


def _stay(
    crew: Crew,
    agents: Sequence[str],
    options: UpOptions,
    programs: Mapping[str, Preset],
    feed: Feed,
    up_events: queue.SimpleQueue[UpEvent],
    children: dict[str, subprocess.Popen[str]],
) -> int:
    merge_lines = MergeLines(feed)

    def start(agent: str) -> None:
        child = children[agent] = start_supervisor(crew.paths, agent, options)
        threading.Thread(target=_wait_for_supervisor, args=(agent, child, merge_lines, up_events), daemon=True).start()

    for agent in agents:
        start(agent)
    threading.Thread(target=_watch_goal, args=(crew, options, up_events, merge_lines), daemon=True).start()
    request_poll = RequestPoll(crew, feed)
    request_poll.start()

    exit_watch = ExitWatch(crew, agents)

    def is_there(role: str) -> bool:
        return exit_watch.has_reason() or any(
            crew.is_supervised(agent) for agent in options.agents() if role_of(agent) == role
        )

    def when_done() -> bool:
        return _report_done(crew, options, feed)

    stalled_reasons: list[str] = []
    person_waits = PersonWaits(crew, feed, options.only)
    last_lines: list[str] = []

    def is_stuck(running: Collection[str]) -> bool:
        if exit_watch.is_stopped():
            return False
        reason = describe_stall(crew, options, sorted(children.keys() - running), running)
        is_explained = exit_watch.has_reason()
        if reason is None and not is_explained and not options.exit_when_done:
            person_waits.update(running)
        elif reason is not None:
            stalled_reasons.append(reason)
            feed("", reason)
        return reason is not None

    def needs_person(running: Collection[str]) -> bool:
        if options.exit_when_done and not exit_watch.has_reason():
            last_lines[:] = person_waits.final_lines(running)
        return bool(last_lines)

    keeper = ForegroundKeeper(crew, children, start, feed)

    def heal(running: Collection[str]) -> Look:
        return Look() if exit_watch.has_reason() else keeper.look(running)

    def when_left(agent: str) -> None:
        if not exit_watch.has_reason():
            feed(agent, f"was stopped; the others go on. Start it again: {options.start_command(agent)}")

    def when_continued(since: datetime) -> None:
        feed("", describe_pause(crew, since))

    def is_model_refused(agent: str) -> bool:
        return bool(current_alarms.find_refused_model(crew, [agent]))

    calls = UpCallbacks(
        feed, is_there, when_done, is_stuck, heal, when_left, when_continued, is_model_refused, needs_person
    )
    was_asked = SupervisorWait(children, programs, calls).wait(up_events)
    keeper.close()
    request_poll.stop()
    if was_asked:
        # Supervisors that were killed, or stopped before they adopted a session, leave sessions behind.
        end_unsupervised_sessions(crew)
    api_server.stop_if_last(crew)
    host_start.stop_if_last(crew.paths)
    codes = [child.returncode for child in children.values()]
    if options.only is None or any(codes):
        person_waits.print_all(last_lines)
        feed("", describe_stop(crew, options, codes, needs_person=bool(last_lines)))
    code = _exit_status(codes, was_asked) or int(bool(stalled_reasons))
    return code or (EXIT_ONLY_PERSON if last_lines else 0)


class ForegroundKeeper:
    """Starts supervisors of this `up` again that died, unless another process keeps the crew."""

    def __init__(
        self,
        crew: Crew,
        children: Mapping[str, subprocess.Popen[str]],
        start: Callable[[str], None],
        say: PrintLine,
    ) -> None:
        self._crew, self._children = crew, children
        self._healer = Healer(crew, start, say)
        self._lock = Lock(crew.paths.keeper_lock)

    def look(self, running: Collection[str]) -> Look:
        """Heal the crew once. ``running``: agents whose supervisors run."""
        # The supervisors report a board that cannot be read.
        with suppress(LizaError, OSError):
            if self._lock.is_locked or self._lock.try_acquire():
                return self._healer.look(self._crew.board.read(), self._children, running)
        return Look()

    def close(self) -> None:
        """Let another process keep what is left of the crew."""
        self._lock.release()


class ExitWatch:
    """Knows why agents leave together: `liza down` stops the crew, or .liza was deleted under it.

    Then no agent is missing, and `up` prints no waiting lines.
    """

    def __init__(self, crew: Crew, agents: Collection[str]) -> None:
        self._crew, self._agents, self._is_stopped = crew, agents, False
        self._locks = {crew.paths.supervisor_lock(agent): False for agent in agents}

    def has_reason(self) -> bool:
        """Whether there is such a reason. Call it at each change of the board: it remembers the locks that exist."""
        return self.is_stopped() or self._is_deleted()

    def is_stopped(self) -> bool:
        """Whether `liza down` stops the crew, or has stopped it. One that left a supervisor running has failed."""
        if is_under_way(self._crew.paths):
            self._is_stopped = True
        elif self._is_stopped:
            self._is_stopped = not any(self._crew.is_supervised_here(agent) for agent in self._agents)
        return self._is_stopped

    def _is_deleted(self) -> bool:
        # `git clean` deletes the locks before the board: the supervisors leave while it can still be read.
        present = {lock: lock.exists() for lock in self._locks}
        is_lock_gone = any(self._locks[lock] and not exists for lock, exists in present.items())
        self._locks |= {lock: True for lock, exists in present.items() if exists}
        return is_lock_gone or layout.is_deleted(self._crew.paths)


def _exit_status(codes: Sequence[int], was_asked: bool) -> int:
    if EXIT_UNUSABLE in codes:
        return EXIT_UNUSABLE
    # A supervisor that got SIGTERM before it installed its handler was killed by it, and had started nothing.
    good = (0, -signal.SIGTERM) if was_asked else (0,)
    return int(any(code not in good for code in codes))


def _install_signal_handlers(
    crew: Crew,
    children: Mapping[str, subprocess.Popen[str]],
    up_events: queue.SimpleQueue[UpEvent],
    feed: Feed,
    killers: list[threading.Thread],
) -> dict[signal.Signals, Any]:
    """Install handlers for SIGINT, SIGTERM, SIGHUP and SIGTSTP; return the former ones.

    ``killers``: gets the thread that handles the third signal.

    Call this before the first child starts: a signal without a handler would end `up` and leave the child running. The
    third signal is handled in a thread of its own, because the main thread may be blocked by a disk or a lock.
    """
    count, repeats = {"heard": 0}, Repeats()

    def handle(number: int, frame: object) -> None:
        if not repeats.is_new(number):
            return
        count["heard"] += 1
        if count["heard"] == len(NEXT_SIGNAL_HINTS) + 1:
            killers.append(threading.Thread(target=_kill_crew, args=(crew, dict(children), feed), daemon=True))
            killers[-1].start()
        up_events.put(UpEvent(UpEventKind.STOP_REQUESTED))

    def pause(number: int, frame: object) -> None:
        if os.getsid(0) == os.getpid():
            return  # No shell could continue it: the kernel would not stop it either.
        since = crew.clock.now()
        feed("", STOP_LINE)
        feed.flush(PRINT_LIMIT)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # It goes on here after SIGCONT.
        signal.signal(number, pause)
        up_events.put(UpEvent(UpEventKind.CONTINUED, since=since))

    stopping = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    return {**stopping, signal.SIGTSTP: signal.signal(signal.SIGTSTP, pause)}


def _kill_crew(crew: Crew, children: Mapping[str, subprocess.Popen[str]], feed: Feed) -> None:
    """Send SIGKILL to every supervisor, its descendants and its agent's sessions; then exit."""
    try:
        feed("", f"killed; what was not committed is still in {crew.paths.slots}: liza status")
        forge.kill_running()
        # Only children that have not been waited for: the pid of a reaped one may belong to another process.
        living = {agent: child for agent, child in children.items() if child.returncode is None}
        # Before the kill: a supervisor without a record of its exit is started again.
        record = threading.Thread(target=_record_stop, args=(crew, tuple(living)), daemon=True)
        record.start()
        record.join(RECORD_LIMIT)
        identities = {agent: processes.identify_process(child.pid) for agent, child in living.items()}
        # List the descendants before the kill: orphans of a killed supervisor lose their parent pid.
        descendants = [
            pid
            for identity in identities.values()
            if identity is not None
            for pid in processes.find_descendants(identity)
        ]
        for child in living.values():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for agent in children:
            processes.kill_all(lambda agent=agent: processes.iter_agent_pids(agent, crew.paths.root), KILL_LIMIT)  # type: ignore[misc]
        api_server.stop_if_last(crew)
        host_start.stop_if_last(crew.paths)
        feed.close(LAST_OUTPUT_LIMIT)
    finally:
        os._exit(KILLED_STATUS)


def _record_stop(crew: Crew, agents: Sequence[str]) -> None:
    """Record that a person stopped the supervisors, for `liza status` and other processes that keep the crew."""
    exit_note = SupervisorExit(time=crew.clock.now(), reason=STOPPED_BY_PERSON)
    for agent in agents:
        with suppress(OSError, LizaError):
            run_directory.write_supervisor_exit(crew.paths, agent, exit_note)


def _watch_goal(crew: Crew, options: UpOptions, up_events: queue.SimpleQueue[UpEvent], merge_lines: MergeLines) -> None:
    """Put GOAL_DONE each time the crew becomes done, BOARD_CHANGED at the start and at each change.

    GOAL_DONE waits for the lines about the merges: the board has a merge before its supervisor prints it.
    """
    changes: queue.Queue[Any] = queue.Queue()
    was_done = False
    earlier: frozenset[str] | None = None
    with crew.board.watch() as watch:
        watch.subscribe(changes)
        while True:
            # The supervisors report a board that cannot be read.
            with suppress(LizaError, OSError):
                state = crew.board.read()
                is_over = is_done(state, options)
                if earlier is None:
                    earlier = _merged_by(state, options.agents())
                if is_over and not was_done:
                    merge_lines.wait(_merged_by(state, options.agents()) - earlier, MERGE_LINE_LIMIT)
                    up_events.put(UpEvent(UpEventKind.GOAL_DONE))
                was_done = is_over
            up_events.put(UpEvent(UpEventKind.BOARD_CHANGED))
            changes.get()


def _merged_by(state: State, agents: Collection[str]) -> frozenset[str]:
    """Return the tasks that supervisors of these agents merged. Others report their merges elsewhere."""
    merges = ((task.id, event) for task in state.tasks for event in task.history if event.event == HistoryEvent.MERGE)
    return frozenset(task_id for task_id, event in merges if event.agent in agents)


def _report_done(crew: Crew, options: UpOptions, tell: PrintLine) -> bool:
    """Print that the goal is reached and the next step; return whether the crew is to stop."""
    if options.only is None:
        tell(LIZA, done_message(crew, crew.board.read(), options.task))
    if options.exit_when_done:
        return True
    tell("", "the crew waits for new tasks: Ctrl+C stops it")
    return False


def _wait_for_supervisor(
    agent: str, child: subprocess.Popen[str], tell: PrintLine, up_events: queue.SimpleQueue[UpEvent]
) -> None:
    """Wait for a supervisor and put its exit into ``up_events``, also if its output cannot be read or printed."""
    lines = threading.Thread(target=relay_output, args=(agent, child, tell), daemon=True)
    lines.start()
    code = child.wait()
    lines.join(LAST_OUTPUT_LIMIT)
    if code == EXIT_UNUSABLE:
        up_events.put(UpEvent(UpEventKind.PROGRAM_UNUSABLE, agent))
    up_events.put(UpEvent(UpEventKind.SUPERVISOR_EXITED, agent))


IDLE_SECONDS = 60.0
"""Seconds until the board is looked at again while it cannot be read, or while the reading is turned off."""
STOP_LIMIT = 2.0
"""Seconds to wait for the end of a call that was killed."""


class RequestPoll:
    """A thread that makes tasks of red checks and comments, and tells of submitted requests that moved.

    Nothing waits for it; it makes one call at a time.

    Its memory is the number of failures in a row, and the listed comments that were told. The failures are recorded
    for the alarm, too.
    """

    def __init__(self, crew: Crew, say: Callable[[str, str], None]) -> None:
        self._crew, self._say = crew, say
        self._failures = 0
        self._listed: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pull request", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the call that it may wait for."""
        self._stopping.set()
        # It looks at the event between two calls of a reading only when that fails: kill until the thread has ended.
        for _ in range(int(STOP_LIMIT / 0.1)):
            forge.kill_running()
            self._thread.join(0.1)
            if not self._thread.is_alive():
                return

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self.poll()

    def poll(self) -> float:
        """Read the open pull request and the submitted ones; return the seconds until the next time."""
        try:
            state = self._crew.board.read()
        except (LizaError, OSError):
            # The supervisors report a board that cannot be read.
            return IDLE_SECONDS
        interval, request = state.config.pull_request_interval, state.pull_request
        if not interval:
            self._failures = 0
            return IDLE_SECONDS
        try:
            for alarm in submitted_tips.find_moved(self._crew, state):
                self._say("", f"{alarm.message}; next: {alarm.next}")
            if request.is_open:
                self._report(sync_request(self._crew))
            self._failures = 0
        except (LizaError, OSError) as error:
            self._count_failure(request.number, error if isinstance(error, LizaError) else LizaError(str(error)))
        return next_poll_seconds(interval, self._failures)

    def _report(self, result: Result) -> None:
        for line in result.message.splitlines():
            if line.partition(":")[0] in result.details["tasks"]:
                self._say("", line)
        for row in result.details["comments"]:
            if row["id"] not in self._listed:
                self._say("", f"{row['author']} commented without write access: {row['next']}")
                self._listed.add(row["id"])

    def _count_failure(self, number: int, error: LizaError) -> None:
        if self._stopping.is_set():
            return
        if not self._failures:
            self._say("", f"! pull requests were not read: {error.message}; next: {error.hint}")
        self._failures += 1
        # A pull request that was closed is no failure: the board says so now, and it is not read again.
        with suppress(LizaError, OSError):
            if self._crew.board.read().pull_request.is_open:
                remotes.record_failure(self._crew.paths.request_sync, f"{number}", error, self._crew.clock.now())


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
    CONTINUED = "continued"
    """After Ctrl+Z."""


class UpEvent(NamedTuple):
    """An event and the agent that it is about; empty if it is about the whole crew. ``since``: the time of Ctrl+Z."""

    kind: UpEventKind
    agent: str = ""
    since: datetime | None = None


class UpCallbacks(NamedTuple):
    """What the wait asks and reports.

    ``tell``: print a line of an agent. ``is_there``: whether a role has a running agent. ``when_done``: report that the
    goal is reached; true if the crew is to stop then. ``is_stuck``: true if the crew is to stop because the agents that
    are running can do nothing more. ``heal``: start supervisors that died again, or tell which to start later.
    ``when_left``: report that an agent left on request. ``when_continued``: report what happened since Ctrl+Z.
    ``is_model_refused``: whether the supervisor of an agent left because its program does not have the named model.
    ``needs_person``: true if the crew is to stop because only a person can go on.
    """

    tell: Callable[[str, str], None]
    is_there: Callable[[str], bool]
    when_done: Callable[[], bool] = lambda: False
    is_stuck: Callable[[Collection[str]], bool] = lambda running: False
    heal: Callable[[Collection[str]], Look] = lambda running: Look()
    when_left: Callable[[str], None] = lambda agent: None
    when_continued: Callable[[datetime], None] = lambda since: None
    is_model_refused: Callable[[str], bool] = lambda agent: False
    needs_person: Callable[[Collection[str]], bool] = lambda running: False


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
                if not self._requests and self._calls.needs_person(self._staying):
                    self._stop_all()
        return self._requests > 0

    def _handle(self, event: UpEvent) -> None:
        match event.kind:
            case UpEventKind.STOP_REQUESTED:
                self._stop_all()
            case UpEventKind.SUPERVISOR_EXITED:
                self._running.remove(event.agent)
                self._heal()
                self._tell_if_stopped(event.agent)
                self._tell_if_last(event.agent)
                self._stop_if_stuck()
            case UpEventKind.BOARD_CHANGED:
                self._stop_if_stuck()
            case UpEventKind.PROGRAM_UNUSABLE:
                self._stop_alike(event.agent)
            case UpEventKind.GOAL_DONE:
                if not self._requests and self._calls.when_done():
                    self._stop_all()
            case UpEventKind.CONTINUED:
                if event.since is not None:
                    self._calls.when_continued(event.since)

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

    def _tell_if_stopped(self, agent: str) -> None:
        is_left = self._children[agent].returncode == 0 and agent not in self._leaving | self._staying
        if is_left and self._running and not self._requests:
            self._calls.when_left(agent)

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
        for name in self._running - {agent}:
            if self._is_alike(self._programs[agent], self._programs[name], agent):
                self._leaving.add(name)
                self._children[name].send_signal(signal.SIGTERM)

    def _is_alike(self, unusable: Preset, other: Preset, agent: str) -> bool:
        """Whether the other program fails as that of ``agent``: one without the refused model goes on."""
        has_same_model = other.chosen_model == unusable.chosen_model
        return other.command == unusable.command and (has_same_model or not self._calls.is_model_refused(agent))

    def _stop_all(self) -> None:
        self._requests += 1
        self._awaited = set()
        if self._requests <= len(NEXT_SIGNAL_HINTS):
            whom = count_noun(len(self._running), "agent") if self._requests == 1 else "at once"
            self._calls.tell("", f"stopping {whom}… ({NEXT_SIGNAL_HINTS[self._requests - 1]})")
        for name in self._running:
            # The second time, a different signal: two pending SIGTERM are delivered as one.
            self._children[name].send_signal(signal.SIGTERM if self._requests == 1 else signal.SIGINT)
