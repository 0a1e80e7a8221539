"""Gather the facts for `rules.sessions.healing_rules`, and carry out what it decides, for `liza watch --heal`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from liza.board import signals
from liza.crew import activity
from liza.crew.crew import Crew
from liza.programs.session import run_directory, session_process
from liza.rules.alarm_kinds import Alarm, AlarmKind
from liza.rules.errors import LizaError
from liza.rules.model import FrozenStruct, State
from liza.rules.owned_work import find_current_work
from liza.rules.paths import agent_of, role_of
from liza.rules.reports.up_command import up_command_for
from liza.rules.sessions import healing_rules
from liza.rules.sessions.agent_states import AgentState, derive_state
from liza.rules.sessions.healing_rules import EndZombie, Escalate, HealingFacts, RestartSupervisor
from liza.rules.sessions.session_ends import StopReason
from liza.rules.statuses import AgentStatus
from liza.system import atomic
from liza.up.crew_options import UpOptions, start_supervisor
from liza.verbs.note import note


class RestartRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``restarts.json``: how often a supervisor was started again for one piece of work, and whether that was told.

    It is written before the start: a command that is killed in between has counted one start too many, never too few.
    """

    work: str
    restarts: int = 0
    is_escalated: bool = False


class Healer:
    """Looks at each agent and carries out the decision.

    Its memory is only the supervisors that it started, and the last error of each agent, which is reported once.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._errors: dict[str, str] = {}

    def heal(self, state: State) -> Iterator[Alarm]:
        """Look at each agent once; yield what was done. An agent that cannot be looked at does not stop the others."""
        for agent in state.agents:
            try:
                alarm = self._heal_agent(state, agent)
                self._errors.pop(agent, None)
            except (LizaError, OSError) as error:
                is_new = self._errors.get(agent) != str(error)
                self._errors[agent] = str(error)
                text = f"{agent} cannot be healed: {error}"
                alarm = _alarm(agent, text, f"liza agents {agent}") if is_new else None
            if alarm is not None:
                yield alarm

    def _heal_agent(self, state: State, agent: str) -> Alarm | None:
        facts = self._gather_facts(state, agent)
        match healing_rules.decide_healing(facts):
            case RestartSupervisor(why=why):
                return self._restart(state, facts, why)
            case EndZombie(run=run, why=why):
                return self._end_zombie(run, why)
            case Escalate(why=why):
                return self._escalate(state, facts, why)
            case _:
                return None

    def _gather_facts(self, state: State, agent: str) -> HealingFacts:
        crew = self._crew
        facts = activity.gather_facts(crew, state, agent, signals.active_signals(crew.paths))
        child = self._children.get(agent)
        record = self._read_record(agent, _work_key(state, agent))
        closed = facts.session.closed_at
        has_left = run_directory.read_supervisor_exit(crew.paths, agent) is not None
        entry = state.agents[agent]
        return HealingFacts(
            agent=facts,
            was_killed=bool(entry.program) and entry.status != AgentStatus.OFFLINE and not has_left,
            grace=float(state.config.grace),
            is_starting=child is not None and child.poll() is None,
            closed_seconds=None if closed is None else (crew.clock.now() - closed).total_seconds(),
            restarts=record.restarts,
            is_escalated=record.is_escalated,
        )

    def _restart(self, state: State, facts: HealingFacts, why: str) -> Alarm:
        agent = facts.agent.agent
        count = facts.restarts + 1
        self._write_record(agent, RestartRecord(work=_work_key(state, agent), restarts=count))
        entry = state.agents[agent]
        options = UpOptions(program=entry.program, terminal=entry.tmux, detached=True)
        self._children[agent] = start_supervisor(self._crew, agent, options)
        text = f"{agent}: {why}; it was started again ({count} of {healing_rules.MAX_RESTARTS})"
        return _alarm(agent, text, f"liza logs {agent} -f")

    def _end_zombie(self, run: str, why: str) -> Alarm | None:
        """End the session after a new look: `session_process.stop` proves that the processes are those of the run."""
        crew, agent = self._crew, agent_of(run)
        state = crew.board.read()
        again = activity.gather_facts(crew, state, agent, ())
        if again.is_supervised or again.session.run != run or derive_state(again).state is not AgentState.ZOMBIE:
            return None
        directory = crew.run_dir(run)
        directory.write_stop(crew.clock.now(), StopReason.OVER if again.session.closed_at else StopReason.FENCED)
        session_process.stop(directory.path, run, crew.paths.root, grace=float(state.config.grace))
        return _alarm(agent, f"{why}: the session was ended", f"liza logs {agent}")

    def _escalate(self, state: State, facts: HealingFacts, why: str) -> Alarm:
        agent, step = facts.agent.agent, up_command_for(state, facts.agent.agent)
        planner = next((name for name in state.agents if role_of(name) == "planner"), None)
        note(self._crew, f"{agent} holds {why}. Its task may need a new plan.", planner)
        work = _work_key(state, agent)
        self._write_record(agent, RestartRecord(work=work, restarts=facts.restarts, is_escalated=True))
        return _alarm(agent, f"{agent} holds {why}; it is not started again", f"liza logs {agent}; {step}")

    def _read_record(self, agent: str, work: str) -> RestartRecord:
        record = run_directory.read_struct(self._record_path(agent), RestartRecord)
        return record if record is not None and record.work == work else RestartRecord(work=work)

    def _write_record(self, agent: str, record: RestartRecord) -> None:
        path = self._record_path(agent)
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, msgspec.json.encode(record) + b"\n")

    def _record_path(self, agent: str) -> Path:
        return self._crew.paths.runs / agent / "restarts.json"


def _work_key(state: State, agent: str) -> str:
    """Return the kind and the task of the agent's work; empty without work. Its run changes with each new session."""
    work = find_current_work(state, agent)
    if work is None:
        return ""
    return f"{work.kind} {work.task or 'planning'}"


def _alarm(agent: str, message: str, step: str) -> Alarm:
    return Alarm(AlarmKind.SUPERVISOR_GONE, agent, message, step)
