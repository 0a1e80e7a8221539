"""Guard rules and rows of tools, as `guards.toml` has them; their errors; and the names of the files of guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from liza.guards.rules.acts import AREAS, FETCH, OTHER, READ, SHELL, WRITE
from liza.model.paths import ROLES
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import Value, decodable, field

GUARDS_TOML = "guards.toml"  # the project's rules, in ``.liza``
GUARDS_FILE = "guards.json"  # the rules and facts of a session, in the directory of its run
DENIALS_FILE = "denials.jsonl"  # the denials of a session, in the directory of its run
ROLE_NAMES = {"reviewer": "code-reviewer", "code_reviewer": "code-reviewer"}
TYPED = "typed"  # tool that types text, which may not be a script, into a command that runs
TOOLS = (SHELL, READ, WRITE, FETCH, OTHER)
PATH_VARIABLES = ("{worktree}", "{root}", "{slots}", "{home}", "{git}", "{liza}", "{state}")
MAX_PATTERN = 1000  # characters


class GuardRule(Value):
    """One rule. It applies to an act if all its conditions hold; an empty list is no condition. What is below a path of
    ``paths`` matches too. ``areas``: where the command runs. ``unconfined``: only for a session without a box."""

    name: str
    allow: bool = False
    unconfined: bool = False
    reason: str = ""
    roles: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    areas: tuple[str, ...] = ()


class ToolRow(Value, forbid_unknown_fields=True):
    """A tool: its name in the vocabulary, and keys of its input. ``unless``: a key, and values with which it reads."""

    kind: str = field(name="is", default=SHELL)
    key: tuple[str, ...] = ()
    patch: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


def find_rule_errors(rows: Sequence[Any]) -> list[str]:
    """Return the errors of a list of rules; each names the rule and the field."""
    errors: list[str] = []
    names: set[str] = set()
    for number, row in enumerate(rows, 1):
        name = row.get("name") if isinstance(row, dict) else None
        where = f"rule {name!r}" if isinstance(name, str) and name else f"rule {number}"
        try:
            rule = msgspec.convert(row, decodable(GuardRule))
        except msgspec.ValidationError as error:
            errors.append(f"{where}, {describe_decode_error(error, GuardRule)}")
            continue
        fields = GuardRule.__struct_fields__
        errors += [f"{where}, {key}: unknown field; there are {', '.join(fields)}" for key in row if key not in fields]
        errors += [f"{where}, {error}" for error in _rule_errors(rule)]
        if rule.name in names:
            errors.append(f"{where}, name: another rule has it already")
        names.add(rule.name)
    return errors


def find_tool_errors(tools: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of the section ``tools``; each names the tool."""
    for name, row in tools.items():
        try:
            kind = msgspec.convert(row, decodable(ToolRow)).kind
            error = "" if kind == TYPED else _entry_error("tools", kind)
            error = f"is: {kind!r} {error}" if error else ""
        except msgspec.ValidationError as problem:
            error = describe_decode_error(problem, ToolRow)
        if error or name != name.casefold():
            yield f"tools.{name}, {error or 'names are written in small letters'}"


def _rule_errors(rule: GuardRule) -> Iterator[str]:
    if not rule.name:
        yield "name: must be a text"
    if not rule.allow and not rule.reason.strip():
        yield "reason: a rule that denies must tell the agent what to do instead"
    if not (rule.tools or rule.commands or rule.paths):
        yield "tools: a rule needs at least one of tools, commands and paths"
    for key in ("roles", "tools", "commands", "paths", "areas"):
        for entry in getattr(rule, key):
            if error := _entry_error(key, entry):
                yield f"{key}: {entry[:40]!r} {error}"


def _entry_error(key: str, entry: str) -> str:
    if not entry.strip() or len(entry) > MAX_PATTERN:
        return f"must have 1 to {MAX_PATTERN} characters"
    if key == "roles" and entry not in (*ROLES, *ROLE_NAMES):
        return f"is no role; there are {', '.join(ROLES)}"
    if key == "tools" and entry not in TOOLS and not entry.startswith(("mcp:", "other:")):
        return f"is no tool; there are {', '.join(TOOLS)} and mcp:SERVER/TOOL"
    if key == "areas" and entry not in AREAS:
        return f"is no area; there are {', '.join(AREAS)}"
    words = entry.split()
    if key == "commands" and words[0][:1] in ("-", "@", "$"):
        return "must begin with the name of a program"
    if key == "commands" and any(not part for word in words for part in word.split("|")):
        return "has an empty alternative"
    if key == "commands" and "$" in words[:-1]:
        return "has $ before the last word"
    if key == "paths" and entry.startswith("{"):
        start, brace, rest = entry.partition("}")
        if start + brace not in PATH_VARIABLES or rest[:1] not in ("", "/"):
            return f"must begin with one of {', '.join(PATH_VARIABLES)}, and a slash"
    elif key == "paths" and not entry.startswith(("/", "*", "~/", "http")):
        return "must be absolute, or begin with {worktree}, {root}, ~/ or *"
    return ""
