"""Observe an agent's session from outside: whether it lives, works, gets answers of its model, and can be reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from liza.crew.crew import Crew
from liza.model import session_ends
from liza.model.derived import find_current_work
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import run_number
from liza.model.session_ends import SilenceKind
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.hooks.hook_events import TurnPhase
from liza.programs.presets.preset import Preset
from liza.programs.rules.lifecycle_rules import WAITING_STATES
from liza.programs.rules.model_silence import ModelSilence
from liza.programs.session.failure_patterns import FailureWatch
from liza.programs.session.run_directory import RunDir, RunRecord, list_runs
from liza.programs.terminal import readiness, screens, tmux
from liza.programs.terminal.pane import Pane
from liza.programs.terminal.readiness import NotReady, NotReadyReason, ReadinessFacts, Ready, StillStarting
from liza.supervisor.memory import Memory, SessionMemory
from liza.supervisor.rules.session_facts import (
    ActivityWatch,
    ContextFacts,
    IdleFacts,
    LoopFacts,
    ModelFacts,
    QuestionFacts,
    SessionAges,
    SessionFacts,
    SessionState,
    SessionTimes,
    StartFacts,
    check_interval,
)
from liza.system import proc_stat, processes
from liza.usage import telemetry_log
from liza.usage.costs import trusted_record
from liza.usage.meter import MeterThread
from liza.usage.rules.loop_detection import Stuck
from liza.usage.run_account import session_environ

PERSON_NEEDED = (NotReadyReason.LOGIN, NotReadyReason.NEVER_STARTED)
MeterMaker = Callable[[RunDir, RunRecord], MeterThread]
"""Return a thread that measures the session of a run."""
QUESTION_DELAY = 3.0  # seconds without a change of the screen before a question counts as one for a person


class SessionObserver(Value):
    """One observation at ``monotonic_time``, a clock that does not advance while the machine sleeps.

    Values to compare with earlier observations are in ``memory``.
    """

    crew: Crew
    state: State
    preset: Preset
    memory: Memory
    make_meter: MeterMaker
    monotonic_time: float
    now: datetime

    @property
    def ready_timeout(self) -> float:
        """Seconds within which a session has to show that it has read its brief."""
        return float(self.state.config.ready_timeout or self.preset.ready_timeout)

    def observe(self, agent: str) -> SessionFacts | None:
        """Return facts of the agent's newest unconcluded session. Raises LizaError if a file cannot be read."""
        directory = find_unconcluded_run(self.crew, self.state, agent)
        work = find_current_work(self.state, agent)
        if directory is None or not directory.exists():
            is_unstarted = work is not None and not self.crew.run_dir(work.run).exists()
            self.memory.forget_session()
            return SessionFacts(run=work.run, state=SessionState.NEVER) if work and is_unstarted else None
        process_state = liveness.read_state(directory.path)
        if isinstance(process_state, liveness.NoSession):
            # The supervisor crashed after it made the directory and before it started the program.
            is_own = work is not None and work.run == directory.run
            return SessionFacts(run=directory.run, state=SessionState.NEVER if is_own else SessionState.OVER)
        if not isinstance(process_state, liveness.RunningSession | liveness.ShimStarting):
            return SessionFacts(run=directory.run, state=SessionState.OVER)
        return self._observe_living(directory, process_state)

    def _observe_living(
        self, directory: RunDir, process: liveness.RunningSession | liveness.ShimStarting
    ) -> SessionFacts:
        """Return facts of a living session, and update what this supervisor remembers of it."""
        memory, now = self._session_memory(directory, process), self.monotonic_time
        stuck = self._check_progress(directory, memory)
        self._check_activity(directory, memory, process)
        memory.times = memory.times.saw(is_closed=self._is_closed(directory, memory), now=now)
        pane = tmux.find_pane(self.crew.paths.root, directory.run)
        self._read_output(directory, memory, process)
        since_start = now - memory.times.started - memory.question.earlier_seconds
        facts = readiness.gather_facts(directory, self.preset, since_start, self.ready_timeout, pane)
        if not isinstance(facts.state, liveness.RunningSession | liveness.ShimStarting):
            # It ended between the two reads of its state: `conclude` classifies the end.
            return SessionFacts(run=directory.run, state=SessionState.OVER)
        memory.is_unlogged = _is_unlogged(pane, facts)
        ready = readiness.classify_readiness(replace(facts, has_asked=self._has_asked(memory, facts)))
        if isinstance(ready, Ready) and memory.ready_evidence is None:
            memory.ready_evidence = ready.evidence
        question = self._find_question(memory, facts, ready)
        memory.question = memory.question.saw(is_shown=question is not None, now=now)
        is_waiting = _is_waiting(directory, facts)
        if question is None:
            memory.idle = memory.idle.saw(is_waiting=is_waiting and _has_begun(memory, facts), now=now)
        # Time in which the program waits for a person does not count as running time.
        ages = self._session_ages(memory)
        silence = None if question is not None else self._find_model_silence(memory, ages.start)
        end_reported = self._since_reported_end(directory)
        return SessionFacts(
            directory.run,
            SessionState.LIVING,
            start=self._start_facts(ready),
            model=ModelFacts(silence, reported_silence(directory)),
            idle=self._idle_facts(memory, is_asking=question is not None),
            question=QuestionFacts(shown=question, reported=directory.read_question()),
            loop=LoopFacts(stuck, memory.warned),
            context=self._context_facts(memory),
            ages=ages,
            has_terminal=pane is not None,
            is_turn_over=ages.closing_command is not None and (is_waiting or end_reported is not None),
            end_reported=end_reported,
            next_check=memory.activity.seconds_to_check(now, self._check_interval),
        )

    def _context_facts(self, memory: SessionMemory) -> ContextFacts:
        """Return the use of the context window as it was last measured. A compaction makes it smaller."""
        usage = memory.meter_thread.latest.context_usage if memory.meter_thread is not None else None
        if usage is not None and usage <= self.state.config.context_handoff:
            memory.asked_handoff = False
        return ContextFacts(usage, memory.asked_handoff)

    def _idle_facts(self, memory: SessionMemory, *, is_asking: bool) -> IdleFacts:
        if is_asking:
            return IdleFacts(0.0, memory.idle.reminders)
        now = self.monotonic_time
        return IdleFacts(memory.idle.seconds(now), memory.idle.reminders, memory.idle.since is not None)

    def _session_ages(self, memory: SessionMemory) -> SessionAges:
        now = self.monotonic_time
        return SessionAges(
            start=now - memory.times.started - memory.question.seconds(now),
            activity=now - memory.activity.changed_at,
            heartbeat=now - memory.times.last_heartbeat,
            closing_command=memory.times.since_closing_command(now),
        )

    def _since_reported_end(self, directory: RunDir) -> float | None:
        """Return the seconds since the run's runtime reported its end; None if it did not."""
        turn = directory.read_turn()
        if turn is None or not turn.is_reported or turn.phase != TurnPhase.STOPPED:
            return None
        return max(0.0, (self.now - turn.time).total_seconds())

    def _is_closed(self, directory: RunDir, memory: SessionMemory) -> bool:
        """Whether the session has run its closing command."""
        return (
            memory.times.closing_command_at is not None
            or directory.closing_code() is not None
            or session_ends.has_closing_event(self.state, directory.run)
        )

    def _start_facts(self, ready: Ready | StillStarting | NotReady) -> StartFacts:
        """Return how far the start has come. A dialog does not end it: a person may answer."""
        is_failed = isinstance(ready, NotReady) and ready.kind is not NotReadyReason.DIALOG
        return StartFacts(
            is_ready=isinstance(ready, Ready),
            timeout=self.ready_timeout,
            never_ready=ready.reason if isinstance(ready, NotReady) and is_failed else None,
            needs_person=isinstance(ready, NotReady) and ready.kind in PERSON_NEEDED,
        )

    def _session_memory(
        self, directory: RunDir, process: liveness.RunningSession | liveness.ShimStarting
    ) -> SessionMemory:
        """Return the memory of this session; a new one if the supervisor has not observed it before."""
        memory = self.memory.session
        if memory is None or memory.run != directory.run:
            now = self.monotonic_time
            started = now - session_age(process, self.now)
            self.memory.forget_session()
            times = SessionTimes(started, first_seen=now, last_heartbeat=now)
            memory = SessionMemory(directory.run, times, ActivityWatch(changed_at=now))
            self.memory.session = memory
        return memory

    def _check_progress(self, directory: RunDir, session_memory: SessionMemory) -> Stuck | None:
        """Return the measured lack of progress, or None. The first call only starts the measurement."""
        if session_memory.meter_thread is None:
            record = trusted_record(self.crew, self.state, directory)
            if record is None:
                return None
            session_memory.meter_thread = self.make_meter(directory, record)
        session_memory.meter_thread.configure(self.state.config)
        # Changes of the board, not only of its tasks: a planner adds tasks and changes no worktree.
        session_memory.meter_thread.board_changes = (
            len(self.state.tasks) + self.state.archived.total,
            session_ends.count_events(self.state, directory.run),
        )
        session_memory.meter_thread.start()
        if session_memory.meter_thread.stuck is None:
            session_memory.warned = False
        return session_memory.meter_thread.stuck

    def _find_question(
        self, memory: SessionMemory, facts: ReadinessFacts, ready: Ready | StillStarting | NotReady
    ) -> str | None:
        """Return what the screen has asked a person for at least QUESTION_DELAY, or None.

        This applies to every program and phase: a person can attach and answer, and the session continues.
        """
        screen = facts.screen
        if screen is None or memory.times.closing_command_at is not None:
            return None
        is_dialog = isinstance(ready, NotReady) and ready.kind is NotReadyReason.DIALOG
        if not is_dialog and (facts.sentinel is None or (screen.seconds_since_change or 0.0) < QUESTION_DELAY):
            return None
        return screens.find_question(screen, self.preset.ready_prompt, self.preset.dialogs)

    def has_terminal(self, directory: RunDir) -> bool:
        """Whether the session still has a terminal. Raises LizaError."""
        return tmux.find_pane(self.crew.paths.root, directory.run) is not None

    def _check_activity(
        self,
        directory: RunDir,
        memory: SessionMemory,
        process_state: liveness.RunningSession | liveness.ShimStarting,
    ) -> None:
        """Compare output, CPU time, the worktree, the session's reports and its tokens with the last check.

        Any change is activity. A change that needs a model also shows that the model answers.
        """
        if not memory.activity.is_due(self.monotonic_time, self._check_interval):
            return
        measured = memory.meter_thread.latest if memory.meter_thread is not None else None
        telemetry_size = telemetry_log.size_of(directory.path)
        model_signs = (
            *model_activity(self.crew, self.state, directory),
            telemetry_size,
            None if measured is None else (measured.used, measured.progress.calls),
        )
        turn = directory.read_turn()
        has_answered = any(directory.read_activity()) or telemetry_size is not None or bool(turn and turn.turns)
        memory.answers = memory.answers.saw(model_signs, self.monotonic_time, is_first_answer=has_answered)
        used_cpu = cpu_seconds(process_state) if isinstance(process_state, liveness.RunningSession) else 0.0
        memory.activity = memory.activity.saw(
            (
                *model_signs,
                directory.last_output_time(),
                directory.last_report_time(),
                turn,
                session_ends.count_events(self.state, directory.run),
            ),
            self.monotonic_time,
            used_cpu,
        )

    @property
    def _check_interval(self) -> float:
        config = self.state.config
        return check_interval(config.hung_after, config.heartbeat_interval, config.answer_timeout)

    def _read_output(
        self,
        directory: RunDir,
        memory: SessionMemory,
        process_state: liveness.RunningSession | liveness.ShimStarting,
    ) -> None:
        """Read what the program's output says about its model since the last read."""
        if memory.listener is None:
            shim = process_state.shim if isinstance(process_state, liveness.RunningSession) else None

            record = directory.read_record()
            is_confined = record is not None and record.is_confined

            def is_own(pid: int) -> bool:
                # The log in a box is its session's only, and its pids are those inside.
                return is_confined or (shim is not None and pid in processes.find_descendants(shim))

            environ = session_environ(directory, self.preset, os.environ)
            memory.listener = FailureWatch(self.preset, directory.output_path, environ, is_own)
        memory.listener.read_new(self.monotonic_time, self.now.astimezone())
        if memory.listener.has_answered:
            memory.answers, memory.listener.has_answered = memory.answers.answered(self.monotonic_time), False

    def _has_asked(self, memory: SessionMemory, facts: ReadinessFacts) -> bool:
        """Whether the program has sent a request to its model.

        Either its output reports a failure of the model, or it got its task at its start, prints output, and would
        print an answer.
        """
        if memory.listener is not None and memory.listener.failure is not None:
            return True
        return facts.screen is None and bool(self.preset.answers and facts.tail.strip())

    def _find_model_silence(self, memory: SessionMemory, since_start: float) -> ModelSilence | None:
        """Return why the model gives no answer, or None while it answers."""
        failure, failing_since = (
            (memory.listener.failure, memory.listener.failing_since) if memory.listener else (None, None)
        )
        if failure is not None and failing_since is not None:
            return ModelSilence(
                failure.kind,
                self.monotonic_time - failing_since,
                failure.message,
                failure.until,
                failure.retried,
                failure.count,
            )
        if memory.answers.answered_at is not None:
            return None
        # Output from before this supervisor's first observation is unknown.
        return ModelSilence(SilenceKind.SILENT, min(since_start, self.monotonic_time - memory.times.first_seen))


def _is_unlogged(pane: Pane | None, facts: ReadinessFacts) -> bool:
    """Whether the session has a living terminal that is not logged."""
    return pane is not None and facts.screen is not None and facts.screen.is_alive and not pane.is_piped


def _has_begun(memory: SessionMemory, facts: ReadinessFacts) -> bool:
    """Whether the session has read its brief and has not run its closing command yet."""
    return facts.sentinel is not None and memory.times.closing_command_at is None


def _is_waiting(directory: RunDir, facts: ReadinessFacts) -> bool:
    """Whether the program waits for a prompt: by the reports of its runtime or its hooks, else by its process state.

    Without a terminal only the runtime's reports count: a headless program ends when its turn is over. Many programs
    show an input prompt all the time, so a prompt alone is no sign.
    """
    turn = directory.read_turn()
    if turn is not None and turn.is_reported:
        return turn.phase in WAITING_STATES
    if facts.screen is None:
        return False
    if turn is not None:
        return turn.phase == TurnPhase.IDLE
    return readiness.combine_confidence(facts.idle_signs, facts.now) > readiness.IDLE_THRESHOLD


def find_unconcluded_run(crew: Crew, state: State, agent: str) -> RunDir | None:
    """Return the agent's newest run that is not concluded, or None.

    A living session always counts. A run directory above the agent's run counter is ignored: agents can write there.
    """
    agent_record = state.agents.get(agent)
    for run in reversed(list_runs(crew.paths, agent)):
        directory = crew.run_dir(run)
        if liveness.is_session_living(directory):
            return directory
        if agent_record is None or (run_number(run, agent) or 0) <= agent_record.runs:
            return None if directory.is_concluded() else directory
    return None


def model_activity(crew: Crew, state: State, directory: RunDir) -> tuple[object, ...]:
    """Return signs of a working model: worktree changes, context use, `liza ready`, tool calls, the ends of turns."""
    turn = directory.read_turn()
    agent, record = state.agents.get(directory.agent), trusted_record(crew, state, directory)
    return (
        _newest_mtime(Path(record.worktree)) if record and record.worktree else None,
        agent.context_percent if agent else None,
        directory.read_activity(),
        0 if turn is None else turn.turns,
    )


def reported_silence(directory: RunDir) -> tuple[str, str] | None:
    """Return what was last reported about the model; None also if unreadable, so that it is reported again."""
    try:
        note = directory.read_model_note()
    except LizaError:
        return None
    return None if note is None else (note.kind, note.words)


def session_age(process_state: liveness.RunningSession | liveness.ShimStarting, now: datetime) -> float:
    """Return the age of a running session in seconds, by the process if possible: the clock may have been set."""
    if isinstance(process_state, liveness.ShimStarting):
        return 0.0
    age = processes.process_age(process_state.child)
    return max(0.0, (now - process_state.time).total_seconds()) if age is None else age


def cpu_seconds(session: liveness.RunningSession) -> float:
    """Return the CPU time of the session's processes, also of ended ones; 0 if the system does not tell.

    The shim is the subreaper of the session: it has the time of orphans that have ended.
    """
    total = 0
    for pid in (session.shim.pid, *processes.find_descendants(session.shim)):
        fields = proc_stat.read_stat(pid)
        if fields is not None:
            total += sum(int(fields[index]) for index in proc_stat.ALL_TICKS)
    return total / os.sysconf("SC_CLK_TCK")


def _newest_mtime(worktree: Path) -> float | None:
    try:
        return max(
            worktree.stat().st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(worktree))
        )
    except (OSError, TypeError):
        return None
