"""The rules of a session, prepared once for the judgment of many tools."""

from __future__ import annotations

from liza.rules.guards.command_pattern import CommandPattern
from liza.rules.guards.guard_rules import GuardRule
from liza.rules.guards.shell_table import ShellTable
from liza.rules.guards.word_matching import NO, match_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MAX_PROGRAMS = 1000
"""Programs whose rules are remembered. An agent chooses the names, so their number is limited."""


class PreparedRules:
    """The content of ``guards.json``. Raises KeyError or TypeError if that is not as it was written."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.tools: Mapping[str, Mapping[str, Any]] = data.get("tools", {})
        self.rules = [GuardRule(row) for row in data["rules"]]
        self.table = ShellTable(data.get("shell", {}))
        self.tests: str = (data.get("tests") or "").strip()
        # By rule and not by name: a rule of the project may have the name of a default.
        self._patterns: dict[int, list[CommandPattern]] = {}
        self._by_program: dict[str, Sequence[GuardRule]] = {}
        self._guarded: frozenset[str] | None = None

    def patterns_of(self, rule: GuardRule) -> list[CommandPattern]:
        """Return the patterns of a rule's commands."""
        patterns = self._patterns.get(id(rule))
        if patterns is None:
            patterns = self._patterns[id(rule)] = rule.patterns()
        return patterns

    def rules_for(self, program: str) -> Sequence[GuardRule]:
        """Return the rules that may concern a command of this program, in their order."""
        rules = self._by_program.get(program)
        if rules is None:
            rules = [rule for rule in self.rules if not rule.commands or self._may_name(rule, program)]
            if len(self._by_program) < MAX_PROGRAMS:
                self._by_program[program] = rules
        return rules

    def _may_name(self, rule: GuardRule, program: str) -> bool:
        return any(match_any(pattern.program, program) != NO for pattern in self.patterns_of(rule))

    @property
    def guarded_programs(self) -> frozenset[str]:
        """The names of programs that denying rules have in their patterns."""
        if self._guarded is None:
            words = (pattern.split()[0] for rule in self.rules if not rule.allow for pattern in rule.commands)
            self._guarded = frozenset(name for word in words for name in word.split("|") if "*" not in name)
        return self._guarded
