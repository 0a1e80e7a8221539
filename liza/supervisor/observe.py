"""What can be seen of an agent's session from outside: whether it lives, moves, answers, and can be reached."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from liza.crew import run_state
from liza.crew.crew import Crew
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.programs.session.failure_watch import FailureWatch
from liza.programs.session.run_directory import RunDir, RunRecord, list_runs
from liza.programs.terminal import idle_detection, readiness, screens, tmux
from liza.programs.terminal.readiness import NotReady, NotReadyReason, ReadinessFacts, Ready, StillStarting
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.paths import run_number
from liza.rules.sessions.decide import SessionFacts, SessionState, find_current_work
from liza.rules.sessions.loop_detection import Stuck
from liza.rules.sessions.model_silence import SILENT, ModelSilence
from liza.supervisor.memory import Memory, SessionMemory
from liza.supervisor.metering import MeterThread
from liza.system import processes

CLOSING_EVENTS = ("submit", "submit again", "block", "handoff", "approve", "reject", "deadlock", "release review")
PERSON_NEEDED = (NotReadyReason.LOGIN, NotReadyReason.NEVER_STARTED)
QUESTION_DELAY = 3.0  # seconds that a question stands unchanged before it is taken for one that waits for a person


def find_unconcluded_run(crew: Crew, state: State, agent: str) -> RunDir | None:
    """The agent's newest run whose end was not settled; None when every one was.

    A session that lives counts whatever lies beside it, and a directory of a run that nobody took counts for nothing:
    agents can write there.
    """
    known = state.agents.get(agent)
    for run in reversed(list_runs(crew.paths, agent)):
        directory = crew.run_dir(run)
        if run_state.is_session_living(directory):
            return directory
        if known is None or (run_number(run, agent) or 0) <= known.runs:
            return None if directory.is_concluded() else directory
    return None


def trusted_record(crew: Crew, state: State, directory: RunDir) -> RunRecord | None:
    """What a run is for: by the board while the run holds something there, for its own record lies where an agent can
    write. None where nobody knows."""
    try:
        found = directory.read_record()
    except LizaError:
        found = None
    held = find_current_work(state, directory.agent)
    if held is None or held.run != directory.run:
        return found
    task = state.task(held.task) if held.task else None
    slot = task.worktree if task is not None and held.kind == "work" else directory.agent
    known = found or RunRecord(agent=directory.agent, run=directory.run, kind=held.kind, started=crew.clock.now())
    place = str(crew.paths.slot(slot)) if slot else ""
    return replace(known, kind=held.kind, task=held.task, worktree=place)


def has_closing_event(state: State, run: str) -> bool:
    """Whether the board says that this run has said its last word: its verb is there before its word is."""
    if any(note.event == run for note in state.goal.alignment_history):
        return True
    return any(event.run == run and event.event in CLOSING_EVENTS for task in state.tasks for event in task.history)


@dataclass(frozen=True)
class SessionObserver:
    """One look, at ``steady`` of the clock that stands still in sleep; what has to be compared is in ``memory``."""

    crew: Crew
    state: State
    preset: Preset
    memory: Memory
    monotonic_time: float
    now: datetime

    @property
    def ready_timeout(self) -> float:
        """Seconds within which a session has to show that it has read its brief."""
        return float(self.state.config.ready_timeout or self.preset.ready_timeout)

    def observe(self, agent: str) -> SessionFacts | None:
        """The agent's newest session that is not settled. Raises LizaError where a file cannot be read."""
        directory = find_unconcluded_run(self.crew, self.state, agent)
        held = find_current_work(self.state, agent)
        if directory is None or not directory.exists():
            never = held is not None and not self.crew.run_dir(held.run).exists()
            self.memory.forget_session()
            return SessionFacts(run=held.run, state=SessionState.NEVER) if held and never else None
        found = session_process.read_state(directory.path)
        if isinstance(found, session_process.NoSession):
            # The directory was made and the program was not started: the supervisor died in between.
            owned = held is not None and held.run == directory.run
            return SessionFacts(run=directory.run, state=SessionState.NEVER if owned else SessionState.OVER)
        if not isinstance(found, session_process.RunningSession | session_process.ShimStarting):
            return SessionFacts(run=directory.run, state=SessionState.OVER)
        return self._observe_living(directory, found)

    def _observe_living(
        self, directory: RunDir, found: session_process.RunningSession | session_process.ShimStarting
    ) -> SessionFacts:
        known = self.memory.session
        if known is None or known.run != directory.run:
            started = self.monotonic_time - _session_age(found, self.now)
            now = self.monotonic_time
            self.memory.forget_session()
            known = SessionMemory(directory.run, started=started, last_activity=now, last_heartbeat=now, first_seen=now)
            self.memory.session = known
        stuck = self._check_progress(directory, known)
        self._check_activity(directory, known, found)
        if known.closing_command_at is None and (
            directory.closing_code() is not None or has_closing_event(self.state, directory.run)
        ):
            known.closing_command_at = self.monotonic_time
        since_start = self.monotonic_time - known.started - known.question_seconds
        pane = tmux.find_pane(self.crew.paths.root, directory.run)
        self._read_output(directory, known, found)
        seen = readiness.gather_facts(directory, self.preset, since_start, self.ready_timeout, pane)
        if not isinstance(seen.state, session_process.RunningSession | session_process.ShimStarting):
            # It ended between the two looks: what that means is one question, and is answered in one place.
            return SessionFacts(run=directory.run, state=SessionState.OVER)
        known.is_unlogged = pane is not None and seen.screen is not None and seen.screen.is_alive and not pane.is_piped
        stands = readiness.classify_readiness(dataclasses.replace(seen, has_asked=self._has_asked(known, seen)))
        question = self._find_question(known, seen, stands)
        if question is not None:
            known.question_since = self.monotonic_time if known.question_since is None else known.question_since
            since_start -= self.monotonic_time - known.question_since
        elif known.question_since is not None:
            known.question_seconds += self.monotonic_time - known.question_since
            since_start -= self.monotonic_time - known.question_since
            known.question_since = None
        return SessionFacts(
            run=directory.run,
            state=SessionState.LIVING,
            ready=isinstance(stands, Ready),
            never_ready=stands.reason
            if isinstance(stands, NotReady) and stands.kind is not NotReadyReason.DIALOG
            else None,
            needs_person=isinstance(stands, NotReady) and stands.kind in PERSON_NEEDED,
            has_terminal=pane is not None,
            silence=None if question is not None else self._find_model_silence(known, since_start),
            reported_silence=_reported_silence(directory),
            idle=0.0 if question is not None else self._idle_seconds(directory, known, seen),
            reminders=known.reminders,
            question=question,
            reported_question=directory.read_question(),
            stuck=stuck,
            warned=known.warned,
            since_start=since_start,
            since_activity=self.monotonic_time - known.last_activity,
            since_closing_command=None
            if known.closing_command_at is None
            else self.monotonic_time - known.closing_command_at,
            is_turn_over=pane is not None and known.closing_command_at is not None and _is_waiting(directory, seen),
            since_heartbeat=self.monotonic_time - known.last_heartbeat,
        )

    def _check_progress(self, directory: RunDir, known: SessionMemory) -> Stuck | None:
        """Whether it makes no progress, as measured; who is being measured for the first time is not asked yet."""
        if known.meter_thread is None:
            record = trusted_record(self.crew, self.state, directory)
            if record is None:
                return None
            memory = self.memory
            known.meter_thread = MeterThread(self.crew, self.preset, directory, record, memory.environ, memory.post)
        known.meter_thread.configure(self.state.config)
        known.meter_thread.board_changes = _board_changes(self.state, directory.run)
        known.meter_thread.start()
        if known.meter_thread.stuck is None:
            known.warned = False
        return known.meter_thread.stuck

    def _idle_seconds(self, directory: RunDir, known: SessionMemory, seen: ReadinessFacts) -> float:
        """How long it has waited at its terminal, by its own hooks where they speak: many show where one types all
        the time, so a prompt is no sign of it."""
        begun = seen.sentinel is not None and known.closing_command_at is None
        if not begun or not _is_waiting(directory, seen):
            known.idle_since = None
        elif known.idle_since is None:
            known.idle_since = self.monotonic_time
        return 0.0 if known.idle_since is None else self.monotonic_time - known.idle_since

    def _find_question(
        self, known: SessionMemory, seen: ReadinessFacts, stands: Ready | StillStarting | NotReady
    ) -> str | None:
        """What its screen has asked a person for a while, whatever the program and however far it is: who sits down at
        the terminal answers it, and the session goes on."""
        screen = seen.screen
        if screen is None or known.closing_command_at is not None:
            return None
        before = isinstance(stands, NotReady) and stands.kind is NotReadyReason.DIALOG
        if not before and (seen.sentinel is None or (screen.seconds_since_change or 0.0) < QUESTION_DELAY):
            return None
        return screens.find_question(screen, self.preset.ready_prompt, self.preset.dialogs)

    def has_terminal(self, directory: RunDir) -> bool:
        """Whether the session has a terminal, still. Raises LizaError."""
        return tmux.find_pane(self.crew.paths.root, directory.run) is not None

    def _check_activity(
        self,
        directory: RunDir,
        known: SessionMemory,
        found: session_process.RunningSession | session_process.ShimStarting,
    ) -> None:
        """Output, CPU time, the worktree's index, the agent's own heartbeat: any change vouches for the agent.

        Its model answers where something happens that needs one.
        """
        config = self.state.config
        every = min(config.heartbeat_interval, config.hung_after / 4, config.answer_timeout / 4)
        if known.activity_fingerprint and self.monotonic_time - known.activity_checked_at < every:
            return
        signs = self._model_activity(directory)
        if signs != known.model_fingerprint and (known.model_fingerprint or any(directory.read_activity())):
            known.model_answered_at = self.monotonic_time
        known.model_fingerprint = signs
        traces = (
            *signs,
            directory.last_output_time(),
            _cpu_ticks(found) if isinstance(found, session_process.RunningSession) else 0,
        )
        known.activity_checked_at = self.monotonic_time
        if traces != known.activity_fingerprint:
            known.activity_fingerprint, known.last_activity = traces, self.monotonic_time

    def _model_activity(self, directory: RunDir) -> tuple[object, ...]:
        agent, record = self.state.agents.get(directory.agent), trusted_record(self.crew, self.state, directory)
        return (
            _newest_mtime(Path(record.worktree)) if record and record.worktree else None,
            agent.context_percent if agent else None,
            directory.read_activity(),
        )

    def _read_output(
        self,
        directory: RunDir,
        known: SessionMemory,
        found: session_process.RunningSession | session_process.ShimStarting,
    ) -> None:
        """Read what its program said of its model since the last look."""
        if known.listener is None:
            shim = found.shim if isinstance(found, session_process.RunningSession) else None

            def is_own(pid: int) -> bool:
                return shim is not None and pid in processes.find_descendants(shim)

            known.listener = FailureWatch(self.preset, directory.output_path, os.environ, is_own)
        known.listener.read_new(self.monotonic_time, self.now.astimezone())
        if known.listener.has_answered:
            known.model_answered_at, known.listener.has_answered = self.monotonic_time, False

    def _has_asked(self, known: SessionMemory, seen: ReadinessFacts) -> bool:
        """Whether its program has asked its model: it says that this fails; or it got its task with its start, prints,
        and would print an answer, so that nothing but an answer is missing."""
        if known.listener is not None and known.listener.failure is not None:
            return True
        return seen.screen is None and bool(self.preset.answers and seen.tail.strip())

    def _find_model_silence(self, known: SessionMemory, since_start: float) -> ModelSilence | None:
        """Why its model gives no answer; None while it does."""
        said, since = (known.listener.failure, known.listener.failing_since) if known.listener else (None, None)
        if said is not None and since is not None:
            return ModelSilence(
                said.kind, self.monotonic_time - since, said.message, said.until, said.retried, said.count
            )
        if known.model_answered_at is not None:
            return None
        # What it said before this supervisor looked for the first time is not known.
        return ModelSilence(SILENT, min(since_start, self.monotonic_time - known.first_seen))


def _reported_silence(directory: RunDir) -> tuple[str, str] | None:
    """What a person was told of its model; nothing where that cannot be read, so that it is told again."""
    try:
        note = directory.read_model_note()
    except LizaError:
        return None
    return None if note is None else (note.kind, note.words)


def _is_waiting(directory: RunDir, seen: ReadinessFacts) -> bool:
    """Whether a program waits at its terminal: its turn is over, where its hooks speak; else by its process."""
    if seen.screen is None:
        return False
    turn = directory.read_turn()
    return turn.phase == "idle" if turn else seen.screen.idle_confidence > idle_detection.IDLE_THRESHOLD


def _board_changes(state: State, run: str) -> tuple[int, int]:
    """What a run changed on the board besides its own task: a planner adds tasks, and changes no worktree."""
    return len(state.tasks), sum(event.run == run for task in state.tasks for event in task.history)


def _session_age(found: session_process.RunningSession | session_process.ShimStarting, now: datetime) -> float:
    """How long a session has run that was found running: the clock may have been set since it began."""
    if isinstance(found, session_process.ShimStarting):
        return 0.0
    age = processes.process_age(found.child)
    return max(0.0, (now - found.time).total_seconds()) if age is None else age


def _cpu_ticks(living: session_process.RunningSession) -> int:
    """CPU time of the program and all below it, in clock ticks; 0 where the system does not tell."""
    total = 0
    for pid in processes.find_descendants(living.shim):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total


def _newest_mtime(worktree: Path) -> float | None:
    try:
        return max(
            worktree.stat().st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(worktree))
        )
    except (OSError, TypeError):
        return None
