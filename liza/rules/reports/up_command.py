"""The command that starts a crew's supervisors again with the programs that they ran. Pure.

Without these options the agents would run the default program, which may be another one and cost money.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from liza.rules.model import State
from liza.rules.paths import ROLES

_OPTIONS = {"planner": "--planners", "coder": "--coders", "code-reviewer": "--reviewers"}


def up_command_for(state: State, *agents: str) -> str:
    """Return the command that starts the supervisors of these agents, and of those that `up` starts with them.

    Each agent gets the program that it ran last, if the board has it.
    """
    counts = dict.fromkeys(ROLES, 1)
    for agent in agents:
        role, number = _split_agent_id(agent)
        counts[role] = max(counts.get(role, 1), number)
    ran = {name: agent.program for name, agent in state.agents.items() if agent.program and _is_among(name, counts)}
    if len(set(ran.values())) > 1:
        # The program of a role without an agent is unknown, and the crew ran without that role: start none.
        had = {_split_agent_id(agent)[0] for agent in (*ran, *agents)}
        counts = {role: count if role in had else 0 for role, count in counts.items()}
    return format_up_command(counts, _shorten_programs(ran))


def another_coder_command(state: State) -> str:
    """Return the command that starts one coder more than the board names."""
    number = next(number for number in range(1, len(state.agents) + 2) if f"coder-{number}" not in state.agents)
    return up_command_for(state, f"coder-{number}")


def format_up_command(counts: Mapping[str, int], programs: Mapping[str, str], *, terminal: bool = False) -> str:
    """Return `liza up` for that many agents of each role. Keys of ``programs``: an agent, a role, or ``""`` for all."""
    words = ["liza", "up"]
    for role, option in _OPTIONS.items():
        if counts.get(role, 1) != 1:
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
        own = {name: program for name, program in ran.items() if _split_agent_id(name)[0] == role}
        shortened |= {role: next(iter(own.values()))} if len(set(own.values())) == 1 else own
    return shortened


def _is_among(agent: str, counts: Mapping[str, int]) -> bool:
    role, number = _split_agent_id(agent)
    return 0 < number <= counts.get(role, 0)


def _split_agent_id(agent: str) -> tuple[str, int]:
    role, _, number = agent.rpartition("-")
    return role, int(number) if number.isdecimal() else 1
