"""Parse the usual words of frequent commands without the option parser, whose import takes 30 to 40 ms of CPU time.

Words that are not certain to mean the same there are left to it, and so are all errors of usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple


class QuickCommand(NamedTuple):
    """The words of a command, with the parameters of its function in ``fast_commands``.

    ``arguments`` are in order, the first ``required`` of them must be given. ``values``, ``lists`` and ``flags`` are
    options with one value, with repeated values and without a value.
    """

    arguments: tuple[str, ...] = ()
    required: int = 0
    values: Mapping[str, str] = {}
    lists: Mapping[str, str] = {}
    flags: Mapping[str, str] = {}


QUICK_COMMANDS: Final[Mapping[str, QuickCommand]] = {
    "ready": QuickCommand(),
    "submit": QuickCommand(),
    "heartbeat": QuickCommand(),
    "status": QuickCommand(),
    "verdict": QuickCommand(("word", "text"), 2, {"--task": "task", "--commit": "commit"}),
    "block": QuickCommand(("why",), 1, lists={"--ask": "ask"}),
    "handoff": QuickCommand(
        ("done",),
        1,
        {"--next": "next_step", "--approach": "approach", "--blockers": "blockers"},
        {"--file": "file", "--step": "step"},
        {"--done": "planned"},
    ),
    "exit": QuickCommand(("code",), 1),
    "claim": QuickCommand(("task_id",), 0, {"--agent": "agent"}),
    "note": QuickCommand(("text",), 1, {"--to": "to", "--priority": "priority"}, flags={"--now": "now"}),
    "merge": QuickCommand(("task_id",), 0, {"--for": "supervisor"}),
}
"""Every command also has ``--json``."""

_NEEDED: Final = {"claim": "agent"}
"""Options without which the option parser reports an error."""


def parse_words(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the parameters that the words of a command give; None if the option parser must read them."""
    command = QUICK_COMMANDS.get(words[0]) if words else None
    if command is None or not all(words):
        return None
    given: dict[str, Any] = {}
    arguments: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            arguments.append(word)
        elif (name := _flag(command, word)) is not None and name not in given:
            given[name] = True
        elif not _take_value(command, word, next(rest, None), given):
            return None
    is_complete = command.required <= len(arguments) <= len(command.arguments)
    if not is_complete or _NEEDED.get(words[0]) not in (None, *given):
        return None
    return given | dict(zip(command.arguments, arguments, strict=False))


def _flag(command: QuickCommand, word: str) -> str | None:
    return "as_json" if word == "--json" else command.flags.get(word)


def _take_value(command: QuickCommand, option: str, value: str | None, given: dict[str, Any]) -> bool:
    """Store the value of an option; return False if the option parser must read it."""
    if value is None or value.startswith("-"):
        return False
    if option in command.lists:
        given.setdefault(command.lists[option], []).append(value)
        return True
    name = command.values.get(option)
    if name is None or name in given:
        return False
    given[name] = value
    return True
