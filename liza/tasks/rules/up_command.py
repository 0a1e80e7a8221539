"""The command that starts a crew's supervisors again with the programs that they ran, and with `--tmux`. Pure.

Without these options the agents would run the default program, which may be another one and cost money.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping

from liza.model.model import State
from liza.model.paths import ROLES
from liza.model.statuses import AgentStatus
from liza.model.value_classes import replace
from liza.programs.presets.program_choice import remembered_keys
from liza.programs.rules.program_spec import parse_spec
from liza.tasks.rules.picking import failed_by_every_coder

_OPTIONS = {"planner": "--planners", "coder": "--coders", "code-reviewer": "--reviewers"}


def up_command_for(state: State, *agents: str) -> str:
    """Return the command that starts the supervisors of these agents and of those that did not leave on request, and at
    least one of each other role of the crew.

    A supervisor that was killed leaves its agent with another status than OFFLINE. Without ``agents``, the command
    starts all agents that had a supervisor: the hint after `down` names those too. A role that never had a supervisor
    is left out, once any other had one. Each agent gets the program that it ran last, if the board has it. If a task
    waits for another coder than those of the crew, the command for the whole crew starts one.
    """
    supervised = _supervised(state)
    crew = [name for name in supervised if state.agents[name].status != AgentStatus.OFFLINE]
    return _format_with_roles(state, agents, [*agents, *crew] if agents else [*supervised, *_needed_coder(state)])


def _format_with_roles(state: State, agents: Collection[str], counted: Collection[str]) -> str:
    supervised = _supervised(state)
    roles = {_role(name) for name in (*supervised, *agents)} if supervised else set(ROLES)
    counts = {role: max(1, _highest_number(role, counted)) if role in roles else 0 for role in ROLES}
    return _format_for(state, counts, counted)


def _supervised(state: State) -> list[str]:
    return [name for name, agent in state.agents.items() if agent.program]


def restart_command_for(state: State, agents: Collection[str]) -> str:
    """Return the command that starts the supervisors of these agents and no others."""
    return _format_for(state, {role: _highest_number(role, agents) for role in ROLES})


def start_command_for(state: State, agents: Collection[str]) -> str:
    """Return the command that starts the supervisors of these agents by their names, with the programs they ran.

    A program that the board remembers for its agent is left out.
    """
    named = {name: state.agents[name] for name in agents if name in state.agents}
    programs = {
        name: agent.program
        for name, agent in named.items()
        if agent.program and agent.program != _remembered_program(state, name)
    }
    has_terminal = any(agent.tmux for agent in named.values())
    return format_up_command({}, _shorten_programs(programs), terminal=has_terminal, names=agents)


def _remembered_program(state: State, agent: str) -> str | None:
    chosen = state.config.programs
    return next((chosen[key] for key in remembered_keys(agent, _role(agent)) if chosen.get(key)), None)


def another_model_command(state: State, agents: Collection[str]) -> str:
    """Return the command that starts these agents with another model of their program: MODEL is to be replaced."""
    refused = {spec for agent in agents if (spec := state.agents[agent].program)}
    named = {spec: f"{parse_spec(spec).name}@MODEL" for spec in refused}
    changed = {
        name: replace(agent, program=named.get(agent.program or "", agent.program))
        for name, agent in state.agents.items()
    }
    return up_command_for(replace(state, agents=changed), *agents)


def _format_for(state: State, counts: Mapping[str, int], counted: Iterable[str] = ()) -> str:
    """Return the command for these counts. An agent in ``counted`` that never had a supervisor gets the program of the
    last agent of its role: without ``--program`` it would run the default one."""
    chosen = {name: agent for name, agent in state.agents.items() if agent.program and _is_among(name, counts)}
    for name in counted:
        last = max((other for other in _supervised(state) if _role(other) == _role(name)), key=_number, default=None)
        if _role(name) in counts and name not in chosen and last is not None:
            chosen[name] = state.agents[last]
    programs = {name: agent.program for name, agent in chosen.items() if agent.program}
    # `--tmux` is an option of all agents: with it, each program still runs, and each session can be attached to.
    has_terminal = any(agent.tmux for agent in chosen.values())
    return format_up_command(counts, _shorten_programs(programs), terminal=has_terminal)


def _highest_number(role: str, agents: Iterable[str]) -> int:
    """Return the highest number of an agent of that role; 0 without one."""
    return max((_number(agent) for agent in agents if _role(agent) == role), default=0)


def _needed_coder(state: State) -> list[str]:
    """Return the coder that a crew of its present size lacks for some task; empty if it lacks none."""
    is_needed = any(task.failed_by and failed_by_every_coder(state, task) for task in state.tasks)
    return [next_coder(state)] if is_needed else []


def next_coder(state: State) -> str:
    """Return the coder with the lowest number that is not on the board."""
    number = next(number for number in range(1, len(state.agents) + 2) if f"coder-{number}" not in state.agents)
    return f"coder-{number}"


def format_up_command(
    counts: Mapping[str, int], programs: Mapping[str, str], *, terminal: bool = False, names: Collection[str] = ()
) -> str:
    """Return `liza up` for that many agents of each role, or for the agents of these ``names``.

    Keys of ``programs``: an agent, a role, or ``""`` for all.
    """
    words = ["liza", "up", *names]
    for role, option in _OPTIONS.items():
        if not names and counts.get(role, 1) != 1:
            words += [option, str(counts[role])]
    for who, program in programs.items():
        words += ["--program", f"{who}={program}" if who else program]
    return shlex.join([*words, *(["--tmux"] if terminal else [])])


def _shorten_programs(ran: Mapping[str, str]) -> dict[str, str]:
    """Return the programs with one entry for all agents if equal, else one for each role whose agents have the same."""
    if len(set(ran.values())) == 1:
        return {"": next(iter(ran.values()))}
    shortened: dict[str, str] = {}
    for role in ROLES:
        own = {name: program for name, program in ran.items() if _role(name) == role}
        shortened |= {role: next(iter(own.values()))} if len(set(own.values())) == 1 else own
    return shortened


def _is_among(agent: str, counts: Mapping[str, int]) -> bool:
    return 0 < _number(agent) <= counts.get(_role(agent), 0)


def _role(agent: str) -> str:
    return agent.rpartition("-")[0]


def _number(agent: str) -> int:
    """Return the number in an agent's id; 1 for an id without one, which an edit by hand may have left."""
    number = agent.rpartition("-")[2]
    return int(number) if number.isdecimal() else 1
