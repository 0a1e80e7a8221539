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
from liza.programs.session.failure_watch import Listener
from liza.programs.session.run_directory import RunDir, RunRecord, runs_of
from liza.programs.terminal import idle_detection, readiness, screens, tmux
from liza.programs.terminal.readiness import NotReady, NotReadyReason, ReadinessFacts, Ready, StillStarting
from liza.rules.errors import LizaError
from liza.rules.model import State
from liza.rules.paths import number_of
from liza.rules.sessions.decide import SessionFacts, SessionState, holding
from liza.rules.sessions.loop_detection import Stuck
from liza.rules.sessions.model_silence import SILENT, ModelSilence
from liza.supervisor.memory import Memory, SessionMemory
from liza.supervisor.metering import Metering
from liza.system import processes

LAST_WORDS = ("submit", "submit again", "block", "handoff", "approve", "reject", "deadlock", "release review")
HOPELESS = (NotReadyReason.LOGIN, NotReadyReason.NEVER_STARTED)
ASKS = 3.0  # seconds that a question stands unchanged before it is taken for one that waits for a person


def unsettled(crew: Crew, state: State, agent: str) -> RunDir | None:
    """The agent's newest run whose end was not settled; None when every one was.

    A session that lives counts whatever lies beside it, and a directory of a run that nobody took counts for nothing:
    agents can write there.
    """
    known = state.agents.get(agent)
    for run in reversed(runs_of(crew.paths, agent)):
        directory = crew.run_dir(run)
        if run_state.living(directory):
            return directory
        if known is None or (number_of(run, agent) or 0) <= known.runs:
            return None if directory.is_settled() else directory
    return None


def recorded(crew: Crew, state: State, directory: RunDir) -> RunRecord | None:
    """What a run is for: by the board while the run holds something there, for its own record lies where an agent can
    write. None where nobody knows."""
    try:
        found = directory.record()
    except LizaError:
        found = None
    held = holding(state, directory.agent)
    if held is None or held.run != directory.run:
        return found
    task = state.task(held.task) if held.task else None
    slot = task.worktree if task is not None and held.kind == "work" else directory.agent
    known = found or RunRecord(agent=directory.agent, run=directory.run, kind=held.kind, started=crew.clock.now())
    place = str(crew.paths.slot(slot)) if slot else ""
    return replace(known, kind=held.kind, task=held.task, worktree=place)


def has_ended(state: State, run: str) -> bool:
    """Whether the board says that this run has said its last word: its verb is there before its word is."""
    if any(note.event == run for note in state.goal.alignment_history):
        return True
    return any(event.run == run and event.event in LAST_WORDS for task in state.tasks for event in task.history)


@dataclass(frozen=True)
class Watcher:
    """One look, at ``steady`` of the clock that stands still in sleep; what has to be compared is in ``memory``."""

    crew: Crew
    state: State
    preset: Preset
    memory: Memory
    steady: float
    now: datetime

    @property
    def ready_timeout(self) -> float:
        """Seconds within which a session has to show that it has read its brief."""
        return float(self.state.config.ready_timeout or self.preset.ready_timeout)

    def look(self, agent: str) -> SessionFacts | None:
        """The agent's newest session that is not settled. Raises LizaError where a file cannot be read."""
        directory = unsettled(self.crew, self.state, agent)
        held = holding(self.state, agent)
        if directory is None or not directory.exists():
            never = held is not None and not self.crew.run_dir(held.run).exists()
            self.memory.forget_session()
            return SessionFacts(run=held.run, standing=SessionState.NEVER) if held and never else None
        found = session_process.look(directory.path)
        if isinstance(found, session_process.Never):
            # The directory was made and the program was not started: the supervisor died in between.
            owned = held is not None and held.run == directory.run
            return SessionFacts(run=directory.run, standing=SessionState.NEVER if owned else SessionState.OVER)
        if not isinstance(found, session_process.Living | session_process.ShimStarting):
            return SessionFacts(run=directory.run, standing=SessionState.OVER)
        return self._living(directory, found)

    def _living(self, directory: RunDir, found: session_process.Living | session_process.ShimStarting) -> SessionFacts:
        known = self.memory.session
        if known is None or known.run != directory.run:
            started = self.steady - _age(found, self.now)
            now = self.steady
            self.memory.forget_session()
            known = SessionMemory(directory.run, started=started, moved=now, beat=now, seen=now)
            self.memory.session = known
        stuck = self._stuck(directory, known)
        self._look_for_movement(directory, known, found)
        if known.word is None and (directory.word() is not None or has_ended(self.state, directory.run)):
            known.word = self.steady
        since_start = self.steady - known.started - known.asked_for
        pane = tmux.pane(self.crew.paths.root, directory.run)
        self._listen(directory, known, found)
        seen = readiness.gather(directory, self.preset, since_start, self.ready_timeout, pane)
        if not isinstance(seen.look, session_process.Living | session_process.ShimStarting):
            # It ended between the two looks: what that means is one question, and is answered in one place.
            return SessionFacts(run=directory.run, standing=SessionState.OVER)
        known.unlogged = pane is not None and seen.screen is not None and seen.screen.alive and not pane.piped
        stands = readiness.classify(dataclasses.replace(seen, has_asked=self._has_asked(known, seen)))
        question = self._asks(known, seen, stands)
        if question is not None:
            known.asking = self.steady if known.asking is None else known.asking
            since_start -= self.steady - known.asking
        elif known.asking is not None:
            known.asked_for += self.steady - known.asking
            since_start -= self.steady - known.asking
            known.asking = None
        return SessionFacts(
            run=directory.run,
            standing=SessionState.LIVING,
            ready=isinstance(stands, Ready),
            never=stands.reason if isinstance(stands, NotReady) and stands.kind is not NotReadyReason.DIALOG else None,
            needs_person=isinstance(stands, NotReady) and stands.kind in HOPELESS,
            terminal=pane is not None,
            model=None if question is not None else self._model(known, since_start),
            told=_told(directory),
            idle=0.0 if question is not None else self._idle(directory, known, seen),
            reminders=known.reminders,
            asks=question,
            asked=directory.asks(),
            stuck=stuck,
            warned=known.warned,
            since_start=since_start,
            since_movement=self.steady - known.moved,
            since_word=None if known.word is None else self.steady - known.word,
            at_rest=pane is not None and known.word is not None and _waits(directory, seen),
            since_beat=self.steady - known.beat,
        )

    def _stuck(self, directory: RunDir, known: SessionMemory) -> Stuck | None:
        """Whether it makes no progress, as measured; who is being measured for the first time is not asked yet."""
        if known.metering is None:
            record = recorded(self.crew, self.state, directory)
            if record is None:
                return None
            memory = self.memory
            known.metering = Metering(self.crew, self.preset, directory, record, memory.environ, memory.post)
        known.metering.configure(self.state.config)
        known.metering.said = _on_board(self.state, directory.run)
        known.metering.start()
        if known.metering.stuck is None:
            known.warned = False
        return known.metering.stuck

    def _idle(self, directory: RunDir, known: SessionMemory, seen: ReadinessFacts) -> float:
        """How long it has waited at its terminal, by its own hooks where they speak: many show where one types all
        the time, so a prompt is no sign of it."""
        begun = seen.sentinel is not None and known.word is None
        if not begun or not _waits(directory, seen):
            known.idle = None
        elif known.idle is None:
            known.idle = self.steady
        return 0.0 if known.idle is None else self.steady - known.idle

    def _asks(self, known: SessionMemory, seen: ReadinessFacts, stands: Ready | StillStarting | NotReady) -> str | None:
        """What its screen has asked a person for a while, whatever the program and however far it is: who sits down at
        the terminal answers it, and the session goes on."""
        screen = seen.screen
        if screen is None or known.word is not None:
            return None
        before = isinstance(stands, NotReady) and stands.kind is NotReadyReason.DIALOG
        if not before and (seen.sentinel is None or (screen.still or 0.0) < ASKS):
            return None
        return screens.question(screen, self.preset.ready_prompt, self.preset.dialogs)

    def has_terminal(self, directory: RunDir) -> bool:
        """Whether the session has a terminal, still. Raises LizaError."""
        return tmux.pane(self.crew.paths.root, directory.run) is not None

    def _look_for_movement(
        self, directory: RunDir, known: SessionMemory, found: session_process.Living | session_process.ShimStarting
    ) -> None:
        """Output, CPU time, the worktree's index, the agent's own heartbeat: any change vouches for the agent.

        Its model answers where something happens that needs one.
        """
        config = self.state.config
        every = min(config.heartbeat_interval, config.hung_after / 4, config.answer_timeout / 4)
        if known.traces and self.steady - known.looked < every:
            return
        signs = self._signs(directory)
        if signs != known.signs and (known.signs or any(directory.has_spoken())):
            known.answered = self.steady
        known.signs = signs
        traces = (*signs, directory.moved(), _ticks(found) if isinstance(found, session_process.Living) else 0)
        known.looked = self.steady
        if traces != known.traces:
            known.traces, known.moved = traces, self.steady

    def _signs(self, directory: RunDir) -> tuple[object, ...]:
        agent, record = self.state.agents.get(directory.agent), recorded(self.crew, self.state, directory)
        return (
            _touched(Path(record.worktree)) if record and record.worktree else None,
            agent.context_percent if agent else None,
            directory.has_spoken(),
        )

    def _listen(
        self, directory: RunDir, known: SessionMemory, found: session_process.Living | session_process.ShimStarting
    ) -> None:
        """Read what its program said of its model since the last look."""
        if known.listener is None:
            shim = found.shim if isinstance(found, session_process.Living) else None

            def is_own(pid: int) -> bool:
                return shim is not None and pid in processes.below(shim)

            known.listener = Listener(self.preset, directory.output, os.environ, is_own)
        known.listener.listen(self.steady, self.now.astimezone())
        if known.listener.answered:
            known.answered, known.listener.answered = self.steady, False

    def _has_asked(self, known: SessionMemory, seen: ReadinessFacts) -> bool:
        """Whether its program has asked its model: it says that this fails; or it got its task with its start, prints,
        and would print an answer, so that nothing but an answer is missing."""
        if known.listener is not None and known.listener.trouble is not None:
            return True
        return seen.screen is None and bool(self.preset.answers and seen.tail.strip())

    def _model(self, known: SessionMemory, since_start: float) -> ModelSilence | None:
        """Why its model gives no answer; None while it does."""
        said, since = (known.listener.trouble, known.listener.since) if known.listener else (None, None)
        if said is not None and since is not None:
            return ModelSilence(said.kind, self.steady - since, said.words, said.until, said.retried, said.times)
        if known.answered is not None:
            return None
        # What it said before this supervisor looked for the first time is not known.
        return ModelSilence(SILENT, min(since_start, self.steady - known.seen))


def _told(directory: RunDir) -> tuple[str, str] | None:
    """What a person was told of its model; nothing where that cannot be read, so that it is told again."""
    try:
        note = directory.model()
    except LizaError:
        return None
    return None if note is None else (note.kind, note.words)


def _waits(directory: RunDir, seen: ReadinessFacts) -> bool:
    """Whether a program waits at its terminal: its turn is over, where its hooks speak; else by its process."""
    if seen.screen is None:
        return False
    turn = directory.turn()
    return turn.phase == "idle" if turn else seen.screen.waiting > idle_detection.SURE


def _on_board(state: State, run: str) -> tuple[int, int]:
    """What a run changed on the board besides its own task: a planner adds tasks, and changes no worktree."""
    return len(state.tasks), sum(event.run == run for task in state.tasks for event in task.history)


def _age(found: session_process.Living | session_process.ShimStarting, now: datetime) -> float:
    """How long a session has run that was found running: the clock may have been set since it began."""
    if isinstance(found, session_process.ShimStarting):
        return 0.0
    age = processes.age(found.child)
    return max(0.0, (now - found.time).total_seconds()) if age is None else age


def _ticks(living: session_process.Living) -> int:
    """CPU time of the program and all below it, in clock ticks; 0 where the system does not tell."""
    total = 0
    for pid in processes.below(living.shim):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total


def _touched(worktree: Path) -> float | None:
    try:
        return max(
            worktree.stat().st_mtime, *(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(worktree))
        )
    except (OSError, TypeError):
        return None
