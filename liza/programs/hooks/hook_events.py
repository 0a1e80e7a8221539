"""What a program said through one of its hooks, and what Liza answers. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from liza.programs.hooks.hook_templates import EventMeaning, HookEvent, HookTemplate, fill_form
from liza.programs.session.run_directory import Turn

REFUSED_CODE = 2


@dataclass(frozen=True)
class ReceivedEvent:
    """One event. ``session`` is the program's id of the conversation, ``given`` what the tool is called with,
    ``nested`` whether a helper of its own spoke, ``prompt`` what a turn begins with."""

    event: HookEvent
    meaning: EventMeaning
    session: str | None = None
    tool: str = ""
    is_nested: bool = False
    tool_input: Any = None
    prompt: str = ""


@dataclass(frozen=True)
class HookReply:
    """What the hook prints, and its exit code. Nothing at all lets the program go on as if there were no hook."""

    out: str = ""
    err: str = ""
    code: int = 0


NO_REPLY = HookReply()


def parse_event(template: HookTemplate, event: str, said: Mapping[str, Any]) -> ReceivedEvent | None:
    """What ``event`` with what the program said means; None for an event that the template does not know."""
    found = template.events.get(event)
    if found is None:
        return None
    means = found.means
    for field, values in found.instead.items():
        means = values.get(str(said.get(field)), means)
    reads = template.reads
    session, tool, prompt = said.get(reads.session), said.get(reads.tool), said.get(reads.prompt)
    return ReceivedEvent(
        found,
        means,
        session if isinstance(session, str) and session else None,
        tool if isinstance(tool, str) else "",
        bool(reads.nested and said.get(reads.nested)),
        said.get(reads.input),
        prompt if isinstance(prompt, str) else "",
    )


def next_turn(before: Turn | None, now_heard: ReceivedEvent, now: datetime) -> Turn | None:
    """Where the turn stands after this; None where it is not the run's own conversation that spoke.

    A session may start the same program once more as one of its tools, and that one inherits the environment: another
    conversation that speaks while a turn is under way is not the one that messages are for.
    """
    if now_heard.is_nested:
        return None
    busy = before is not None and before.phase == "busy"
    if before is not None and busy and before.session and now_heard.session not in (None, before.session):
        return None
    tools = (before.tools if before else 0) + (now_heard.meaning == "tool")
    pushes = before.pushes if before and now_heard.meaning != "started" else 0
    phase = {"tool": "busy", "compaction": "busy"}.get(now_heard.meaning, now_heard.meaning)
    if phase == "started" and busy:
        phase = "busy"
    session = now_heard.session or (before.session if before else None)
    return Turn(time=now, phase=phase, tools=tools, session=session, pushes=pushes)


def context_reply(now_heard: ReceivedEvent, text: str) -> HookReply:
    """``text`` before the model's eyes; silence where this event cannot carry one, or there is no text."""
    return _fill_reply(now_heard.event.context, text)


def push_reply(now_heard: ReceivedEvent, text: str) -> HookReply:
    """Have the program go on with ``text`` instead of ending its turn; silence where it cannot be told so."""
    return _fill_reply(now_heard.event.push, text)


def refusal_reply(now_heard: ReceivedEvent, why: str) -> HookReply:
    """Keep the tool from running, and tell the model why."""
    form = now_heard.event.refuse
    return HookReply(err=f"{why}\n", code=REFUSED_CODE) if form is None else _fill_reply(form, why)


def _fill_reply(form: Any, text: str) -> HookReply:
    if form is None or not text:
        return NO_REPLY
    return HookReply(out=json.dumps(fill_form(form, text=text), ensure_ascii=False) + "\n")


def choose_brief_text(template: HookTemplate, block: str, short: str) -> str:
    """The brief, or, where the program would cut it, the few words that say where it lies."""
    return block if len(block) <= template.limit else short
