"""The rules of a session, prepared once for the judgment of many tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from liza.rules.guards.command_pattern import CommandPattern
from liza.rules.guards.guard_rules import GuardRule
from liza.rules.guards.shell_table import ShellTable
from liza.rules.guards.word_matching import NO, match_any

ConcernedRule = tuple[GuardRule, Sequence[CommandPattern]]
MAX_COMMANDS = 1000
"""Programs with their first arguments whose rules are remembered. An agent chooses these, so the number is limited."""


class PreparedRules:
    """The content of ``guards.json``. Raises KeyError or TypeError if that is not as it was written."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.tools: Mapping[str, Mapping[str, Any]] = data.get("tools", {})
        self.rules = [GuardRule(row) for row in data["rules"]]
        self.table = ShellTable(data.get("shell", {}))
        self.tests: str = (data.get("tests") or "").strip()
        self._patterns: Sequence[ConcernedRule] | None = None
        self._by_command: dict[tuple[str, str], Sequence[ConcernedRule]] = {}
        self._guarded: frozenset[str] | None = None

    def rules_for(self, program: str, first: str = "") -> Sequence[ConcernedRule]:
        """Return the rules that may concern a command, in their order, each with those of its patterns that may.

        ``first`` is the command's first argument, such as the subcommand of git; empty if it is not known.
        """
        key = (program, first)
        rules = self._by_command.get(key)
        if rules is None:
            if self._patterns is None:
                self._patterns = [(rule, rule.patterns()) for rule in self.rules]
            rules = [
                (rule, may)
                for rule, patterns in self._patterns
                if (may := [pattern for pattern in patterns if _may_match(pattern, program, first)]) or not patterns
            ]
            if len(self._by_command) < MAX_COMMANDS:
                self._by_command[key] = rules
        return rules

    @property
    def guarded_programs(self) -> frozenset[str]:
        """The names of programs that denying rules have in their patterns."""
        if self._guarded is None:
            words = (pattern.split()[0] for rule in self.rules if not rule.allow for pattern in rule.commands)
            self._guarded = frozenset(name for word in words for name in word.split("|") if "*" not in name)
        return self._guarded


def _may_match(pattern: CommandPattern, program: str, first: str) -> bool:
    if match_any(pattern.program, program) == NO:
        return False
    if not first or not pattern.arguments or any(word[:1] == "<" for word in pattern.arguments[0]):
        return True
    return match_any(pattern.arguments[0], first) != NO
