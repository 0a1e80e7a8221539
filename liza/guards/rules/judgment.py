"""Judge what a tool does: each act by the first rule that applies to it. What no rule concerns is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from liza.guards.rules.acts import (
    OTHER,
    SHELL,
    Act,
    Command,
    CommandPattern,
    GuardFacts,
    ShellCommand,
    match_command,
    match_glob,
)
from liza.guards.rules.guard_rules import ROLE_NAMES, GuardRule, ToolRow
from liza.guards.rules.tool_calls import ProgramTable, ScriptReader, read_tool
from liza.model.value_classes import Value, decodable

UNJUDGED_RULE = "cannot-be-judged"
TESTS_RULE = "tests"
BELOW = "**"  # component of a path pattern: directories at any depth


class Verdict(Value):
    """``reason`` tells the agent why not, and what to do instead; ``rule`` names the rule that decided."""

    allowed: bool
    reason: str | None = None
    rule: str | None = None


class PreparedRules:
    """The content of ``guards.json``, for the judgment of many tools. Raises KeyError, or msgspec.ValidationError."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.rules = msgspec.convert(data["rules"], decodable(list[GuardRule]))
        self.tools = msgspec.convert(_split_names(data.get("vocabulary", {})), decodable(dict[str, ToolRow]))
        shell = {key: _split_names(value) for key, value in data.get("programs", {}).items()}
        self.table: ProgramTable = msgspec.convert(shell, decodable(ProgramTable))
        self.tests: str = (data.get("tests") or "").strip()
        self.rules_for = lru_cache(maxsize=1000)(self._list_rules)

    def _list_rules(self, program: str) -> Sequence[tuple[GuardRule, Sequence[CommandPattern]]]:
        """Return the rules that may concern a program, each with those of its patterns that may."""
        rules = []
        for rule in self.rules:
            named = ((text, text.split(None, 1)[0].split("|")) for text in rule.commands if program)
            may = [CommandPattern(text) for text, names in named if any(match_glob(name, program) for name in names)]
            if may or not rule.commands:
                rules.append((rule, may))
        return rules


class ToolJudge:
    """Judges the tools of one session. ``parse`` parses shell scripts, and raises CannotJudge."""

    def __init__(self, rules: PreparedRules, facts: GuardFacts, parse: Callable[[str], Sequence[ShellCommand]]) -> None:
        self.rules, self.facts, self.parse = rules, facts, parse

    def judge(self, tool: str, given: object) -> Verdict:
        """Return the verdict on a tool call. Raises CannotJudge or ValueError if there can be none."""
        call, tests = read_tool(tool, given, self.rules.tools), self.rules.tests
        if call.kind == SHELL and tests and [text.strip() for text in call.texts] == [tests]:
            return Verdict(True, rule=TESTS_RULE)
        acts = call.acts(
            self.facts, lambda directory: ScriptReader(self.rules.table, self.facts, self.parse, directory)
        )
        verdict = Verdict(True)
        for act in dict.fromkeys(acts):
            decided = self._judge_act(act)
            if not decided.allowed:
                return decided
            verdict = decided if decided.rule is not None else verdict
        return verdict

    def _judge_act(self, act: Act) -> Verdict:
        command = Command(act.words or ("",), self.rules.table.values, self.facts.branch)
        parts = _components(self.facts.real(act.target) if act.target.startswith("/") else act.target)
        for rule, patterns in self.rules.rules_for(act.words[0] if act.words else ""):
            if (
                (rule.unconfined and self.facts.is_confined)
                or (rule.roles and self.facts.role not in [ROLE_NAMES.get(role, role) for role in rule.roles])
                or (rule.tools and not _names_tool(rule.tools, act.tool))
                or (rule.areas and act.tool == SHELL and act.area not in rule.areas)
                or (rule.commands and not any(match_command(pattern, command) for pattern in patterns))
            ):
                continue
            path = self._matched_path(rule, act, parts) if rule.paths else act.target
            if path is not None:
                return Verdict(rule.allow, None if rule.allow else self._denial(rule, act, path), rule.name)
        return Verdict(True)

    def _matched_path(self, rule: GuardRule, act: Act, parts: Sequence[str]) -> str | None:
        """Return the path of a rule that matches: the target, or what is removed with it; None without one."""
        for path in (self._fill_path(path) for path in rule.paths if act.target):
            wanted = _components(path)
            start = wanted.index(BELOW) if BELOW in wanted else len(wanted)
            is_match = _match(wanted[:start], parts)
            if not path.startswith("/"):
                is_match = match_glob(path, act.target) and path != ""
            elif start < len(wanted):
                is_match = is_match and any(_match(wanted[start + 1 :], parts[at:]) for at in range(start, len(parts)))
            elif act.is_tree and not rule.allow and len(parts) < len(wanted) and _match(parts, wanted):
                return path
            if is_match:
                return act.target
        return None

    def _fill_path(self, path: str) -> str:
        """Return the path with the variables filled in; empty if one of them is not known."""
        facts = self.facts
        name, brace, rest = path[1:].partition("}") if path.startswith("{") else ("", "", path)
        if rest.startswith("~/"):
            return facts.home + rest[1:] if facts.home else ""
        values = {"git": facts.root and f"{facts.root}/.git", "liza": facts.root and f"{facts.root}/.liza"}
        value = values.get(name) or str(getattr(facts, name, ""))
        return value + rest if value or not brace else ""

    def _denial(self, rule: GuardRule, act: Act, path: str) -> str:
        worktree = self.facts.worktree or "your worktree"
        reason = rule.reason.replace("{worktree}", worktree).replace("<branch>", self.facts.branch or "as it is")
        if rule.paths and path != act.target:
            reason = f"this also removes or moves {path}. Name what you want to remove, in {worktree} or in /tmp."
        return f"[liza] not run: {act.text}: {reason}"


def _split_names(rows: Any) -> Any:
    """Return the rows by each of their names: a key may be ``a|b``."""
    return {name: row for names, row in rows.items() for name in names.split("|")} if isinstance(rows, dict) else rows


def _names_tool(tools: Sequence[str], tool: str) -> bool:
    return any(match_glob(pattern, tool) or (pattern == OTHER and tool.startswith("other:")) for pattern in tools)


def _components(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part]


def _match(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Compare the first components. A wildcard at the beginning does not stand for the dot of a hidden name."""
    return len(parts) >= len(patterns) and all(
        any(match_glob(each, part) and not (each[:1] in ("*", "?") and part[:1] == ".") for each in pattern.split("|"))
        for pattern, part in zip(patterns, parts, strict=False)
    )
