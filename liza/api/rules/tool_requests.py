"""Tool calls as a program announces them: joined from several updates, and named in one vocabulary.

A permission request may hold only the id of a call whose title and input came earlier; another program sends no
announcement, and the input only in the title. Therefore updates and requests are merged by id, and the paths of the
command and of the file are data of the program's row.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from liza.model.value_classes import Value

TOOL_WORDS = {
    "execute": "shell",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "read": "read",
    "search": "read",
    "fetch": "fetch",
}
"""Word of Liza's vocabulary for each kind of tool of the protocol."""
OTHER_TOOL = "other"
MAX_CALLS = 512
"""Maximum number of calls that are remembered, to limit memory."""


class CallStatus(StrEnum):
    """Statuses in which a call is over."""

    COMPLETED = "completed"
    FAILED = "failed"


class ToolRequest(Value):
    """A tool call: ``tool`` in Liza's vocabulary, ``input`` with the keys ``command`` and ``path`` where known."""

    id: str
    tool: str
    title: str
    input: dict[str, Any]


class ToolPaths(Value):
    """Where a program's tool call holds the command of a shell call, and the file of any other: first match counts."""

    command: tuple[str, ...] = ("rawInput.command",)
    file: tuple[str, ...] = ("rawInput.file_path", "rawInput.path", "locations.*.path", "content.*.path")


class ToolBook:
    """The tool calls of a turn, by id."""

    def __init__(self, paths: ToolPaths) -> None:
        self._paths = paths
        self._calls: dict[str, dict[str, Any]] = {}

    def add(self, call: Mapping[str, Any]) -> str:
        """Merge an update or a request into its call, and return the call's id. Absent fields stay."""
        name = str(call.get("toolCallId") or "")
        merged = self._calls.setdefault(name, {})
        merged.update({key: value for key, value in call.items() if value not in (None, "", [], {})})
        if len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]
        return name

    def describe(self, name: str) -> ToolRequest:
        """Return the call as it is known so far."""
        call = self._calls.get(name, {})
        title = str(call.get("title") or "")
        tool = TOOL_WORDS.get(str(call.get("kind")), OTHER_TOOL)
        arguments = call.get("rawInput")
        values = dict(arguments) if isinstance(arguments, Mapping) else {}
        command = _first_text(call, self._paths.command)
        if command is not None and (tool == TOOL_WORDS["execute"] or "command" in values):
            tool = TOOL_WORDS["execute"]
            values["command"] = command
        path = _first_text(call, self._paths.file)
        if path is not None and tool != TOOL_WORDS["execute"]:
            values["path"] = path
        return ToolRequest(name, tool, title, values)

    def status(self, name: str) -> str:
        """Return the status that the program reported last."""
        return str(self._calls.get(name, {}).get("status") or "")

    def output(self, name: str) -> Any:
        """Return the result of the call as the program reported it."""
        call = self._calls.get(name, {})
        return call.get("rawOutput") if call.get("rawOutput") is not None else call.get("content")

    def close(self, name: str) -> None:
        """Forget a call that is over."""
        self._calls.pop(name, None)

    def has_open_call(self) -> bool:
        """Return whether a call is under way: then the model is not asked, and silence means nothing."""
        return any(self._calls)


def _first_text(call: Mapping[str, Any], paths: Sequence[str]) -> str | None:
    for path in paths:
        for value in _values_at(call, path.split(".")):
            if isinstance(value, str) and value:
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return _join_command(value)
    return None


def _values_at(value: Any, names: Sequence[str]) -> Iterable[Any]:
    if not names:
        yield value
    elif names[0] == "*" and isinstance(value, list):
        for item in value:
            yield from _values_at(item, names[1:])
    elif isinstance(value, Mapping) and names[0] in value:
        yield from _values_at(value[names[0]], names[1:])


def _join_command(words: Sequence[str]) -> str:
    """Return the words of a command as one line; of ``bash -lc TEXT`` only the text."""
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


class OptionKind(StrEnum):
    """Kinds of options that are chosen. Options for "always" are never chosen: some programs store them on disk."""

    ALLOW_ONCE = "allow_once"
    REJECT_ONCE = "reject_once"


def choose_option(options: Sequence[Any], *, allowed: bool) -> str | None:
    """Return the id of the first option of the right kind.

    None: there is no such option, and the request is to be answered with ``cancelled``, which blocks the tool.
    """
    wanted = OptionKind.ALLOW_ONCE if allowed else OptionKind.REJECT_ONCE
    for option in options:
        if isinstance(option, Mapping) and option.get("kind") == wanted and isinstance(option.get("optionId"), str):
            return str(option["optionId"])
    return None


def compose_outcome(option: str | None) -> dict[str, Any]:
    """Return the result of a permission request: the chosen option, or ``cancelled``."""
    outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
    return {"outcome": outcome}
