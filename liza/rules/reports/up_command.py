"""The command that starts a crew's supervisors again, with the programs that they ran: without those words the same
agents would begin with the default one, which may be another, and cost money. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from liza.rules.model import State
from liza.rules.paths import ROLES

_OPTIONS = {"planner": "--planners", "coder": "--coders", "code-reviewer": "--reviewers"}


def up_command_for(state: State, *agents: str) -> str:
    """The command that starts the supervisors of these agents, and of those that `up` starts with them, each with the
    program that it ran last, as far as the board knows it."""
    counts = dict.fromkeys(ROLES, 1)
    for agent in agents:
        role, number = _split_agent_id(agent)
        counts[role] = max(counts.get(role, 1), number)
    ran = {name: agent.program for name, agent in state.agents.items() if agent.program and _is_among(name, counts)}
    if len(set(ran.values())) > 1:
        # Nobody knows which of them a role would run that nobody had, and the crew was one without it.
        had = {_split_agent_id(agent)[0] for agent in (*ran, *agents)}
        counts = {role: count if role in had else 0 for role, count in counts.items()}
    return format_up_command(counts, _shorten_programs(ran))


def format_up_command(counts: Mapping[str, int], programs: Mapping[str, str], *, terminal: bool = False) -> str:
    """`liza up` for so many agents of each role. ``programs`` are by agent, by role, or, under ``""``, for all."""
    words = ["liza", "up"]
    for role, option in _OPTIONS.items():
        if counts.get(role, 1) != 1:
            words += [option, str(counts[role])]
    for who, program in programs.items():
        words += ["--program", f"{who}={program}" if who else program]
    return shlex.join([*words, *(["--tmux"] if terminal else [])])


def _shorten_programs(ran: Mapping[str, str]) -> dict[str, str]:
    """The same said once for all, or else once for a role, where that is true."""
    if len(set(ran.values())) == 1:
        return {"": next(iter(ran.values()))}
    said: dict[str, str] = {}
    for role in ROLES:
        own = {name: program for name, program in ran.items() if _split_agent_id(name)[0] == role}
        said |= {role: next(iter(own.values()))} if len(set(own.values())) == 1 else own
    return said


def _is_among(agent: str, counts: Mapping[str, int]) -> bool:
    role, number = _split_agent_id(agent)
    return 0 < number <= counts.get(role, 0)


def _split_agent_id(agent: str) -> tuple[str, int]:
    role, _, number = agent.rpartition("-")
    return role, int(number) if number.isdecimal() else 1
