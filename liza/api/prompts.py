"""Prompts and context: what a person, another agent or Liza tells a running session.

A prompt waits in the inbox of its agent. The context is the brief, for a runtime that gives its sections to its model
itself.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated

import msgspec

from liza.api.lifecycle import require_current_run
from liza.briefs import inbox
from liza.briefs.brief_context import gather_brief_facts
from liza.briefs.brief_writer import compose_sections
from liza.briefs.rules.context_rules import ContextMode, SectionType, select_sections
from liza.briefs.rules.message_rules import LIZA, Message, MessageChannel, PromptPriority
from liza.crew.crew import Crew
from liza.model.derived import find_current_work
from liza.model.errors import NotOwner, UsageError
from liza.model.paths import is_person
from liza.model.value_classes import MAX_TEXT, Label, RunId, WorkerAnswer, WorkerRequest
from liza.programs.rules.lifecycle_rules import WAITING_STATES
from liza.programs.session.run_directory import RunDir
from liza.text.quoting import sanitize

STREAM_EVIDENCE = "stream"
MAX_IDS = 1_000
"""Maximum number of events that one request acknowledges."""


class PromptMetadata(WorkerRequest, frozen=True, kw_only=True):
    """``sender`` is ``from`` in JSON: who wrote the prompt; ``task_id``: the task that it is about."""

    sender: Label | None = msgspec.field(default=None, name="from")
    task_id: Label | None = None


class PromptRequest(WorkerRequest, frozen=True, kw_only=True):
    """A prompt for a run. ``source`` names the kind of sender, for example ``note`` or ``mail``. ``key``: of several
    requests of a sender with the same key, one stores the prompt; a client uses it to try again after a lost answer."""

    run_id: RunId
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT)]
    priority: PromptPriority = PromptPriority.NORMAL
    source: Label = "note"
    metadata: PromptMetadata = PromptMetadata()
    key: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None


class PromptAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """``queued``: it waits, behind ``position`` other prompts of the run; ``id`` is that of its event on the stream."""

    accepted: bool
    queued: bool
    position: int
    id: str


class AcknowledgeRequest(WorkerRequest, frozen=True, kw_only=True):
    """The ids of events of the run's stream that the runtime has taken over: they are not delivered again."""

    run_id: RunId
    ids: Annotated[tuple[Label, ...], msgspec.Meta(max_length=MAX_IDS)]


class AcknowledgeAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """How many of the ids were open until now."""

    acknowledged: int


class ContextRequest(WorkerRequest, frozen=True, kw_only=True):
    """Ask for the sections of a run's context."""

    run_id: RunId
    mode: ContextMode = ContextMode.FULL


class ContextSection(WorkerAnswer, frozen=True, kw_only=True):
    """One section of a context, in Markdown."""

    type: SectionType
    content: str


class ContextAnswer(WorkerAnswer, frozen=True, kw_only=True):
    """The sections in the order in which the model reads them. An empty section is left out."""

    run_id: str
    sections: tuple[ContextSection, ...]
    mode: ContextMode


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


def compose_context(crew: Crew, request: ContextRequest) -> ContextAnswer:
    """Return the sections for the run's present work.

    A run whose runtime reports gets its messages as prompts, so the section ``mail`` has only the notes on the board.
    Raises UnknownId, RunIsOver, NotOwner if the run has no claim any more, LizaError, OSError.
    """
    run_dir = crew.run_dir(request.run_id)
    require_current_run(run_dir)
    state = crew.board.read()
    work = find_current_work(state, run_dir.agent)
    if work is None or work.run != run_dir.run:
        raise NotOwner(f"{run_dir.run} has no claim any more", f"liza agents {run_dir.agent}")
    turn = run_dir.read_turn()
    messages = () if turn is not None and turn.is_reported else None
    facts = gather_brief_facts(crew, state, work, run_dir, messages)
    sections = select_sections(compose_sections(facts), request.mode)
    return ContextAnswer(
        run_id=run_dir.run,
        mode=request.mode,
        sections=tuple(ContextSection(type=section.type, content=sanitize(section.text)) for section in sections),
    )
