"""The loop of one supervisor: gather facts, decide, act, wait for an event. The rules: `rules.sessions.decide`."""

from __future__ import annotations

import contextlib
import queue
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from liza.alarms import notices
from liza.alarms.alarm_log import check_alarms
from liza.alarms.rules.alarm_checks import BY_HAND_HINT, restart_hint
from liza.board.events import FileChanged, WatchLost
from liza.briefs.brief_writer import CONTINUED_TOPICS
from liza.crew import recorder
from liza.crew.crew import Crew
from liza.git.git_config import git_dirs
from liza.landing.branch_backup import BranchPusher
from liza.model.backoff import ClockWatch, backoff
from liza.model.derived import held_tasks
from liza.model.errors import HostFenced, LizaError, Refused, SupervisedElsewhere, TakenMeanwhile
from liza.model.model import State
from liza.model.narration import LIZA, Detail, find_news
from liza.model.value_classes import Value
from liza.programs.presets.preset import Preset
from liza.programs.rules import model_silence
from liza.programs.session import run_directory, session_process
from liza.recovery.run_cleanup import end_orphan_sessions
from liza.supervisor.action_runner import ActionRunner
from liza.supervisor.launch import Launcher
from liza.supervisor.memory import LoopMemory, Memory
from liza.supervisor.repository_location import RepositoryLocation
from liza.supervisor.rules import actions
from liza.supervisor.rules.decide import decide
from liza.supervisor.situation import gather_situation
from liza.system import file_growth
from liza.tasks import claim, task_branches
from liza.tasks.rules.up_command import another_model_command
from liza.text.quoting import quote_line
from liza.text.redaction import redact
from liza.usage import costs
from liza.usage.meter import MeterThread

FIRST_RETRY_DELAY = 1.0  # seconds, doubled after each failure in a row
MAX_RETRY_DELAY = 30.0  # seconds
NEXT_TRY_TIME = 5.0  # seconds that a try may take before `status` forgets why the last one failed
RECORD_RETRY_DELAY = 2.0  # seconds to the next look at revisions that another supervisor is recording
NOTICE_START_INTERVAL = 10.0  # seconds between two starts of the process that sends notices
MAX_EXIT_TRIES = 3  # failed passes in a row while leaving
NARRATED_KINDS = ("blocked", "budget_used", "integration_failed")
MAX_EVIDENCE = 100  # bytes
LOG_READ_INTERVAL = 2.0  # seconds between two reads of a log that gives no file events
OUTPUT_READ_INTERVAL = 0.25  # seconds: a program that streams its answer writes many times per second
MAX_POLL_SECONDS = 1e6  # seconds: poll(2) takes its timeout as an int of milliseconds


class StopRequest(Value):
    """Event of a signal: stop after the current session is ended properly, or at once with ``force``."""

    force: bool


class RetireRequest(Value):
    """Event of SIGUSR1: exit as soon as the agent holds no work."""


class SessionOver(Value):
    """Event: the session of ``run`` has ended."""

    run: str


class Supervisor:
    """The supervisor of one agent. ``events`` receives file, child and signal events; ``notify`` prints each step."""

    def __init__(
        self,
        crew: Crew,
        agent: str,
        preset: Preset,
        environ: Mapping[str, str],
        notify: Callable[[str], None],
        *,
        terminal: bool = False,
        only: str | None = None,
    ) -> None:
        self.crew = crew
        self.agent = agent
        self.preset = preset
        self.notify = notify
        self.events: queue.Queue[Any] = queue.Queue()
        self.memory = Memory(ClockWatch(crew.clock.now(), crew.clock.monotonic()), only=only)
        self.past = LoopMemory(repository_changed_at=crew.clock.monotonic())
        end_turn = partial(task_branches.try_import, crew)
        self.make_meter = partial(MeterThread, crew, preset, environ=environ, post=self.events.put, end_turn=end_turn)
        launcher = Launcher(crew, preset, environ, self._notify_once, terminal=terminal)
        self.action_runner = ActionRunner(agent, launcher, self.memory, self.events.put, self._notify_once)
        self.last_state = crew.board.read()
        self.location = RepositoryLocation(crew, agent)
        self.hold_host: Callable[[], None] = lambda: None
        """Raises HostFenced while nothing may be done here, SupervisedElsewhere if another host has the agent."""
        self.environ = environ
        self.branch_pusher: BranchPusher | None = None
        self.notice_process = notices.NoticeProcess(crew.paths, environ)
        self.wake_up_path = file_growth.wake_directory(crew.paths).resolve()
        integration = f"refs/heads/{self.last_state.config.integration_branch}"
        refs_path = (git_dirs(crew.git)[1] / integration).parent.resolve()
        self.watched_directories = (self.wake_up_path, *([refs_path] if refs_path.is_dir() else ()))
        self.watch = crew.board.watch(self.watched_directories)

    def run(self) -> actions.Exit:
        """Run until there is a reason to exit. Raises LizaError for a failure that no retry can fix, Missing if the
        repository was moved.
        """
        self.watch.subscribe(self.events)
        try:
            while True:
                session = self.memory.session
                self.location.check_not_moved(session.run if session is not None else None, self._notify_once)
                exit_action = self._decide_and_act()
                if exit_action is not None:
                    return exit_action
        finally:
            self.watch.close()
            self.notice_process.stop()
            if self.branch_pusher is not None:
                self.branch_pusher.close()
            if self.memory.job is not None:
                self.memory.job.stop()

    def manual_start_command(self) -> str:
        """Return the command with which a person starts the program once, or an empty string if that is not needed."""
        if self.memory.unusable is None or not self.memory.unusable.needs_person:
            return ""
        words = shlex.join((self.preset.command, *self.preset.args))
        return redact(f"cd {shlex.quote(str(self.crew.paths.root))} && {words}")

    def login_step(self) -> str:
        """Return how a person logs in to the program whose login was refused; empty if that is not the cause."""
        step = self.preset.login.next
        if self.memory.unusable is None or not self.memory.unusable.login_refused or not step:
            return ""
        return f"{self.preset.name} is not logged in: {step}"

    def refused_model(self) -> str:
        """Return which model the program does not have, as a clause; empty if that is not the cause."""
        if self.memory.unusable is None or not self.memory.unusable.model_refused:
            return ""
        words = self.memory.unusable.reason.removeprefix(f"{model_silence.NO_MODEL}: ")
        return redact(f"{self.preset.name} has no model {self.preset.chosen_model or 'of this name'}: {words}")

    def cause_command(self) -> str:
        """Return the command that shows or resolves why the set-up failed; empty if it did not."""
        failed = self.memory.failed_set_up
        return redact(failed.next) if failed is not None else ""

    def _decide_and_act(self) -> actions.Exit | None:
        """Carry out one decision; return Exit if the supervisor has to exit.

        A failure is reported and retried with backoff: a full disk, a half-typed board or a git lock often passes. Exit
        only if the last steps before an exit fail more than MAX_EXIT_TRIES times.
        """
        try:
            self.hold_host()
            action = self._next_action()
            self.action_runner.pass_on_merge_turn(action)
            if isinstance(action, actions.Exit):
                if action.code != 0:
                    manual_command = self.manual_start_command()
                    why, hint = (
                        action.why + (BY_HAND_HINT if manual_command else ""),
                        restart_hint(self.last_state, self.agent, manual_command or self.cause_command()),
                    )
                    if self.refused_model():
                        why, hint = self.refused_model(), another_model_command(self.last_state, [self.agent])
                    line = f"supervisor_left  the supervisor of {self.agent} exited: {why}. Next: {hint}"
                    self.crew.append_alert_log([line])
                return action
            if isinstance(action, actions.Wait):
                self._do_idle_work(action.seconds)
            else:
                with contextlib.suppress(TakenMeanwhile):  # no failure: the next pass waits, and says for what
                    self.action_runner.carry_out(action)
            self._slow_repeated_action(action)
            self.past.failed_passes = 0
        except SupervisedElsewhere:
            raise
        except (LizaError, OSError) as error:
            if self.location.deleted() is not None:
                # The next pass raises: this error is only a consequence.
                return None
            self.past.failed_passes += 1
            self._notify_once(_describe_error(error))
            if self.memory.leaving and self.past.failed_passes > MAX_EXIT_TRIES:
                return actions.Exit(1, f"its last step failed: {error}")
            delay = backoff(self.past.failed_passes, FIRST_RETRY_DELAY, MAX_RETRY_DELAY)
            if isinstance(error, HostFenced) or not isinstance(error, Refused):
                self._record_failure(error, delay)
            self._wait_after_failure(delay)
        return None

    def _record_failure(self, error: Exception, delay: float) -> None:
        """Write for `status` why the next try waits, unless the agent waits longer for something else."""
        until = self.crew.clock.now() + timedelta(seconds=delay + NEXT_TRY_TIME)
        reason = f"its last step failed: {_describe_error(error).removeprefix('! ')}"
        failed = run_directory.AgentWait(reason=reason, until=until)
        with contextlib.suppress(LizaError, OSError):  # on a full disk the feed alone has the reason
            wait = run_directory.read_wait(self.crew.paths, self.agent)
            if wait is None or wait.until < until:
                run_directory.write_wait(self.crew.paths, self.agent, failed)

    def _wait_after_failure(self, seconds: float) -> None:
        """Wait for an event without reading the board: the board may be what failed.

        Only a request to leave ends the first half: what failed may itself have changed the board, and so may have the
        same failure of another agent.
        """
        was_leaving, now = self.memory.leaving, self.crew.clock.monotonic
        began = now()
        while (left := began + seconds - now()) > 0:
            with contextlib.suppress(queue.Empty):
                self._handle_event(self.events.get(timeout=left))
            if self.memory.leaving != was_leaving or now() - began > seconds / 2:
                return

    def _next_action(self) -> actions.Action:
        """Handle events, jobs and typing, report news, then decide on the present situation."""
        self._drain_events()
        self.action_runner.finish_job()
        self.action_runner.carrier.record_typing()
        state = self.crew.board.read()
        self._report_ready()
        self._narrate(state)
        for text in end_orphan_sessions(self.crew, state, self.agent):
            self._notify_once(text)
        self._undo_stale_reservations(state)
        return decide(
            gather_situation(
                self.crew,
                state,
                self.agent,
                self.memory,
                self.preset,
                self.make_meter,
                self.action_runner.carrier.can_type,
            )
        )

    def _undo_stale_reservations(self, state: State) -> None:
        """Undo reservations that a crashed claim left on the board: they keep the task from being claimed."""
        if not any(task.reservation for task in held_tasks(state)):
            return
        try:
            for repair in claim.undo_dead_reservations(self.crew, patience=0):
                self._notify_once(repair.message)
        except (LizaError, OSError) as error:
            # It stops the claim of one task, not this agent's work.
            self._notify_once(_describe_error(error))

    def _narrate(self, state: State) -> None:
        """Print what this agent did since the last pass, whichever of its processes did it."""
        before, self.last_state = self.last_state, state
        for news in find_news(before, state):
            if news.who == self.agent:
                text = news.text + self._cost_suffix(state, news.merged)
                line = f"{LIZA}  {text}" if news.liza else text
                self.notify(Detail(line) if news.is_detail else line)

    def _cost_suffix(self, state: State, merged: str | None) -> str:
        """Return the cost of a merged task as a suffix of its news line, or an empty string."""
        if merged is None:
            return ""
        try:
            return f"; {costs.task_cost_text(self.crew, state, merged)}"
        except LizaError as error:
            return f"; its cost is unknown: {error.message}"

    def _slow_repeated_action(self, action: actions.Action) -> None:
        """Wait after the same action on the same revision: it changed nothing, and a defect here must not use a whole
        core.
        """
        current = (action, self.last_state.revision)
        if not isinstance(action, actions.Wait) and current == self.past.last_action:
            self._wait_for_event(FIRST_RETRY_DELAY)
        self.past.last_action = current

    def _do_idle_work(self, seconds: float | None) -> None:
        """Do the periodic work, then wait for an event, at most ``seconds``."""
        self._report_adopted()
        self._watch_session_end()
        self._watch_output()
        self._report_ready()
        if self.memory.session is not None:
            self.action_runner.carrier.acknowledge_from_screen(self.memory.session.run)
            if self.memory.session.is_unlogged:
                self.action_runner.resume_terminal_log(self.memory.session.run)
        self._report_alarms()
        self._push_branches()
        self._wait_for_event(seconds)

    def _record_history(self) -> float:
        """Write the waiting revisions to the git history if a batch is due, and if no other supervisor does it.

        Return the monotonic time at which to look again.
        """
        remaining = recorder.seconds_to_batch(self.crew)
        if remaining == 0:
            recorder.record_history(self.crew, packed=True)
            remaining = recorder.seconds_to_batch(self.crew)
        if remaining is None:
            return float("inf")
        # Not at once: another supervisor may be writing a batch, or has begun one that is not marked yet.
        return self.crew.clock.monotonic() + max(remaining, RECORD_RETRY_DELAY)

    def _report_alarms(self) -> None:
        """Report each new alarm, and each draft that was released because its inputs are complete."""
        for alert in self.crew.log_board_alerts():
            self.notify(f"! {alert}")
        news = check_alarms(self.crew, self.last_state, self.past.repository_changed_at)
        delay = float("inf") if news.next_check is None else news.next_check
        self.past.alarms_due_at = self.crew.clock.monotonic() + delay
        for text in news.released:
            self.notify(f"{LIZA}  {text}")
        self._keep_notices()
        for alarm in news.alarms:
            if alarm.kind not in NARRATED_KINDS:
                self.notify(f"! {alarm.message}")

    def _keep_notices(self) -> None:
        """Have a process send alarms to the targets of config.notify, if no other supervisor has started it."""
        settings, now = self.last_state.config.notify, self.crew.clock.monotonic()
        if not settings.is_wanted or now < self.past.notices_due_at or notices.is_sent_for_board(self.crew.paths):
            return
        self.past.notices_due_at = now + NOTICE_START_INTERVAL
        self.notice_process.keep()
        labels = [target.label for target in notices.configured_plan(settings).targets]
        self._notify_once(f"alarms that need you are sent to {', '.join(labels)}")

    def _push_branches(self) -> None:
        """Start a push of the branches of tasks if one is due. A failure concerns no task: it is only reported."""
        if self.branch_pusher is None:
            if self.last_state.config.push != "auto":
                return

            self.branch_pusher = BranchPusher(self.crew, self.environ)
        try:
            self.branch_pusher.look(self.last_state)
        except (LizaError, OSError) as error:
            self._notify_once(_describe_error(error))

    def _watch_session_end(self) -> None:
        """Post SessionOver when the living session ends, also if another supervisor started it."""
        session = self.memory.session
        if session is None or session.run == self.past.end_watched_run:
            return
        self.past.end_watched_run = session.run
        run, path = session.run, self.crew.run_dir(session.run).path

        def wait() -> None:
            session_process.wait_for_end(path, MAX_POLL_SECONDS)
            self.events.put(SessionOver(run))

        threading.Thread(target=wait, name=f"wait-{run}", daemon=True).start()

    def _report_adopted(self) -> None:
        """Report a living session that another supervisor started."""
        session = self.memory.session
        if session is None or session.run == self.memory.own_run:
            return
        self.memory.own_run = session.run
        if self.crew.run_dir(session.run).is_ready():
            self.past.ready_run = session.run
        self._notify_once(f"{session.run} adopted: its session kept running without a supervisor")

    def _report_ready(self) -> None:
        """Report once that the session is ready, and by which evidence. Runs before `_narrate`, so it precedes the
        session's own news. What its screen and its process show is reported apart: the program has not said it."""
        session = self.memory.session
        if session is None or session.run == self.past.ready_run or session.run != self.memory.own_run:
            return
        if session.times.closing_command_at is not None:
            self.past.ready_run = session.run
            return
        seconds = max(0.0, self.crew.clock.monotonic() - session.times.started)
        sentinel = self.crew.run_dir(session.run).read_sentinel()
        if sentinel is not None:
            self.past.ready_run = session.run
            now, written = time.time(), self.crew.run_dir(session.run).ready_time()
            passed = 0.0 if written is None else max(0.0, now - written)
            # An agent can write the record.
            evidence = quote_line(sentinel.evidence, MAX_EVIDENCE)
            waited = max(0.0, seconds - passed)
            suffix = self._topic_suffix(session.run)
            self._notify_once(Detail(f"{session.run} ready after {waited:.1f} s ({evidence}){suffix}"))
        elif session.ready_evidence is not None and session.run != self.past.waiting_run:
            self.past.waiting_run = session.run
            self._notify_once(Detail(f"{session.run}: {session.ready_evidence} after {seconds:.1f} s"))

    def _topic_suffix(self, run: str) -> str:
        """Return the end of a line: what the session continues, or that it is the first. Empty for the usual start."""
        with contextlib.suppress(LizaError, OSError):
            topic = self.crew.run_dir(run).read_topic() or ""
            return f", {topic}" if topic.partition(":")[0] in CONTINUED_TOPICS else ""
        return ""

    def _wait_for_event(self, seconds: float | None) -> None:
        """Wait for an event that may change the decision, at most ``seconds`` or config.poll_interval.

        Output of the living session is read here as it grows. It ends the wait only if it says something new about the
        model.
        """
        clock, poll = self.crew.clock, float(self.last_state.config.poll_interval)
        end = clock.monotonic() + (poll if seconds is None else min(seconds, poll))
        read_at, record_at = self._next_read_time(), self._record_history()
        while (now := clock.monotonic()) < end:
            if now >= read_at:
                # A hook, or a runtime, writes the sentinel without a wake-up.
                self._report_ready()
                if self._has_model_news(now):
                    return
                read_at = self._next_read_time()
            if now >= record_at:
                record_at = self._record_history()
            if now >= self.past.alarms_due_at:
                self._report_alarms()
            try:
                first = min(end, read_at, record_at, self.past.alarms_due_at)
                event = self.events.get(timeout=max(0.0, first - now))
            except queue.Empty:
                continue
            if not self._is_output_event(event):
                self._handle_event(event)
                return
            read_at = min(read_at, clock.monotonic() + OUTPUT_READ_INTERVAL)

    def _next_read_time(self) -> float:
        """Return when to read the output without an event: a log outside the watched directories gives no event."""
        session = self.memory.session
        has_log = session is not None and session.listener is not None and session.listener.has_log
        return self.crew.clock.monotonic() + LOG_READ_INTERVAL if has_log else float("inf")

    def _is_output_event(self, event: object) -> bool:
        """Whether the event only says that a session wrote output."""
        return isinstance(event, FileChanged) and event.path.parent not in self.watched_directories

    def _has_model_news(self, monotonic_time: float) -> bool:
        """Whether the session's output says something about its model that needs a decision."""
        session = self.memory.session
        listener = session.listener if session is not None else None
        return listener is not None and listener.read_new(monotonic_time, self.crew.clock.now().astimezone())

    def _watch_output(self) -> None:
        """Watch the output directory of the living session, and no other."""
        session = self.memory.session
        run = session.run if session is not None else None
        if run == self.past.output_run:
            return
        if self.past.output_run is not None:
            self.watch.remove_directory(self.crew.run_dir(self.past.output_run).path)
        if run is not None:
            directory = self.crew.run_dir(run)
            self.watch.add_directory(directory.path)
            # Read also what was written before the watch was added.
            self.events.put(FileChanged(directory.output_path))
        self.past.output_run = run

    def _drain_events(self) -> None:
        """Handle all queued events: the next pass reads everything anyway."""
        while True:
            try:
                self._handle_event(self.events.get_nowait())
            except queue.Empty:
                return

    def _handle_event(self, event: object) -> None:
        if isinstance(event, StopRequest):
            self.memory.leaving, self.memory.force = True, event.force or self.memory.force
        if isinstance(event, RetireRequest):
            self.memory.retiring = True
        if isinstance(event, WatchLost) or (
            isinstance(event, FileChanged) and event.path.parent in self.watched_directories[1:]
        ):
            self.past.repository_changed_at = self.crew.clock.monotonic()

    def _notify_once(self, text: str) -> None:
        if text != self.past.last_notice:
            self.past.last_notice = text
            self.notify(text)


def _describe_error(error: Exception) -> str:
    """Return the error as one line.

    A Refused gets no alarm mark: another process was faster, or the board changed since it was read.
    """
    if isinstance(error, Refused):
        return error.message
    return f"! {error}" + (f" (next: {error.hint})" if isinstance(error, LizaError) and error.hint else "")
