"""The template of a program's hooks: what each event means, and how the reply is written."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from liza.model.errors import LizaError, UsageError
from liza.model.value_classes import FrozenStruct, Value, decodable, replace
from liza.programs.session.run_directory import Turn

REFUSED_CODE = 2


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


TEMPLATES = Path(__file__).with_name("templates")


class HookMeaning(StrEnum):
    """What an event of a program tells Liza."""

    STARTED = "started"
    BUSY = "busy"
    IDLE = "idle"
    TOOL = "tool"
    """A tool is about to run."""
    COMPACTION = "compaction"
    """The conversation is shortened."""
    STOPPED = "stopped"


class HookEvent(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the program's events, and its meaning for Liza.

    ``instead`` maps a field of the event's data, and its values, to other meanings. ``context`` is the reply that shows
    a text to the model, ``push`` the one that makes the program continue with a text instead of ending its turn,
    ``refuse`` the one that stops a tool from running; ``{text}`` is replaced by the text. A reply without a form cannot
    be given. A refusal without a form is exit code 2, with the text on stderr. ``seconds``: how long the program waits
    for the reply. ``is_confirmed``: the program may end without the pushed text, so a push is no evidence that it was
    read; the next turn's prompt, which contains the text, is. ``entry`` replaces that of the file.
    """

    means: HookMeaning
    seconds: int = 20
    instead: dict[str, dict[str, HookMeaning]] = msgspec.field(default_factory=dict)
    context: Any = None
    push: Any = None
    is_confirmed: bool = False
    refuse: Any = None
    entry: Any = None


class HookFields(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Keys of an event's data: the id of the conversation, the tool's name and arguments, the prompt of a turn, and the
    directory in which the program works.

    ``nested`` is a key that is present only if a sub-agent of the program sent the event.
    """

    session: str = "session_id"
    tool: str = "tool_name"
    input: str = "tool_input"
    prompt: str = "prompt"
    nested: str = ""
    directory: str = "cwd"


class HookFile(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A file to write: ``name`` below the run's own hooks directory, or ``worktree`` relative to the worktree.

    Its contents are ``text``, or ``script`` (a file beside the template), or ``each`` once per event, or the object
    ``whole``, in which ``{events}`` becomes all events with their ``entry``. ``inherits``: files, or ``$NAME`` for a
    variable with a path, of which the program reads the first; given Liza's file it reads none of them, so their
    contents are merged into it. ``comment`` starts a comment line: if the project has the file already, Liza's part is
    added between two such lines; without it, a file of the project is not changed.
    """

    name: str = ""
    worktree: str = ""
    text: str = ""
    script: str = ""
    each: str = ""
    whole: Any = None
    entry: Any = None
    inherits: tuple[str, ...] = ()
    comment: str = ""


class HookTemplate(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One program's hooks.

    In arguments and texts ``{dir}`` is the run's hooks directory, ``{event}`` and ``{command}`` an event and the
    command for it, ``{quoted}`` that command in double quotes, ``{words}`` the argv to which an event is appended,
    ``{unjudged}`` what refuses a tool if that argv gives no verdict, ``{seconds}`` the time limit of an event,
    ``{snake}`` the event in lower case with underscores, ``{digest}`` the sha256 of the object ``digest_of``, as JSON
    without blanks and with sorted keys: a program may use it to identify what a person has trusted.

    ``args`` follow the program's own, and ``{each}`` in one of them is ``each`` for all events, joined by commas;
    ``each_args`` follow once per event; ``env`` is text; ``env_json`` are objects that are merged into those in the
    variables. ``limit``: maximum length of a context text, in characters. ``pushes``: maximum pushes in one turn.
    """

    verified: str
    args: tuple[str, ...] = ()
    each: str = ""
    each_args: tuple[str, ...] = ()
    digest_of: Any = None
    env: dict[str, str] = msgspec.field(default_factory=dict)
    env_json: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    files: tuple[HookFile, ...] = ()
    reads: HookFields = HookFields()
    events: dict[str, HookEvent] = msgspec.field(default_factory=dict)
    limit: int = 100_000
    pushes: int = 50


def list_providers() -> frozenset[str]:
    """Return the hook providers that have a template."""
    return frozenset(file.stem for file in TEMPLATES.glob("*.toml"))


@functools.cache
def list_worktree_files() -> frozenset[str]:
    """Return the files of a worktree that any template adds hooks to."""
    return frozenset(file.worktree for name in list_providers() for file in load_template(name).files if file.worktree)


def load_template(provider: str) -> HookTemplate:
    """Load the template of a provider. Raises UsageError if it has no template, LizaError if it is invalid."""
    path = TEMPLATES / f"{provider}.toml"
    if not provider.replace("-", "").isalnum() or not path.is_file():
        raise UsageError(f"there are no hooks for {provider!r}", "liza programs list")
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), decodable(HookTemplate))
    except (ValueError, msgspec.ValidationError) as error:
        raise LizaError(f"{path} cannot be read: {error}") from error


def fill_form(form: Any, **words: Any) -> Any:
    """Fill in each ``{word}`` of a form.

    A text that is exactly one placeholder is replaced by its value, of any type. Unknown placeholders are kept.
    """
    if isinstance(form, str):
        for name, value in words.items():
            if form == f"{{{name}}}":
                return value
            if isinstance(value, str | int):
                form = form.replace(f"{{{name}}}", str(value))
        return form
    if isinstance(form, dict):
        return {fill_form(key, **words): fill_form(value, **words) for key, value in form.items()}
    if isinstance(form, list):
        return [fill_form(item, **words) for item in form]
    return form


class TurnPhase(StrEnum):
    """Phase of the turn in ``turn.json``."""

    STARTED = "started"
    """The program has started, and has no prompt yet."""
    READY = "ready"
    """Its runtime accepts the first prompt. Hooks do not report it."""
    BUSY = "busy"
    IDLE = "idle"
    """The turn is over."""
    STOPPING = "stopping"
    """Its runtime is about to end the program. Hooks do not report it."""
    STOPPED = "stopped"
    """The program ends, or its runtime has ended it."""


_PHASES = {
    HookMeaning.STARTED: TurnPhase.STARTED,
    HookMeaning.BUSY: TurnPhase.BUSY,
    HookMeaning.IDLE: TurnPhase.IDLE,
    HookMeaning.TOOL: TurnPhase.BUSY,
    HookMeaning.STOPPED: TurnPhase.STOPPED,
}
