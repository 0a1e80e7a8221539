"""Current activity of an agent with its start time, and its operating state, from the facts that it is derived from."""

from __future__ import annotations

from datetime import UTC, datetime

from liza.crew.crew import Crew
from liza.model import agent_states, setting_limits
from liza.model.agent_states import AgentFacts, Session, SessionPhase, StateReport, Work
from liza.model.derived import CurrentWork, find_current_work, tasks_with
from liza.model.errors import LizaError
from liza.model.history_events import HistoryEvent
from liza.model.model import State, Status
from liza.model.paths import Paths, agent_of, run_id
from liza.model.statuses import AgentStatus, AgentWord, WorkKind
from liza.model.transitions import has_done
from liza.model.value_classes import Value
from liza.programs import liveness
from liza.programs.rules.lifecycle_rules import OBSERVED, REPORTED
from liza.programs.session import run_directory
from liza.programs.session.run_directory import RunDir
from liza.tasks.rules import picking
from liza.text.redaction import redact
from liza.usage import costs

_KIND_LABELS = {WorkKind.WORK: "working", WorkKind.REVIEW: "reviewing", WorkKind.PLANNING: "planning"}


class Activity(Value):
    """Label that a duration can follow (``working`` 4 min), and the start time.

    ``state_source`` is ``reported`` if the program's runtime or hooks report its turns, ``observed`` if the supervisor
    judges by output and processes. ``reported_by`` is the TurnSource of a report, ``phase`` the reported TurnPhase. All
    are None without a session.
    """

    label: str
    since: datetime
    state_source: str | None = None
    phase: str | None = None
    reported_by: str | None = None

    def seconds(self, now: datetime) -> int:
        """Return for how many seconds it has lasted."""
        return max(0, int((now - self.since).total_seconds()))


def find_activity(crew: Crew, state: State, agent: str) -> Activity | None:
    """Return the activity of the agent's run; None if the agent has no work or its files cannot be read."""
    work = find_current_work(state, agent)
    if work is None:
        return None
    try:
        return _session_activity(crew.paths, state, work, crew.run_dir(work.run))
    except (LizaError, OSError):
        return None


def _session_activity(paths: Paths, state: State, work: CurrentWork, directory: RunDir) -> Activity | None:
    if not directory.exists():
        setup = run_directory.read_setup_note(paths, work.run)
        return Activity("set-up", setup.started) if setup is not None else _manual_activity(state, work)
    session = liveness.read_state(directory.path)
    if not isinstance(session, liveness.RunningSession):
        return None
    label, since = _KIND_LABELS[work.kind], session.time
    if directory.read_question() is not None:
        asked_at = (directory.path / "asks").stat().st_mtime
        label, since = AgentWord.WAITS_FOR_YOU.value, datetime.fromtimestamp(asked_at, UTC).replace(microsecond=0)
    try:
        turn = directory.read_turn()
    except (LizaError, OSError):
        return Activity(label, since)
    if turn is None:
        return Activity(label, since, OBSERVED)
    return Activity(label, since, REPORTED, turn.phase, turn.source.value)


def _manual_activity(state: State, work: CurrentWork) -> Activity | None:
    task = state.task(work.task) if work.task else None
    times = [event.time for event in task.history if event.run == work.run] if task is not None else []
    return Activity(_KIND_LABELS[work.kind], times[0]) if times else None


def find_state(crew: Crew, state: State, agent: str, signals: tuple[str, ...]) -> StateReport:
    """Return the state of an agent of the board, with its evidence. ``signals``: the active ones.

    Raises LizaError, OSError if the files of its session cannot be read.
    """
    return agent_states.derive_state(gather_facts(crew, state, agent, signals))


def gather_facts(crew: Crew, state: State, agent: str, signals: tuple[str, ...]) -> AgentFacts:
    """Return the facts about an agent of the board. Raises LizaError, OSError."""
    held = find_current_work(state, agent)
    session = _find_session(crew, state, agent, held)
    gauge = costs.read_gauge(crew.paths, state, agent)
    is_supervised = crew.is_supervised(agent)
    question = crew.run_dir(session.run).read_question() if session.phase is SessionPhase.READY else None
    return AgentFacts(
        agent=agent,
        is_supervised=is_supervised,
        work=_find_work(state, agent, held),
        session=session,
        halt=_find_halt(crew, agent, signals),
        closed=setting_limits.describe_opening(state.config, crew.clock.now()),
        question=None if question is None else redact(" ".join(question.split())),
        no_progress=None if gauge is None or gauge.stuck is None else redact(gauge.stuck),
        blocked=tuple(
            Work(task.id, task.history[-1].time if task.history else None)
            for task in tasks_with(state, Status.BLOCKED)
            if task.assigned_to == agent
        ),
        is_starting_up=is_supervised and state.agents[agent].status == AgentStatus.STARTING,
        host=crew.find_holder(agent),
    )


def _find_work(state: State, agent: str, held: CurrentWork | None) -> Work | None:
    name = picking.occupation(state, agent)
    if name is None:
        return None
    task = state.task(held.task) if held is not None and held.task is not None else None
    times = [event.time for event in task.history if held and event.run == held.run] if task is not None else []
    return Work(name, times[0] if times else None)


def _find_session(crew: Crew, state: State, agent: str, held: CurrentWork | None) -> Session:
    run = held.run if held is not None else run_id(agent, state.agents[agent].runs)
    directory = crew.run_dir(run)
    is_of_work = held is not None
    if not directory.exists():
        note = run_directory.read_setup_note(crew.paths, run)
        if note is not None:
            return Session(run, SessionPhase.SET_UP, note.started, is_of_work)
        phase = SessionPhase.BY_HAND if held is not None and _is_by_hand(crew, state, held) else SessionPhase.NONE
        return Session(run, phase, None, is_of_work)
    return _living_session(directory, is_of_work=is_of_work)


def _living_session(directory: RunDir, *, is_of_work: bool) -> Session:
    closed_at = _closing_time(directory)
    process = liveness.read_state(directory.path)
    if isinstance(process, liveness.RunningSession):
        phase = SessionPhase.READY if directory.is_ready() else SessionPhase.STARTING
        return Session(directory.run, phase, process.time, is_of_work, closed_at)
    if isinstance(process, liveness.ShimStarting):
        return Session(directory.run, SessionPhase.STARTING, None, is_of_work, closed_at)
    return Session(directory.run, SessionPhase.NONE, None, is_of_work, closed_at)


def _closing_time(directory: RunDir) -> datetime | None:
    if directory.closing_code() is None:
        return None
    written = (directory.path / run_directory.CLOSING_FILE).stat().st_mtime
    return datetime.fromtimestamp(int(written), UTC)


def _is_by_hand(crew: Crew, state: State, held: CurrentWork) -> bool:
    agent = agent_of(held.run)
    if crew.is_supervised(agent) or (agent in state.agents and state.agents[agent].host != crew.host):
        return False
    return held.kind is WorkKind.WORK and not is_given_back(state, held)


def is_given_back(state: State, held: CurrentWork) -> bool:
    """Return whether the work was given back when its supervisor ended: then no person does it by hand."""
    task = state.task(held.task) if held.task else None
    return task is not None and has_done(task, HistoryEvent.STOP, held.run)


def _find_halt(crew: Crew, agent: str, signals: tuple[str, ...]) -> str | None:
    if signals:
        return f"{signals[0]} is set"
    wait = run_directory.read_wait(crew.paths, agent)
    if wait is None or wait.until <= crew.clock.now():
        return None
    return f"no session is started until {wait.until:%H:%M:%SZ}: {redact(wait.reason)}"
