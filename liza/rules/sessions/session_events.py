"""What happened in a session of an agent program, in one form for all programs. Pure.

A reader of `programs/events` makes these events of a program's output; `liza logs` prints them.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from liza.rules.sessions.spending import TokenUsage
from liza.rules.value_classes import Value, field

_SHELLS = {"bash", "sh", "zsh"}


class Outcome(StrEnum):
    """How a tool call ended. REFUSED: the program did not run it. ENDED: it does not tell whether a command failed."""

    OK = "ok"
    ENDED = "ended"
    FAILED = "failed"
    REFUSED = "refused"


class SessionBegan(Value):
    """The program has begun a conversation, or continues one. ``model`` may be empty."""

    conversation: str
    model: str = ""


class Prompted(Value):
    """A prompt that reaches the model: the brief, or a message of a person or of Liza."""

    text: str


class ModelText(Value):
    """Text of the model."""

    text: str


class ModelThought(Value):
    """Text in which the model thinks, if the program shows it."""

    text: str


class FileEdit(Value):
    """A file that a tool call changes: ``added`` and ``removed`` lines; None if the program does not tell them."""

    path: str
    added: int | None = None
    removed: int | None = None


class ToolCalled(Value):
    """The model calls a tool. ``call`` is the id of the call, ``arguments`` what the program names so."""

    call: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[FileEdit, ...] = ()

    @property
    def command(self) -> str:
        """The command that it runs; empty if it is no command. Codex names the shell that runs it, too."""
        command = self.arguments.get("command") or ""
        text = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
        try:
            words = shlex.split(text)
        except ValueError:
            return text
        match words:
            case [shell, "-c" | "-lc", script] if shell.rpartition("/")[2] in _SHELLS:
                return script
        return text


class ToolReturned(Value):
    """A tool call has ended. ``exit_code``: of a command, if the program reports it."""

    call: str
    text: str = ""
    outcome: Outcome = Outcome.OK
    exit_code: int | None = None

    @property
    def is_failure(self) -> bool:
        """Whether it was refused, or is known to have failed."""
        return self.outcome in (Outcome.FAILED, Outcome.REFUSED) or bool(self.exit_code)


class CallsRefused(Value):
    """The program tells afterwards that it refused these calls."""

    calls: tuple[str, ...]


class TurnEnded(Value):
    """The program reports what it used: ``usage`` as `programs/usage` reads it, None if it does not tell."""

    usage: TokenUsage | None = None


class Failed(Value):
    """The program or its model reports an error: why there is no answer, or why the session ends."""

    text: str


class Noticed(Value):
    """The program reports an event that a person may want to know, such as a compaction."""

    text: str


class Unknown(Value):
    """An object that the reader of the format does not know: its text as it was printed."""

    text: str


class Printed(Value):
    """A line of text: of a program without a format, or of something beside it."""

    text: str


SessionEvent: TypeAlias = (
    SessionBegan
    | Prompted
    | ModelText
    | ModelThought
    | ToolCalled
    | ToolReturned
    | CallsRefused
    | TurnEnded
    | Failed
    | Noticed
    | Unknown
    | Printed
)


class LoggedEvent(Value):
    """An event of a run, with the time at which its line arrived; None if that was not recorded.

    ``parent``: the id of the call that started the sub-agent; empty for the main agent.
    """

    agent: str
    run: str
    time: datetime | None
    event: SessionEvent
    parent: str = ""


def count_edit(before: str, after: str) -> tuple[int, int]:
    """Return how many lines a replacement of ``before`` by ``after`` adds and removes."""
    changes = difflib.SequenceMatcher(a=before.splitlines(), b=after.splitlines(), autojunk=False).get_opcodes()
    added = sum(end - start for change, _, _, start, end in changes if change != "equal")
    removed = sum(end - start for change, start, end, _, _ in changes if change != "equal")
    return added, removed


class RefusedCall(Value):
    """A tool call that the program did not run: what was called, and the reason."""

    what: str
    reason: str


def find_refused_calls(events: Iterable[SessionEvent]) -> tuple[RefusedCall, ...]:
    """Return the calls that the program refused, in their order."""
    read = list(events)
    refused = {call for event in read if isinstance(event, CallsRefused) for call in event.calls}
    results = {event.call: event for event in read if isinstance(event, ToolReturned)}
    calls = []
    for event in read:
        result = results.get(event.call) if isinstance(event, ToolCalled) else None
        is_refused = result is not None and (result.outcome is Outcome.REFUSED or result.call in refused)
        if isinstance(event, ToolCalled) and result is not None and is_refused:
            what = event.command or event.name
            calls.append(RefusedCall(what, result.text.strip().partition("\n")[0]))
    return tuple(calls)
