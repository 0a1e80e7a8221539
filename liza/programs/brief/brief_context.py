"""All that a brief is made of. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from liza.rules.model import State, Task
from liza.rules.paths import agent_of, role_of
from liza.rules.sessions.message_rules import Message

_END_PHRASES = {
    "crash": "it crashed",
    "ended": "it ended without a word",
    "held up": "it was held up by what was no fault of it",
    "quota": "a limit of use ended it",
    "unanswered": "its model did not answer",
    "unusable": "its program could not be used",
}
"""How a session ended that said nothing, by the event in its task's history."""


@dataclass(frozen=True)
class BriefContext:
    """Everything that a brief says. ``liza`` is the absolute path of the command, ``assignment`` that of the long text.

    ``task`` is None for a planner; ``trigger``, ``ids`` and ``facts`` are its wake-up. ``committed``: what earlier
    tries committed on the task's branch, newest first, a line a commit.
    """

    state: State
    run: str
    now: datetime
    root: Path
    liza: Path
    worktree: Path
    assignment: Path
    task: Task | None = None
    integration_tip: str = ""
    is_set_up: bool = False
    wake_trigger: str = ""
    wake_ids: tuple[str, ...] = ()
    wake_facts: str = ""
    messages: tuple[Message, ...] = ()
    earlier_commits: tuple[str, ...] = ()

    @property
    def agent(self) -> str:
        """The agent of the run."""
        return agent_of(self.run)

    @property
    def role(self) -> str:
        """The role of the agent."""
        return role_of(self.agent)

    @property
    def liza_command(self) -> str:
        """The command as a shell takes it."""
        return shlex.quote(str(self.liza))

    @property
    def required_task(self) -> Task:
        """The task. A coder's or a reviewer's brief cannot be written without one."""
        if self.task is None:
            raise ValueError(f"{self.run} has no task to be briefed on")
        return self.task

    @property
    def rejection(self) -> tuple[str, str] | None:
        """Who rejected the work last, and why; None when nobody did. A reviewer judges whether that was mended, so
        what was submitted since takes it from the coder's brief and not from the reviewer's."""
        if self.task is None or (self.role == "coder" and not self.task.rejection_reason):
            return None
        said = [event for event in self.task.history if event.event in ("reject", "deadlock")]
        reason = self.task.rejection_reason or (said[-1].detail if said else None)
        if not reason:
            return None
        return (said[-1].agent if said and said[-1].agent else "the reviewer"), reason

    @property
    def previous_end(self) -> str | None:
        """How the session before this one ended, where it ended on its own and said nothing; None else."""
        events = self.task.history if self.task else ()
        ends = [event for event in events if event.event in (*_END_PHRASES, "claim", "handoff", "submit", "stop")]
        if not ends or ends[-1].event not in _END_PHRASES:
            return None
        return f"{_END_PHRASES[ends[-1].event]}. {ends[-1].detail or ''}".strip()

    def spec_path(self, reference: str) -> str:
        """A spec as the session finds it: what lies below .liza is in no worktree."""
        return str(self.root / reference) if reference.startswith(".liza/") else reference

    @property
    def notes(self) -> tuple[str, ...]:
        """What people wrote to this agent, to its role, to its task, or to everyone; the newest last."""
        mine = {None, "", self.agent, self.role, self.task.id if self.task else self.agent}
        return tuple(note.message for note in self.state.human_notes if note.recipient in mine)

    @property
    def test_command(self) -> str:
        """The command that tests the project; empty where nobody named one."""
        return self.state.config.integration_command or ""


def describe_sprint(at: BriefContext) -> str:
    """How many tasks stand where, the tip of integration, and what was found and not yet triaged."""
    counts = Counter(task.status.value for task in at.state.tasks)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no tasks"
    tip = f" · {at.state.config.integration_branch} {at.integration_tip[:12]}" if at.integration_tip else ""
    found = sum(one.converted_to_task is None for one in at.state.discovered)
    return f"{told}{tip} · {found} {'discovery' if found == 1 else 'discoveries'} not yet triaged"
