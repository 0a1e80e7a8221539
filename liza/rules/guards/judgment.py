"""Judge what a tool does: each act by the first rule that applies to it. What no rule concerns is allowed.

An allowing rule applies only if it certainly matches. A denying rule also applies if it may match, because a word of
the command is not known before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from liza.rules.guards.acts import OTHER, SHELL, UNKNOWN, Act, GuardFacts
from liza.rules.guards.command_pattern import Command, CommandPattern, match_command
from liza.rules.guards.guard_rules import GuardRule
from liza.rules.guards.prepared_rules import ConcernedRule, PreparedRules
from liza.rules.guards.word_matching import FILES, MARK, MAYBE, NO, YES, is_known, is_unknown, match_glob

UNJUDGED_RULE = "cannot-be-judged"
BELOW = "**"
"""Component of a path pattern: directories at any depth."""


class Verdict:
    """``reason`` tells the agent why not, and what to do instead; ``rule`` names the rule that decided."""

    __slots__ = ("allowed", "reason", "rule")

    def __init__(self, allowed: bool, reason: str | None = None, rule: str | None = None) -> None:
        self.allowed, self.reason, self.rule = allowed, reason, rule


ALLOWED = Verdict(True)


class GuardSet:
    """The rules of a session, in the order in which they are tried."""

    def __init__(self, rules: PreparedRules, facts: GuardFacts) -> None:
        self.rules, self.facts = rules, facts
        self._paths: dict[int, list[tuple[str, list[str]]]] = {}
        self._parts: dict[str, list[str]] = {}

    def judge(self, acts: Iterable[Act], allowed: Iterable[Act] = ()) -> Verdict:
        """Return the verdict on acts of one tool. ``allowed`` are acts that are always allowed."""
        free = {(act.tool, act.words, act.target) for act in allowed}
        verdict = ALLOWED
        unjudged = ""
        # A loop or a list of files has the same act many times.
        for act in {act.key: act for act in acts}.values():
            if act.unjudged:
                unjudged = unjudged or act.unjudged
                continue
            if (act.tool, act.words, act.target) in free:
                continue
            decided = self._judge_act(act)
            if not decided.allowed:
                return decided
            verdict = decided if decided.rule is not None else verdict
        return Verdict(False, f"[liza] not run: {unjudged}.", UNJUDGED_RULE) if unjudged else verdict

    def _judge_act(self, act: Act) -> Verdict:
        command: Command | None = None
        for rule, patterns in self._rules_for(act):
            if rule.roles and self.facts.role not in rule.roles:
                continue
            if rule.tools and not _names_tool(rule.tools, act.tool):
                continue
            if rule.commands:
                if act.tool != SHELL:
                    continue
                command = command or Command(act.words, self.rules.table.values, self.facts.branch, act.is_code)
            result = self._matches(rule, patterns, act, command)
            if result == YES and rule.allow:
                return Verdict(True, None, rule.name)
            if (result == YES or (result != NO and not rule.certain)) and not rule.allow:
                return Verdict(False, _denial(rule, act, result, self.facts, self._removed_with(rule, act)), rule.name)
        return ALLOWED

    def _rules_for(self, act: Act) -> Sequence[ConcernedRule]:
        if act.tool != SHELL or not act.words:
            return [(rule, ()) for rule in self.rules.rules]
        first = next((word for word in act.words[1:] if word[:1] != MARK), "")
        return self.rules.rules_for(act.words[0], first if is_known(first) and first[:1] != "-" else "")

    def _matches(self, rule: GuardRule, patterns: Sequence[CommandPattern], act: Act, command: Command | None) -> int:
        result = YES
        if rule.areas and act.tool == SHELL:
            if act.area == UNKNOWN:
                result = YES if UNKNOWN in rule.areas else NO
            else:
                result = YES if act.area in rule.areas else NO
        if result and rule.commands and command is not None:
            result = min(result, max((match_command(pattern, command) for pattern in patterns), default=NO))
        if result and rule.paths:
            if act.tool == SHELL or not act.target:
                return NO
            result = min(result, max(self._match_path(*path, act, rule.allow) for path in self._path_patterns(rule)))
        return result

    def _removed_with(self, rule: GuardRule, act: Act) -> str:
        """Return the path of the rule that is removed with the target; empty if it is the target."""
        if not act.is_tree or not rule.paths:
            return ""
        alone = Act(act.tool, target=act.target)
        patterns = self._path_patterns(rule)
        if any(self._match_path(path, parts, alone, False) != NO for path, parts in patterns):
            return ""
        return next((path for path, parts in patterns if self._match_path(path, parts, act, False) != NO), "")

    def _path_patterns(self, rule: GuardRule) -> list[tuple[str, list[str]]]:
        """Return the patterns of a rule's paths, each with its components."""
        if id(rule) not in self._paths:
            paths = [_fill_path(path, self.facts) for path in rule.paths]
            self._paths[id(rule)] = [(path, _components(path)) for path in paths if path] or [("\0", [])]
        return self._paths[id(rule)]

    def _parts_of(self, target: str) -> list[str]:
        """Return the components of a path, with links resolved: once, because that reads each directory of it."""
        parts = self._parts.get(target)
        if parts is None:
            parts = self._parts[target] = _components(self.facts.real(target) if is_known(target) else target)
        return parts

    def _match_path(self, pattern: str, wanted: list[str], act: Act, allow: bool) -> int:
        """Compare the components of a path. A component of which nothing is known matches nothing."""
        target = act.target
        if not pattern.startswith("/"):
            return match_glob(pattern, target)
        if not target.startswith("/"):
            return YES if not allow and _names_hidden(pattern, target) else NO
        parts = self._parts_of(target)
        if BELOW in wanted:
            return YES if _same_below(wanted, parts) else NO
        if len(parts) < len(wanted):
            inside = act.is_tree and not allow and _same(wanted[: len(parts)], parts, True)
            return YES if inside else NO
        return YES if _same(wanted, parts[: len(wanted)]) else NO


def _components(path: str) -> list[str]:
    return [part for part in path.casefold().split("/") if part]


def _names_tool(tools: Sequence[str], tool: str) -> bool:
    return any(
        match_glob(pattern, tool) == YES or (pattern == OTHER and tool.startswith("other:")) for pattern in tools
    )


def _same_below(patterns: Sequence[str], parts: Sequence[str]) -> bool:
    """Compare with a pattern such as ``/a/**/b``: the name b at any depth below /a."""
    start = patterns.index(BELOW)
    rest = patterns[start + 1 :]
    last = len(parts) - len(rest)
    return _same(patterns[:start], parts[:start]) and any(
        _same(rest, parts[at : at + len(rest)]) for at in range(start, last + 1)
    )


def _same(patterns: Sequence[str], parts: Sequence[str], is_tree: bool = False) -> bool:
    """Compare components. A wildcard of the shell does not stand for the dot of a hidden name.

    ``is_tree``: all files that a wildcard stands for are removed, so it concerns each of them.
    """
    for pattern, part in zip(patterns, parts, strict=True):
        if is_known(part):
            if match_glob(pattern, part) != YES:
                return False
        elif is_tree and part == FILES and pattern[:1] != ".":
            continue
        elif is_unknown(part) or (pattern[:1] == "." and part[:1] != ".") or match_glob(pattern, part) == NO:
            return False
    return True


def _names_hidden(pattern: str, target: str) -> bool:
    """Return whether a path with an unknown beginning has the hidden name at the end of the pattern: ``$X/.git/y``."""
    name = pattern.rstrip("/").rpartition("/")[2]
    return name[:1] == "." and any(is_known(part) and part == name for part in target.split("/"))


def _fill_path(path: str, facts: GuardFacts) -> str:
    """Return the path with the variables filled in; empty if one of them is not known."""
    if path.startswith("~/"):
        return facts.home + path[1:] if facts.home else ""
    if not path.startswith("{"):
        return path
    name, _, rest = path[1:].partition("}")
    values = {
        "worktree": facts.worktree,
        "root": facts.root,
        "slots": facts.slots,
        "home": facts.home,
        "state": facts.state,
        "git": facts.root and f"{facts.root}/.git",
        "liza": facts.root and f"{facts.root}/.liza",
    }
    value = values.get(name, "")
    return value + rest if value else ""


def _denial(rule: GuardRule, act: Act, result: int, facts: GuardFacts, removed: str) -> str:
    if removed:
        return (
            f"[liza] not run: {act.text}: this also removes or moves {removed}. Name what you want to remove, "
            f"in {facts.worktree or 'your worktree'} or in /tmp."
        )
    names = {"{worktree}": facts.worktree or "WORKTREE", "<branch>": facts.branch or "as it is"}
    reason = rule.reason
    for name, value in names.items():
        reason = reason.replace(name, value)
    why = ""
    if result == MAYBE:
        why = f"a word of it is not known before it runs, and rule {rule.name} may concern it. Write the word out. "
    return f"[liza] not run: {act.text}: {why}{reason}"
