"""Guard rules: their fields, and the errors in a file of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.rules.guards.acts import AREAS
from liza.rules.guards.command_pattern import MAX_PATTERN, CommandPattern
from liza.rules.paths import ROLES

ROLE_NAMES = {"reviewer": "code-reviewer", "code_reviewer": "code-reviewer"}
TOOLS = ("shell", "read", "write", "fetch", "other")
NAMED_TOOLS = ("mcp:", "other:")
FIELDS = ("name", "allow", "certain", "reason", "roles", "tools", "commands", "paths", "areas")
PATH_VARIABLES = ("worktree", "root", "slots", "home", "git", "liza", "state")
MAX_RULES = 500
MAX_ENTRIES = 200  # of a list of a rule


class GuardRule:
    """One rule. It applies to an act if all its conditions hold; an empty list is no condition.

    ``commands``: patterns of commands. ``paths``: patterns of paths, with ``{worktree}`` and the like; what is below a
    matching path matches too. ``areas``: where the command runs. ``certain``: it does not apply to what it only may
    match, because a word is not known.
    """

    __slots__ = ("allow", "areas", "certain", "commands", "name", "paths", "reason", "roles", "source", "tools")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.name: str = row["name"]
        self.allow: bool = row.get("allow", False)
        self.certain: bool = row.get("certain", False)
        self.reason: str = row.get("reason", "")
        self.roles: Sequence[str] = [ROLE_NAMES.get(role, role) for role in row.get("roles", ())]
        self.tools: Sequence[str] = row.get("tools", ())
        self.commands: Sequence[str] = row.get("commands", ())
        self.paths: Sequence[str] = row.get("paths", ())
        self.areas: Sequence[str] = row.get("areas", ())

    def patterns(self) -> list[CommandPattern]:
        """Return the patterns of its commands."""
        return [CommandPattern(text) for text in self.commands]


def find_rule_errors(rows: object) -> list[str]:
    """Return the errors of a list of rules; each names the rule and the field."""
    if not isinstance(rows, list):
        return ["rule: must be a list of tables, [[rule]]"]
    if len(rows) > MAX_RULES:
        return [f"rule: there are {len(rows)} rules, and at most {MAX_RULES} are accepted"]
    errors: list[str] = []
    names: set[str] = set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            errors.append(f"rule {number}: must be a table, [[rule]]")
            continue
        name = row.get("name")
        where = f"rule {name!r}" if isinstance(name, str) and name else f"rule {number}"
        errors += [f"{where}, {error}" for error in _row_errors(row)]
        if isinstance(name, str) and name in names:
            errors.append(f"{where}, name: another rule has it already")
        names.add(str(name))
    return errors


def _row_errors(row: Mapping[str, Any]) -> list[str]:
    errors = [f"{key}: unknown field; there are {', '.join(FIELDS)}" for key in row if key not in FIELDS]
    if not isinstance(row.get("name"), str) or not row.get("name"):
        errors.append("name: must be a text")
    allow, reason = row.get("allow", False), row.get("reason", "")
    for key in ("allow", "certain"):
        if not isinstance(row.get(key, False), bool):
            errors.append(f"{key}: must be true or false, not {row[key]!r}")
    if not isinstance(reason, str) or len(reason) > 1000:
        errors.append("reason: must be a text of at most 1000 characters")
    elif allow is False and not reason.strip():
        errors.append("reason: a rule that denies must tell the agent what to do instead")
    lists = {key: row.get(key, []) for key in ("roles", "tools", "commands", "paths", "areas")}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(entry, str) and entry.strip() for entry in value):
            errors.append(f"{key}: must be a list of texts")
        elif len(value) > MAX_ENTRIES:
            errors.append(f"{key}: has {len(value)} entries, and at most {MAX_ENTRIES} are accepted")
        else:
            errors += [f"{key}: {error}" for entry in value if (error := _entry_error(key, entry)) is not None]
    if not any(lists[key] for key in ("tools", "commands", "paths")):
        errors.append("tools: a rule needs at least one of tools, commands and paths")
    return errors


def _entry_error(key: str, entry: str) -> str | None:
    if len(entry) > MAX_PATTERN:
        return f"{entry[:40]!r}… is longer than {MAX_PATTERN} characters"
    if key == "roles" and entry not in (*ROLES, *ROLE_NAMES):
        return f"{entry!r} is no role; there are {', '.join(ROLES)}"
    if key == "tools" and entry not in TOOLS and not entry.startswith(NAMED_TOOLS):
        return f"{entry!r} is no tool; there are {', '.join(TOOLS)} and mcp:SERVER/TOOL"
    if key == "areas" and entry not in AREAS:
        return f"{entry!r} is no area; there are {', '.join(AREAS)}"
    if key == "commands":
        return _command_error(entry)
    if key == "paths":
        return _path_error(entry)
    return None


def _command_error(entry: str) -> str | None:
    words = entry.split()
    if words[0][:1] in ("-", "@", "$"):
        return f"{entry!r} must begin with the name of a program"
    if any(not part for word in words for part in word.split("|")):
        return f"{entry!r} has an empty alternative"
    if "$" in words[:-1]:
        return f"{entry!r}: $ may only be the last word"
    return None


def _path_error(entry: str) -> str | None:
    if entry.startswith("{"):
        name = entry[1:].partition("}")[0]
        if name not in PATH_VARIABLES or "}" not in entry:
            return f"{entry!r}: there are only {', '.join('{' + variable + '}' for variable in PATH_VARIABLES)}"
        rest = entry.partition("}")[2]
        return None if rest == "" or rest.startswith("/") else f"{entry!r}: a slash must follow the brace"
    if not entry.startswith(("/", "*", "~/", "http")):
        return f"{entry!r} must be absolute, or begin with {{worktree}}, {{root}}, ~/ or *"
    return None
