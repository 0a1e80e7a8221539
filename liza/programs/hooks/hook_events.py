"""Interpret a hook's event, and compose the reply. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from liza.model.value_classes import Value, replace
from liza.programs.hooks.hook_templates import HookEvent, HookMeaning, HookTemplate, fill_form
from liza.programs.hooks.turn_phase import TurnPhase
from liza.programs.session.run_directory import Turn

REFUSED_CODE = 2
_PHASES = {
    HookMeaning.STARTED: TurnPhase.STARTED,
    HookMeaning.BUSY: TurnPhase.BUSY,
    HookMeaning.IDLE: TurnPhase.IDLE,
    HookMeaning.TOOL: TurnPhase.BUSY,
    HookMeaning.STOPPED: TurnPhase.STOPPED,
}


class ReceivedEvent(Value):
    """One event. ``session`` is the program's id of the conversation, ``tool_input`` the tool's arguments,
    ``is_nested`` whether a sub-agent of the program sent it, ``prompt`` the prompt of a turn, ``directory`` where the
    program works."""

    event: HookEvent
    meaning: HookMeaning
    session: str | None = None
    tool: str = ""
    is_nested: bool = False
    tool_input: Any = None
    prompt: str = ""
    directory: str = ""


class HookReply(Value):
    """The output of the hook, and its exit code. Without output the program continues as if there were no hook."""

    out: str = ""
    err: str = ""
    code: int = 0


NO_REPLY = HookReply()


def parse_event(template: HookTemplate, event: str, data: Mapping[str, Any]) -> ReceivedEvent | None:
    """Interpret ``event`` with the data of the program; None if the template does not have the event."""
    hook_event = template.events.get(event)
    if hook_event is None:
        return None
    meaning = hook_event.means
    for field, values in hook_event.instead.items():
        meaning = values.get(str(data.get(field)), meaning)
    reads = template.reads
    session, tool, prompt = data.get(reads.session), data.get(reads.tool), data.get(reads.prompt)
    directory = data.get(reads.directory)
    return ReceivedEvent(
        hook_event,
        meaning,
        session if isinstance(session, str) and session else None,
        tool if isinstance(tool, str) else "",
        bool(reads.nested and data.get(reads.nested)),
        data.get(reads.input),
        prompt if isinstance(prompt, str) else "",
        directory if isinstance(directory, str) else "",
    )


def next_turn(before: Turn | None, now_heard: ReceivedEvent, now: datetime, *, is_pushed: bool = False) -> Turn | None:
    """Return the state of the turn after this event; None if the event is not from the run's own conversation.

    ``is_pushed``: the reply to the event makes the program continue.

    A session may start the same program again as a tool, which inherits the environment. An event of another
    conversation during a turn is therefore ignored: messages are not for that conversation.
    """
    if now_heard.is_nested:
        return None
    busy = before is not None and before.phase == TurnPhase.BUSY
    if before is not None and busy and before.session and now_heard.session not in (None, before.session):
        return None
    tools = (before.tools if before else 0) + (now_heard.meaning is HookMeaning.TOOL)
    if before is not None and before.is_reported:
        # Its runtime reports the phases. A second source in another order would contradict it.
        return replace(
            before, tools=tools, session=before.session or now_heard.session, pushes=before.pushes + is_pushed
        )
    pushes = before.pushes if before and now_heard.meaning is not HookMeaning.STARTED else 0
    session = now_heard.session or (before.session if before else None)
    phase = _next_phase(before, now_heard.meaning)
    if is_pushed:
        phase, pushes = TurnPhase.BUSY, pushes + 1
    return Turn(time=now, phase=phase, tools=tools, session=session, pushes=pushes)


def _next_phase(before: Turn | None, meaning: HookMeaning) -> str:
    """Return the phase after an event. A compaction changes none: a person can order it between two turns."""
    if meaning is HookMeaning.COMPACTION:
        return TurnPhase.BUSY if before is None else before.phase
    is_inner_start = before is not None and before.phase == TurnPhase.BUSY and meaning is HookMeaning.STARTED
    return TurnPhase.BUSY if is_inner_start else _PHASES[meaning]


def context_reply(now_heard: ReceivedEvent, text: str) -> HookReply:
    """Show ``text`` to the model; no reply if this event cannot carry a text, or the text is empty."""
    return _fill_reply(now_heard.event.context, text)


def push_reply(now_heard: ReceivedEvent, text: str) -> HookReply:
    """Make the program continue with ``text`` instead of ending its turn; no reply if this event cannot."""
    return _fill_reply(now_heard.event.push, text)


def refusal_reply(now_heard: ReceivedEvent, why: str) -> HookReply:
    """Stop the tool from running, and tell the model why."""
    form = now_heard.event.refuse
    return HookReply(err=f"{why}\n", code=REFUSED_CODE) if form is None else _fill_reply(form, why)


def _fill_reply(form: Any, text: str) -> HookReply:
    if form is None or not text:
        return NO_REPLY
    return HookReply(out=json.dumps(fill_form(form, text=text), ensure_ascii=False) + "\n")


def choose_brief_text(template: HookTemplate, block: str, short: str) -> str:
    """Return the brief, or the short prompt with its path if the program would truncate the brief."""
    return block if len(block) <= template.limit else short
