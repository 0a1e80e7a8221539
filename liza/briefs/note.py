"""note: a person's text in the next briefs of its recipients.

With `--now` or `--priority` it is also a prompt for the running session.
"""

from __future__ import annotations

import os

from liza.board.contract import Board
from liza.briefs import inbox, shared_inbox
from liza.briefs.rules import message_rules
from liza.briefs.rules.message_rules import PromptPriority
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.errors import LizaError, Refused, UnknownId, UsageError
from liza.model.model import HumanNote, State, Status
from liza.model.paths import parse_agent_id, run_id
from liza.model.value_classes import replace
from liza.programs import liveness
from liza.programs.presets import command_line
from liza.programs.session.run_directory import PANE_FILE, RunDir
from liza.tasks import archive
from liza.tasks.rules import backlog


def send_note(crew: Crew, text: str, to: str | None = None, priority: str | None = None) -> Result:
    """As ``note``, and deliver it into the recipient's running session, by default at the next edge of its turn.

    Raises UnknownId, UsageError, also for an unknown priority, QueueFull, Refused if no agent works on the named task.
    """
    if priority is not None:
        inbox.check_priority(priority)
    by = require_person(crew, planner=False)
    state = crew.board.read()
    _refuse_archived(crew.board, state, to)
    agent = _agent_at_work(state, to)
    # Outside the board's transaction: an inbox has its own lock, and its agent can hold that lock for long.
    chosen = PromptPriority.SYSTEM if priority is None else PromptPriority(priority)
    about = to if to is not None and state.task(to) is not None else None
    message = shared_inbox.send_message(crew, agent, text, by, chosen, task=about)
    try:
        result = note(crew, text, to)
    except BaseException:
        shared_inbox.withdraw_message(crew, agent, message.id)
        raise
    if shared_inbox.find_server(crew, agent) is not None:
        holder = crew.find_holder(agent)
        next_step = f"it waits for {f'the host {holder}, where {agent} is' if holder else f'a host that has {agent}'}"
    else:
        next_step = f"it waits in the inbox of {agent}; {_delivery_text(crew, agent, message.priority)}"
    return replace(result, next=next_step, details={**result.details, "message": message.id})


def _delivery_text(crew: Crew, agent: str, priority: str) -> str:
    """Describe when and how the agent gets a message."""
    agent_entry = crew.board.read().agents.get(agent)
    run = run_id(agent, agent_entry.runs) if agent_entry is not None and agent_entry.runs else None
    directory = None if run is None else crew.run_dir(run)
    if directory is None or not liveness.is_session_living(directory):
        return "it has no session now, so the next brief contains it"
    try:
        channels = _read_channels(directory)
    except (LizaError, OSError):
        return f"{run} gets it as soon as its session can take a message"
    return message_rules.describe_delivery(PromptPriority(priority), channels)


def _read_channels(directory: RunDir) -> message_rules.DeliveryChannels:
    """Return the ways into a session by what it has used so far. Raises LizaError if a file cannot be read."""
    turn = directory.read_turn()
    return message_rules.DeliveryChannels(
        directory.run,
        has_hooks=turn is not None and not turn.is_reported,
        has_terminal=os.path.lexists(directory.path / PANE_FILE),
        has_stream=turn.is_reported if turn is not None else command_line.read_order(directory.path) is not None,
    )


def _agent_at_work(state: State, to: str | None) -> str:
    """Return the named agent, or the agent that works on the named task."""
    if to is None:
        raise UsageError("--now and --priority need a recipient", 'liza note --to coder-1 --now "…"')
    task = state.task(to)
    if task is None:
        return _recipient(state, to) or to
    worker = task.reviewing_by or (task.assigned_to if task.status is Status.CLAIMED else None)
    if worker is None:
        raise Refused(f"no agent works on {to} now", f'liza note --to {to} "…"')
    return worker


def note(crew: Crew, text: str, to: str | None = None) -> Result:
    """Write a note on the board, for an agent, a task or all agents. Raises UnknownId, UsageError, Refused.

    A note about a task is a new plan: coders that failed it may take it again.
    """
    by = require_person(crew, planner=False)
    if not text.strip():
        raise UsageError("the note is empty", 'liza note --to coder-1 "…"')
    _refuse_archived(crew.board, crew.board.read(), to)
    with crew.change(by, "note") as tx:
        recipient = _recipient(tx.state, to)
        entry = HumanNote(timestamp=crew.clock.now(), message=text, recipient=recipient)
        noted = replace(tx.state, human_notes=(*tx.state.human_notes, entry))
        is_task = recipient is not None and noted.task(recipient) is not None
        tx.state = backlog.restart_counts(noted, recipient) if recipient is not None and is_task else noted
    task = recipient if recipient is not None and tx.state.task(recipient) else None
    step = "liza status" if recipient is None else f'liza note --to {recipient} --now "…"'
    result = make_result(tx.before, tx.state, task, step, to=recipient)
    return replace(result, message=f"noted for the next brief{f' of {recipient}' if recipient else ''}")


def _refuse_archived(board: Board, state: State, to: str | None) -> None:
    archive.refuse_archived(board, state, [to] if to is not None and to not in state.agents else [])


def _recipient(state: State, to: str | None) -> str | None:
    if to is None or state.task(to) is not None:
        return to
    try:
        name = parse_agent_id(to)
    except UsageError:
        name = to
    if name not in state.agents:
        names = ", ".join([*state.agents, *(task.id for task in state.tasks)][:8]) or "none"
        raise UnknownId(f"{to!r} is neither an agent nor a task on the board (there are: {names})", "liza status")
    return name
