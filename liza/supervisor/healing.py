"""Start supervisors again that died, and end left-over sessions: the facts for `healing_rules`, and what it decides.

One process of a crew does this: a `liza up` in a terminal, or the keeper, a process without a terminal:
``python -m liza.supervisor.healing ROOT AGENT…``: the agents whose supervisors run at its start. `liza up -d` starts
it, or a supervisor whose `liza up` was killed. It ends after `liza down`, or when no supervisor of the crew runs. Both
hold the keeper's lock. If the keeper is killed, a supervisor starts it again.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from liza.briefs.note import note
from liza.crew.crew import Crew, find_crew
from liza.model.agent_states import AgentState, derive_state
from liza.model.derived import find_current_work
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import agent_of, role_of
from liza.model.session_ends import StopReason
from liza.model.statuses import AgentStatus
from liza.model.value_classes import AwareDatetime, FrozenStruct
from liza.programs.session import run_directory, session_process
from liza.supervisor.crew_options import UpOptions, start_supervisor
from liza.supervisor.down import is_under_way
from liza.supervisor.rules import healing_rules
from liza.supervisor.rules.healing_rules import EndZombie, Escalate, HealingFacts, RestartLater, RestartSupervisor
from liza.system import atomic
from liza.system.locks import Lock
from liza.tasks import bound_claim
from liza.tasks.rules.up_command import up_command_for
from liza.view import activity

LOOK_SECONDS = 2.0
"""Seconds between two looks at the crew. A supervisor that is a child is looked at when it ends."""


class RestartRecord(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``restarts.json``: how often a supervisor was started again for one piece of work, when last, and whether that
    was told.

    It is written before the start: a process that is killed in between has counted one start too many, never too few.
    """

    work: str
    restarts: int = 0
    is_escalated: bool = False
    time: AwareDatetime | None = None


class Look(NamedTuple):
    """Result of a look: agents whose supervisors were started, and those that are to be started later."""

    started: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()


class Healer:
    """Looks at each agent without a supervisor and carries out the decision.

    ``start`` starts a supervisor; ``say`` reports what was done about an agent. Its memory is only the last error of
    each agent, which is reported once.
    """

    def __init__(self, crew: Crew, start: Callable[[str], None], say: Callable[[str, str], None]) -> None:
        self._crew, self._start, self._say = crew, start, say
        self._errors: dict[str, str] = {}

    def look(self, state: State, kept: Collection[str], starting: Collection[str]) -> Look:
        """Look at each agent once. An agent that cannot be looked at does not stop the others.

        ``kept``: agents whose supervisors are started again. ``starting``: agents whose supervisors were just started.
        """
        self._end_left_claims()
        decisions: dict[str, object] = {}
        for agent in state.agents:
            try:
                # First: of most agents a supervisor runs, and no more needs to be read.
                if agent in starting or self._crew.is_supervised(agent) or is_under_way(self._crew.paths):
                    continue
                if state.agents[agent].host != self._crew.host:
                    continue
                decisions[agent] = self._heal_agent(state, agent, is_kept=agent in kept)
                self._errors.pop(agent, None)
            except (LizaError, OSError) as error:
                if self._errors.get(agent) != str(error):
                    self._say(agent, f"! it cannot be healed: {error}")
                self._errors[agent] = str(error)
        return Look(
            tuple(agent for agent, decision in decisions.items() if isinstance(decision, RestartSupervisor)),
            tuple(agent for agent, decision in decisions.items() if isinstance(decision, RestartLater)),
        )

    def _end_left_claims(self) -> None:
        """Let the crew go on with the tasks of programs that claimed them over MCP, and were killed."""
        try:
            for task, path in bound_claim.leave_dead(self._crew):
                self._say(task, f"the program in {path} is gone: the crew goes on with its work")
        except (LizaError, OSError) as error:
            if self._errors.get("") != str(error):
                self._say("!", f"a task of a program that is gone is not free: {error}")
            self._errors[""] = str(error)

    def _heal_agent(self, state: State, agent: str, *, is_kept: bool) -> object:
        decision = healing_rules.decide_healing(self._gather_facts(state, agent, is_kept=is_kept))
        match decision:
            case RestartSupervisor():
                self._restart(state, decision)
            case EndZombie(run=run, why=why):
                self._end_zombie(run, why)
            case Escalate(why=why):
                self._escalate(state, agent, why)
        return decision

    def _gather_facts(self, state: State, agent: str, *, is_kept: bool) -> HealingFacts:
        crew, now = self._crew, self._crew.clock.now()
        facts = activity.gather_facts(crew, state, agent, tuple(crew.board.signals()))
        record = self._read_record(agent, _work_key(state, agent))
        closed = facts.session.closed_at
        has_left = run_directory.read_supervisor_exit(crew.paths, agent) is not None
        entry = state.agents[agent]
        return HealingFacts(
            agent=facts,
            was_killed=bool(entry.program) and entry.status != AgentStatus.OFFLINE and not has_left,
            grace=float(state.config.grace),
            is_kept=is_kept,
            closed_seconds=None if closed is None else (now - closed).total_seconds(),
            restarts=record.restarts,
            since_restart=None if record.time is None else (now - record.time).total_seconds(),
            is_escalated=record.is_escalated,
        )

    def _restart(self, state: State, decision: RestartSupervisor) -> None:
        agent, work = decision.agent, _work_key(state, decision.agent)
        record = RestartRecord(work=work, restarts=decision.count, time=self._crew.clock.now())
        self._write_record(agent, record)
        self._start(agent)
        of_how_many = f"{decision.count} of {healing_rules.MAX_RESTARTS}" if work else f"{decision.count}"
        self._say(agent, f"{decision.why}; it was started again ({of_how_many})")

    def _end_zombie(self, run: str, why: str) -> None:
        """End the session after a new look: `session_process.stop` proves that the processes are those of the run."""
        crew, agent = self._crew, agent_of(run)
        state = crew.board.read()
        again = activity.gather_facts(crew, state, agent, ())
        if again.is_supervised or again.session.run != run or derive_state(again).state is not AgentState.ZOMBIE:
            return
        directory = crew.run_dir(run)
        directory.write_stop(crew.clock.now(), StopReason.OVER if again.session.closed_at else StopReason.FENCED)
        session_process.stop(directory.path, run, crew.paths.root, grace=float(state.config.grace))
        self._say(agent, f"{why}: the session was ended")

    def _escalate(self, state: State, agent: str, why: str) -> None:
        planner = next((name for name in state.agents if role_of(name) == "planner"), None)
        note(self._crew, f"{agent} holds {why}. Its task may need a new plan.", planner)
        record = self._read_record(agent, _work_key(state, agent))
        self._write_record(agent, msgspec.structs.replace(record, is_escalated=True))
        step = f"liza logs {agent}; {up_command_for(state, agent)}"
        self._say(agent, f"! it holds {why}; it is not started again; next: {step}")

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


LOOKS_TO_END = 3
"""Number of looks in a row without a supervisor after which the process ends: one may be started again meanwhile."""
LOCK_LIMIT = 10.0
"""Seconds to wait for the lock: the keeper of a crew that was just stopped still holds it."""


def main(root: Path, agents: Collection[str]) -> int:
    """Watch over the crew until no supervisor runs, or SIGTERM; return the exit status."""
    crew, stopping = find_crew(root), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.set())
    lock = Lock(crew.paths.keeper_lock)
    try:
        lock.acquire(timeout=LOCK_LIMIT)
    except LizaError:
        return 0
    crew.paths.keeper_mark.touch(0o600)
    Keeper(crew, agents).watch(stopping)
    # Not after an exception: then a supervisor starts it again, as after a kill.
    crew.paths.keeper_mark.unlink(missing_ok=True)
    lock.release()
    return 0


class Keeper:
    """The supervisors that it has seen running, and those that it has started."""

    def __init__(self, crew: Crew, agents: Collection[str]) -> None:
        self._crew = crew
        self._seen = set(agents)
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._healer = Healer(crew, self._start, self._say)
        self._down_time = self._last_down()

    def watch(self, stopping: threading.Event) -> None:
        """Look at the crew again and again until it needs no keeper, or until ``stopping``."""
        looks = 0
        while looks < LOOKS_TO_END and not stopping.is_set() and self._last_down() == self._down_time:
            looks = 0 if self._look() else looks + 1
            stopping.wait(LOOK_SECONDS)

    def _look(self) -> bool:
        """Heal the crew; return whether a supervisor runs, or is to be started again."""
        with suppress(LizaError, OSError):
            state = self._crew.board.read()
            running = self._find_running(state)
            self._seen |= running
            starting = {agent for agent, child in self._children.items() if child.poll() is None}
            healed = self._healer.look(state, self._seen, starting)
            return bool(running or starting or healed.started or healed.awaited)
        return False

    def _find_running(self, state: State) -> set[str]:
        return {agent for agent in state.agents if self._crew.is_supervised_here(agent)}

    def _last_down(self) -> float | None:
        """Time of the last `liza down`: it writes its lock file. After it no supervisor is to be started again."""
        with suppress(OSError):
            return self._crew.paths.down_lock.stat().st_mtime
        return None

    def _start(self, agent: str) -> None:
        entry = self._crew.board.read().agents[agent]
        options = UpOptions(program=entry.program, terminal=entry.tmux, detached=True)
        self._children[agent] = start_supervisor(self._crew.paths, agent, options)

    def _say(self, agent: str, text: str) -> None:
        with suppress(LizaError, OSError):
            self._crew.append_alert_log([f"healed  {agent}: {text}. Next: liza logs {agent}"])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
