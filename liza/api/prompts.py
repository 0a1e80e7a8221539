"""Prompts: what a person, another agent or Liza tells a running session, in the inbox of its agent."""

from __future__ import annotations

import hashlib
from datetime import datetime

from liza.api.api_answers import AcknowledgeAnswer, PromptAnswer
from liza.api.api_requests import AcknowledgeRequest, PromptRequest
from liza.api.current_run import require_current_run
from liza.briefs import inbox
from liza.briefs.rules.message_rules import LIZA, Message, MessageChannel
from liza.crew.crew import Crew
from liza.model.errors import UsageError
from liza.model.paths import is_person
from liza.programs.rules.lifecycle_rules import WAITING_STATES
from liza.programs.session.run_directory import RunDir

STREAM_EVIDENCE = "stream"


def submit_prompt(crew: Crew, by: str, request: PromptRequest) -> PromptAnswer:
    """Store a prompt for the agent of a run. ``by``: the caller, a person or a run. A repeat with its key is answered
    with the prompt that is stored.

    Raises UnknownId, RunIsOver, QueueFull, UsageError, LizaError, OSError.
    """
    run_dir = crew.run_dir(request.run_id)
    require_current_run(run_dir)
    if request.key is None:
        message = _queue(crew, run_dir, by, request)
    else:
        mark = _key_mark(by, run_dir.run, request.key)
        with inbox.lock_inbox(crew.paths, run_dir.agent):
            earlier = inbox.find_marked(crew.paths, run_dir.agent, mark)
            message = earlier or _queue(crew, run_dir, by, request, mark)
        if (message.text, message.priority) != (request.content, request.priority):
            raise UsageError(f"key {request.key!r} is that of another prompt, {message.id}: use a new key")
    names = inbox.list_names(crew.paths, run_dir.agent)
    is_pending = message.id in names
    position = inbox.count_ahead(names, message.id) if is_pending else 0
    is_queued = is_pending and (position > 0 or not _is_waiting(run_dir))
    return PromptAnswer(accepted=True, queued=is_queued, position=position, id=message.id)


def _queue(crew: Crew, run_dir: RunDir, by: str, request: PromptRequest, mark: str = "") -> Message:
    return inbox.queue_message(
        crew.paths,
        run_dir.agent,
        request.content,
        _sender(by, request),
        crew.clock.now(),
        request.priority,
        source=request.source,
        task=request.metadata.task_id,
        mark=mark,
    )


def _key_mark(by: str, run: str, key: str) -> str:
    """Return the mark in the id of a message that a sender repeats with the same key."""
    return hashlib.sha256("\0".join((by, run, key)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def acknowledge_prompts(run_dir: RunDir, request: AcknowledgeRequest, now: datetime) -> AcknowledgeAnswer:
    """Record that the runtime has taken over these prompts. Unknown and acknowledged ids change nothing.

    Raises UnknownId, RunIsOver, LizaError, OSError.
    """
    require_current_run(run_dir)
    paths, agent, channel = run_dir.paths, run_dir.agent, MessageChannel.STREAM
    count = inbox.acknowledge(paths, agent, request.ids, run_dir.run, STREAM_EVIDENCE, now, channel)
    return AcknowledgeAnswer(acknowledged=count)


def _sender(by: str, request: PromptRequest) -> str:
    """Return the sender: a person may name another one, an agent may not."""
    sender = request.metadata.sender or by if is_person(by) else by
    if sender == LIZA:
        raise UsageError(f"metadata.from is {LIZA!r}, which is the sender of Liza's own messages")
    return sender


def _is_waiting(run_dir: RunDir) -> bool:
    turn = run_dir.read_turn()
    return turn is not None and turn.phase in WAITING_STATES
