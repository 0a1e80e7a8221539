"""The loop of one supervisor: gather, decide, carry out, wait for an event. Everything clever is in `rules.sessions.decide`."""

from __future__ import annotations

import contextlib
import queue
import shlex
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from liza.board import events, wake_up
from liza.crew import draft_specs, usage_summary
from liza.crew.crew import Crew
from liza.crew.drift import drift
from liza.crew.recovery import recorder, recover
from liza.crew.recovery.orphan_sessions import end_orphans
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.repo import reflogs
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State
from liza.rules.reports.alarms import BY_HAND, after_leaving
from liza.rules.reports.narration import LIZA, news
from liza.rules.secrets import redacted
from liza.rules.sessions import actions
from liza.rules.sessions.decide import decide
from liza.supervisor.alarm_log import raise_alarms
from liza.supervisor.carry_out import Steps
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import Memory
from liza.supervisor.relocated import RepositoryLocation
from liza.supervisor.situation import gather

TRY_AGAIN = 1.0
LONGEST_RETRY = 30.0
RECORD_EVERY = 2.0  # seconds
MOST_TRIES_TO_LEAVE = 3
TOLD_ALREADY = ("blocked", "integration_failed")
READ_LOG_EVERY = 2.0  # seconds
READ_EVERY = 0.25  # seconds: a program that streams its answer writes many times a second
LONG = 1e6  # seconds, as far as poll(2) can count


@dataclass(frozen=True)
class StopRequest:
    """The event of a signal: stop politely, or, said twice, firmly."""

    firm: bool


@dataclass(frozen=True)
class SessionOver:
    """The event: the session of this run has ended."""

    run: str


class Supervisor:
    """One agent's supervisor. ``events`` is where watches, children and signals post; ``say`` hears each step."""

    def __init__(
        self,
        crew: Crew,
        agent: str,
        preset: Preset,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        terminal: bool = False,
    ) -> None:
        self.crew = crew
        self.agent = agent
        self.preset = preset
        self.say = say
        self.events: queue.Queue[Any] = queue.Queue()
        steady = crew.clock.monotonic()
        self.memory = Memory(wall=crew.clock.now(), steady=steady, environ=environ, post=self.events.put)
        launcher = Launcher(crew, preset, environ, self._say, terminal=terminal)
        self.steps = Steps(agent, launcher, self.memory, self.events.put, self._say)
        self.seen = crew.board.read()
        self.ground = RepositoryLocation(crew, agent)
        self.followed: str | None = None
        """The run whose output is watched."""
        self.bell = wake_up.place(crew.paths).resolve()
        self.listened = (self.bell, *reflogs.directories((crew.paths.root / ".git").resolve()))
        self.watch = events.watch(crew.paths, self.listened)

    def run(self) -> actions.Exit:
        """Until there is a reason to leave. Raises LizaError for what no retry can mend, Missing if the repository was
        moved."""
        self.watch.put_into(self.events)
        try:
            while True:
                known = self.memory.session
                self.ground.check(known.run if known is not None else None, self._say)
                left = self._turn()
                if left is not None:
                    return left
        finally:
            self.watch.close()
            if self.memory.job is not None:
                self.memory.job.stop()

    def by_hand(self) -> str:
        """The command that starts its program as a person does, where it waits for one; nothing else."""
        if not self.memory.by_hand:
            return ""
        words = shlex.join((self.preset.command, *self.preset.args))
        return redacted(f"cd {shlex.quote(str(self.crew.paths.root))} && {words}")

    def _turn(self) -> actions.Exit | None:
        """One decision, carried out. What fails now may well go next time: a full disk, a file half typed, a git lock;
        it is said, and tried again ever more rarely, for a supervisor that dies of it helps nobody."""
        try:
            action = self._next()
            if isinstance(action, actions.Exit):
                if action.code != 0:
                    by_hand = self.by_hand()
                    why, step = action.why + (BY_HAND if by_hand else ""), after_leaving(self.seen, self.agent, by_hand)
                    line = f"supervisor_left  the supervisor of {self.agent} left: {why}. Next: {step}"
                    self.crew.write_down([line])
                return action
            if isinstance(action, actions.Wait):
                self._idle(action.seconds)
            else:
                self.steps.carry_out(action)
            self._breathe(action)
            self.memory.failures = 0
        except (LizaError, OSError) as error:
            self.memory.failures += 1
            self._say(_said_of(error))
            if self.memory.leaving and self.memory.failures > MOST_TRIES_TO_LEAVE:
                return actions.Exit(1, f"its last step failed: {error}")
            self._pause(min(TRY_AGAIN * 2 ** (self.memory.failures - 1), LONGEST_RETRY))
        return None

    def _pause(self, seconds: float) -> None:
        """Wait for an event without asking the board, which may be what failed."""
        with contextlib.suppress(queue.Empty):
            self._take(self.events.get(timeout=seconds))

    def _next(self) -> actions.Action:
        self._take_events()
        self.steps.settle_job()
        self.steps.carrier.settle()
        state = self.crew.board.read()
        self._tell_ready()
        self._narrate(state)
        for ended in end_orphans(self.crew, state, self.agent):
            self._say(ended)
        self._take_back(state)
        return decide(gather(self.crew, self.agent, self.memory, self.preset, self.steps.carrier.takes))

    def _take_back(self, state: State) -> None:
        """Settle what a claim left on the board that did not end: nobody can take such a task."""
        if not any(task.reservation for task in state.tasks):
            return
        try:
            for settled in recover.settle_reservations(self.crew, patience=0):
                self._say(settled.what)
        except (LizaError, OSError) as error:
            # It is in the way of one task, not of this agent's work.
            self._say(_said_of(error))

    def _narrate(self, state: State) -> None:
        """Tell what this agent did since the last look, whoever of its processes did it."""
        before, self.seen = self.seen, state
        for one in news(before, state):
            if one.who == self.agent:
                text = one.text + self._cost(state, one.merged)
                self.say(f"{LIZA}  {text}" if one.liza else text)

    def _cost(self, state: State, merged: str | None) -> str:
        """What a merged task cost, behind the news of it."""
        if merged is None:
            return ""
        try:
            return f"; {usage_summary.of_task(self.crew, state, merged)}"
        except LizaError as error:
            return f"; its cost is not known: {error.message}"

    def _breathe(self, action: actions.Action) -> None:
        """The same action twice on the same revision has changed nothing: a mistake of ours must not burn a core."""
        now = (action, self.seen.revision)
        if not isinstance(action, actions.Wait) and now == self.memory.last_done:
            self._wait(TRY_AGAIN)
        self.memory.last_done = now

    def _idle(self, seconds: float | None) -> None:
        self._tell_adopted()
        self._tell_ready()
        self._hear_end()
        self._follow_output()
        if self.memory.session is not None:
            self.steps.carrier.listen(self.memory.session.run)
            if self.memory.session.unlogged:
                self.steps.log_again(self.memory.session.run)
        self._alarm()
        self._wait(self._record(seconds))

    def _record(self, seconds: float | None) -> float | None:
        """Bring what was spooled into the history, in batches: a batch costs a few gits however small it is.

        How long to wait at the longest before the next one.
        """
        if not self.crew.board.spool.revisions():
            return seconds
        left = self.memory.recorded + RECORD_EVERY - self.crew.clock.monotonic()
        if left <= 0:
            self.memory.recorded = self.crew.clock.monotonic()
            recorder.record(self.crew)
            return seconds
        return left if seconds is None else min(seconds, left)

    def _alarm(self) -> None:
        """Say what newly stands in somebody's way, once for each state of the board and of the repository; and free
        what only waited for something that is there now."""
        for told in self.crew.pass_on_alerts():
            self.say(f"! {told}")
        now = (self.seen.revision, drift.stamp(self.crew, self.seen))
        if self.memory.alarmed == now:
            return
        for freed in draft_specs.reconsider(self.crew):
            self.say(f"{LIZA}  {freed}")
        self.memory.alarmed = now
        for alarm in raise_alarms(self.crew, self.seen):
            if alarm.kind not in TOLD_ALREADY:
                self.say(f"! {alarm.message}")

    def _hear_end(self) -> None:
        """Have the end of the living session, whoever started it, come as an event."""
        known = self.memory.session
        if known is None or known.heard:
            return
        known.heard = True
        run, path = known.run, self.crew.run_dir(known.run).path

        def wait() -> None:
            session_process.wait(path, LONG)
            self.events.put(SessionOver(run))

        threading.Thread(target=wait, name=f"wait-{run}", daemon=True).start()

    def _tell_adopted(self) -> None:
        known = self.memory.session
        if known is None or known.run == self.memory.own:
            return
        self.memory.own = known.run
        known.told_ready = self.crew.run_dir(known.run).is_ready()
        self._say(f"{known.run} adopted: its session lived on without a supervisor")

    def _tell_ready(self) -> None:
        """Before what the session did: said after its last word it would be news of the past."""
        known = self.memory.session
        if known is None or known.told_ready or known.run != self.memory.own:
            return
        if known.word is not None:
            known.told_ready = True
        elif self.crew.run_dir(known.run).is_ready():
            known.told_ready = True
            self._say(f"{known.run} ready after {self.crew.clock.monotonic() - known.started:.1f} s")

    def _wait(self, seconds: float | None) -> None:
        """Wait for an event that may change the decision. Output of the living session is read here as it grows, and
        ends the wait only where it says something new of the model."""
        clock, poll = self.crew.clock, float(self.crew.board.read().config.poll_interval)
        end = clock.monotonic() + (poll if seconds is None else min(seconds, poll))
        read_at = self._next_reading()
        while (now := clock.monotonic()) < end:
            if now >= read_at:
                if self._hears_news(now):
                    return
                read_at = self._next_reading()
            try:
                event = self.events.get(timeout=max(0.0, min(end, read_at) - now))
            except queue.Empty:
                continue
            if not self._is_output(event):
                self._take(event)
                return
            read_at = min(read_at, clock.monotonic() + READ_EVERY)

    def _next_reading(self) -> float:
        """When to read again although no event came: nothing tells of a log that lies elsewhere."""
        known = self.memory.session
        has_log = known is not None and known.listener is not None and known.listener.has_log
        return self.crew.clock.monotonic() + READ_LOG_EVERY if has_log else float("inf")

    def _is_output(self, event: object) -> bool:
        """Whether an event only says that a session wrote."""
        return isinstance(event, events.FileChanged) and event.path.parent not in self.listened

    def _hears_news(self, steady: float) -> bool:
        """Whether the session's output says something of its model that has to be acted on."""
        known = self.memory.session
        listener = known.listener if known is not None else None
        return listener is not None and listener.listen(steady, self.crew.clock.now().astimezone())

    def _follow_output(self) -> None:
        """Watch the output of the living session, and that of no other."""
        known = self.memory.session
        run = known.run if known is not None else None
        if run == self.followed:
            return
        if self.followed is not None:
            self.watch.no_more(self.crew.run_dir(self.followed).path)
        if run is not None:
            directory = self.crew.run_dir(run)
            self.watch.also(directory.path)
            # What was written before that is read as well.
            self.events.put(events.FileChanged(directory.output))
        self.followed = run

    def _take_events(self) -> None:
        """Everything that came meanwhile; one look answers all of it."""
        while True:
            try:
                self._take(self.events.get_nowait())
            except queue.Empty:
                return

    def _take(self, event: object) -> None:
        if isinstance(event, StopRequest):
            self.memory.leaving, self.memory.firm = True, event.firm or self.memory.firm

    def _say(self, text: str) -> None:
        if text != self.memory.last_said:
            self.memory.last_said = text
            self.say(text)


def _said_of(error: Exception) -> str:
    """What failed, as a line. A refusal is no alarm: another was quicker, or the board moved on since it was read."""
    if isinstance(error, Refused):
        return error.message
    return f"! {error}" + (f" (next: {error.hint})" if isinstance(error, LizaError) and error.hint else "")
