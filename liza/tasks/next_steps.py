"""Who goes on after a person's command, and what the person types next."""

from __future__ import annotations

from liza.breaker.rules.breaker_trips import signal_hint
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model import setting_limits
from liza.model.model import State
from liza.model.paths import role_of
from liza.model.value_classes import Value, replace
from liza.tasks.rules.up_command import up_command_for

_NAMES = {"planner": "planner", "coder": "coder", "code-reviewer": "reviewer"}


class NextStep(Value):
    """``text``: who goes on, or why no agent does. ``command``: what the person types next."""

    text: str
    command: str


def find_next_step(crew: Crew, state: State, running: str, role: str | None = None) -> NextStep:
    """Return ``running`` if an agent of ``role`` goes on by itself; without ``role``, if any agent does.

    Else the step says that none runs, which signal is set, or until when no session starts, with the command that
    changes that.
    """
    running_agents = [agent for agent in state.agents if crew.is_supervised(agent)]
    if not any(role in (None, role_of(agent)) for agent in running_agents):
        had_role = any(role == role_of(name) and agent.program for name, agent in state.agents.items())
        wanted = [f"{role}-1"] if role and (running_agents or not had_role) else []
        return NextStep(f"no {_NAMES.get(role or '', 'agent')} runs", up_command_for(state, *wanted))
    names = tuple(crew.board.signals())
    if names:
        return NextStep(f"{names[0]} is set", signal_hint(state))
    closed, _, command = (setting_limits.describe_opening(state.config, crew.clock.now()) or "").partition(": ")
    return NextStep(closed, command) if closed else NextStep(running, "liza status")


def with_next_step(result: Result, step: NextStep) -> Result:
    """Return the result of a verb with the step: its command as the next one, its text after the message."""
    message = f"{result.message}; {step.text}" if result.message and step.text else result.message
    return replace(result, next=step.command, message=message)
