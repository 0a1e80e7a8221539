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
from liza.crew.recovery.orphan_sessions import end_orphan_sessions
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.repo import reflogs
from liza.rules.errors import LizaError, Refused
from liza.rules.model import State
from liza.rules.redaction import redact
from liza.rules.reports.alarms import BY_HAND_HINT, restart_hint
from liza.rules.reports.narration import LIZA, find_news
from liza.rules.sessions import actions
from liza.rules.sessions.decide import decide
from liza.supervisor.action_runner import ActionRunner
from liza.supervisor.alarm_log import log_new_alarms
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import Memory
from liza.supervisor.repository_location import RepositoryLocation
from liza.supervisor.situation import gather_situation

FIRST_RETRY_DELAY = 1.0
MAX_RETRY_DELAY = 30.0
RECORD_INTERVAL = 2.0  # seconds
MAX_EXIT_TRIES = 3
NARRATED_KINDS = ("blocked", "integration_failed")
LOG_READ_INTERVAL = 2.0  # seconds
OUTPUT_READ_INTERVAL = 0.25  # seconds: a program that streams its answer writes many times a second
MAX_POLL_SECONDS = 1e6  # seconds, as far as poll(2) can count


@dataclass(frozen=True)
class StopRequest:
    """The event of a signal: stop politely, or, said twice, firmly."""

    force: bool


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
        self.notify = say
        self.events: queue.Queue[Any] = queue.Queue()
        steady = crew.clock.monotonic()
        self.memory = Memory(wall_time=crew.clock.now(), monotonic_time=steady, environ=environ, post=self.events.put)
        launcher = Launcher(crew, preset, environ, self._notify_once, terminal=terminal)
        self.action_runner = ActionRunner(agent, launcher, self.memory, self.events.put, self._notify_once)
        self.last_state = crew.board.read()
        self.location = RepositoryLocation(crew, agent)
        self.watched_run: str | None = None
        """The run whose output is watched."""
        self.wake_up_path = wake_up.wake_directory(crew.paths).resolve()
        self.watched_directories = (self.wake_up_path, *reflogs.log_directories((crew.paths.root / ".git").resolve()))
        self.watch = events.watch(crew.paths, self.watched_directories)

    def run(self) -> actions.Exit:
        """Until there is a reason to leave. Raises LizaError for what no retry can mend, Missing if the repository was
        moved."""
        self.watch.subscribe(self.events)
        try:
            while True:
                known = self.memory.session
                self.location.check_not_moved(known.run if known is not None else None, self._notify_once)
                left = self._decide_and_act()
                if left is not None:
                    return left
        finally:
            self.watch.close()
            if self.memory.job is not None:
                self.memory.job.stop()

    def manual_start_command(self) -> str:
        """The command that starts its program as a person does, where it waits for one; nothing else."""
        if not self.memory.needs_person:
            return ""
        words = shlex.join((self.preset.command, *self.preset.args))
        return redact(f"cd {shlex.quote(str(self.crew.paths.root))} && {words}")

    def _decide_and_act(self) -> actions.Exit | None:
        """One decision, carried out. What fails now may well go next time: a full disk, a file half typed, a git lock;
        it is said, and tried again ever more rarely, for a supervisor that dies of it helps nobody."""
        try:
            action = self._next_action()
            if isinstance(action, actions.Exit):
                if action.code != 0:
                    by_hand = self.manual_start_command()
                    why, step = (
                        action.why + (BY_HAND_HINT if by_hand else ""),
                        restart_hint(self.last_state, self.agent, by_hand),
                    )
                    line = f"supervisor_left  the supervisor of {self.agent} left: {why}. Next: {step}"
                    self.crew.append_alert_log([line])
                return action
            if isinstance(action, actions.Wait):
                self._do_idle_work(action.seconds)
            else:
                self.action_runner.carry_out(action)
            self._slow_repeated_action(action)
            self.memory.failed_turns = 0
        except (LizaError, OSError) as error:
            self.memory.failed_turns += 1
            self._notify_once(_describe_error(error))
            if self.memory.leaving and self.memory.failed_turns > MAX_EXIT_TRIES:
                return actions.Exit(1, f"its last step failed: {error}")
            self._wait_after_failure(min(FIRST_RETRY_DELAY * 2 ** (self.memory.failed_turns - 1), MAX_RETRY_DELAY))
        return None

    def _wait_after_failure(self, seconds: float) -> None:
        """Wait for an event without asking the board, which may be what failed."""
        with contextlib.suppress(queue.Empty):
            self._handle_event(self.events.get(timeout=seconds))

    def _next_action(self) -> actions.Action:
        self._drain_events()
        self.action_runner.finish_job()
        self.action_runner.carrier.record_typing()
        state = self.crew.board.read()
        self._report_ready()
        self._narrate(state)
        for ended in end_orphan_sessions(self.crew, state, self.agent):
            self._notify_once(ended)
        self._undo_stale_reservations(state)
        return decide(
            gather_situation(self.crew, self.agent, self.memory, self.preset, self.action_runner.carrier.can_type)
        )

    def _undo_stale_reservations(self, state: State) -> None:
        """Settle what a claim left on the board that did not end: nobody can take such a task."""
        if not any(task.reservation for task in state.tasks):
            return
        try:
            for settled in recover.undo_dead_reservations(self.crew, patience=0):
                self._notify_once(settled.message)
        except (LizaError, OSError) as error:
            # It is in the way of one task, not of this agent's work.
            self._notify_once(_describe_error(error))

    def _narrate(self, state: State) -> None:
        """Tell what this agent did since the last look, whoever of its processes did it."""
        before, self.last_state = self.last_state, state
        for one in find_news(before, state):
            if one.who == self.agent:
                text = one.text + self._cost_suffix(state, one.merged)
                self.notify(f"{LIZA}  {text}" if one.liza else text)

    def _cost_suffix(self, state: State, merged: str | None) -> str:
        """What a merged task cost, behind the news of it."""
        if merged is None:
            return ""
        try:
            return f"; {usage_summary.task_cost_text(self.crew, state, merged)}"
        except LizaError as error:
            return f"; its cost is not known: {error.message}"

    def _slow_repeated_action(self, action: actions.Action) -> None:
        """The same action twice on the same revision has changed nothing: a mistake of ours must not burn a core."""
        now = (action, self.last_state.revision)
        if not isinstance(action, actions.Wait) and now == self.memory.last_action:
            self._wait_for_event(FIRST_RETRY_DELAY)
        self.memory.last_action = now

    def _do_idle_work(self, seconds: float | None) -> None:
        self._report_adopted()
        self._report_ready()
        self._watch_session_end()
        self._watch_output()
        if self.memory.session is not None:
            self.action_runner.carrier.acknowledge_from_screen(self.memory.session.run)
            if self.memory.session.is_unlogged:
                self.action_runner.resume_terminal_log(self.memory.session.run)
        self._report_alarms()
        self._wait_for_event(self._record_history(seconds))

    def _record_history(self, seconds: float | None) -> float | None:
        """Bring what was spooled into the history, in batches: a batch costs a few gits however small it is.

        How long to wait at the longest before the next one.
        """
        if not self.crew.board.spool.revisions():
            return seconds
        left = self.memory.recorded_at + RECORD_INTERVAL - self.crew.clock.monotonic()
        if left <= 0:
            self.memory.recorded_at = self.crew.clock.monotonic()
            recorder.record_history(self.crew)
            return seconds
        return left if seconds is None else min(seconds, left)

    def _report_alarms(self) -> None:
        """Say what newly stands in somebody's way, once for each state of the board and of the repository; and free
        what only waited for something that is there now."""
        for told in self.crew.log_board_alerts():
            self.notify(f"! {told}")
        now = (self.last_state.revision, drift.stamp_repository(self.crew, self.last_state))
        if self.memory.alarms_checked_for == now:
            return
        for freed in draft_specs.release_drafts(self.crew):
            self.notify(f"{LIZA}  {freed}")
        self.memory.alarms_checked_for = now
        for alarm in log_new_alarms(self.crew, self.last_state):
            if alarm.kind not in NARRATED_KINDS:
                self.notify(f"! {alarm.message}")

    def _watch_session_end(self) -> None:
        """Have the end of the living session, whoever started it, come as an event."""
        known = self.memory.session
        if known is None or known.is_end_watched:
            return
        known.is_end_watched = True
        run, path = known.run, self.crew.run_dir(known.run).path

        def wait() -> None:
            session_process.wait_for_end(path, MAX_POLL_SECONDS)
            self.events.put(SessionOver(run))

        threading.Thread(target=wait, name=f"wait-{run}", daemon=True).start()

    def _report_adopted(self) -> None:
        known = self.memory.session
        if known is None or known.run == self.memory.own_run:
            return
        self.memory.own_run = known.run
        known.is_ready_reported = self.crew.run_dir(known.run).is_ready()
        self._notify_once(f"{known.run} adopted: its session lived on without a supervisor")

    def _report_ready(self) -> None:
        """Before what the session did: said after its last word it would be news of the past."""
        known = self.memory.session
        if known is None or known.is_ready_reported or known.run != self.memory.own_run:
            return
        if known.closing_command_at is not None:
            known.is_ready_reported = True
        elif self.crew.run_dir(known.run).is_ready():
            known.is_ready_reported = True
            self._notify_once(f"{known.run} ready after {self.crew.clock.monotonic() - known.started:.1f} s")

    def _wait_for_event(self, seconds: float | None) -> None:
        """Wait for an event that may change the decision. Output of the living session is read here as it grows, and
        ends the wait only where it says something new of the model."""
        clock, poll = self.crew.clock, float(self.crew.board.read().config.poll_interval)
        end = clock.monotonic() + (poll if seconds is None else min(seconds, poll))
        read_at = self._next_read_time()
        while (now := clock.monotonic()) < end:
            if now >= read_at:
                if self._has_model_news(now):
                    return
                read_at = self._next_read_time()
            try:
                event = self.events.get(timeout=max(0.0, min(end, read_at) - now))
            except queue.Empty:
                continue
            if not self._is_output_event(event):
                self._handle_event(event)
                return
            read_at = min(read_at, clock.monotonic() + OUTPUT_READ_INTERVAL)

    def _next_read_time(self) -> float:
        """When to read again although no event came: nothing tells of a log that lies elsewhere."""
        known = self.memory.session
        has_log = known is not None and known.listener is not None and known.listener.has_log
        return self.crew.clock.monotonic() + LOG_READ_INTERVAL if has_log else float("inf")

    def _is_output_event(self, event: object) -> bool:
        """Whether an event only says that a session wrote."""
        return isinstance(event, events.FileChanged) and event.path.parent not in self.watched_directories

    def _has_model_news(self, steady: float) -> bool:
        """Whether the session's output says something of its model that has to be acted on."""
        known = self.memory.session
        listener = known.listener if known is not None else None
        return listener is not None and listener.read_new(steady, self.crew.clock.now().astimezone())

    def _watch_output(self) -> None:
        """Watch the output of the living session, and that of no other."""
        known = self.memory.session
        run = known.run if known is not None else None
        if run == self.watched_run:
            return
        if self.watched_run is not None:
            self.watch.remove_directory(self.crew.run_dir(self.watched_run).path)
        if run is not None:
            directory = self.crew.run_dir(run)
            self.watch.add_directory(directory.path)
            # What was written before that is read as well.
            self.events.put(events.FileChanged(directory.output_path))
        self.watched_run = run

    def _drain_events(self) -> None:
        """Everything that came meanwhile; one look answers all of it."""
        while True:
            try:
                self._handle_event(self.events.get_nowait())
            except queue.Empty:
                return

    def _handle_event(self, event: object) -> None:
        if isinstance(event, StopRequest):
            self.memory.leaving, self.memory.force = True, event.force or self.memory.force

    def _notify_once(self, text: str) -> None:
        if text != self.memory.last_notice:
            self.memory.last_notice = text
            self.notify(text)


def _describe_error(error: Exception) -> str:
    """What failed, as a line. A refusal is no alarm: another was quicker, or the board moved on since it was read."""
    if isinstance(error, Refused):
        return error.message
    return f"! {error}" + (f" (next: {error.hint})" if isinstance(error, LizaError) and error.hint else "")
