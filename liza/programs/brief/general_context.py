"""What a program is told that a person starts in their own checkout, without a task. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import datetime
from pathlib import Path

from liza.programs.brief.beacon_topics import BeaconTopic, format_beacon
from liza.programs.brief.quoting import BLOCK_BEGIN, BLOCK_END, quote_line, quote_lines
from liza.rules.model import State, Status
from liza.rules.paths import Paths
from liza.rules.value_classes import Value

MAX_GOAL = 2000  # bytes


class GeneralContext(Value):
    """``run`` names the block. ``person`` is who started the program, ``liza`` the absolute path of the command."""

    state: State
    run: str
    person: str
    now: datetime
    root: Path
    liza: Path


def compose_general_block(context: GeneralContext) -> str:
    """Compose the block: what the crew is, the goal, and how the board is used as a person."""
    state, liza = context.state, shlex.quote(str(context.liza))
    config, spec = state.config, state.goal.spec_ref
    path = str(context.root / spec) if spec.startswith(".liza/") else spec
    lines = (
        BLOCK_BEGIN.format(run=context.run),
        format_beacon("program", context.person, context.now, f"{BeaconTopic.COLD_START}:by hand", context.run),
        f"{quote_line(context.person, 60)} started you by hand in the person's own checkout. You are no agent of the",
        "crew, you hold no task, and no supervisor watches you. The person is here: ask instead of guessing.",
        "Liza runs a crew of coding agents on this repository. Each works on one task of the board in a worktree of",
        f"its own. Reviewed and tested work is merged into the branch {config.integration_branch}.",
        f"GOAL  {quote_lines(state.goal.description, MAX_GOAL)}",
        *([f"SPEC  {quote_line(path, 300)}"] if spec else []),
        f"NOW   {_describe_tasks(state)}",
        "USE THE BOARD as a person does, by commands only, and never edit .liza/state.yaml yourself:",
        f"  {liza} status                         open questions, tasks, agents, and why something waits",
        f"  {liza} task list · {liza} task show ID · {liza} diff ID · {liza} path ID",
        f'  {liza} task add --id ID --desc "…" --done "…" --scope "…" --spec FILE      work for the crew',
        f'  {liza} answer ID "…"                  answer an agent\'s question, if the person says so',
        f'  {liza} note --to coder-1 "…"          tell an agent something',
        "LEAVE ALONE  the worktrees and branches of tasks: agents work there. Do not commit this block.",
        f"MORE  {Paths(context.root).contracts / 'CORE.md'} and {Paths(context.root).specs / 'architecture'}",
        BLOCK_END.format(run=context.run),
    )
    return "\n".join(lines) + "\n"


def _describe_tasks(state: State) -> str:
    """Return how many tasks have each status, and which ones wait for a person."""
    counts = Counter(task.status.value for task in state.tasks)
    blocked = [task.id for task in state.tasks if task.status is Status.BLOCKED]
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no tasks"
    return quote_line(f"{text}; BLOCKED: {', '.join(blocked)}" if blocked else text, 400)
