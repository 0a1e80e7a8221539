"""Judge a tool call: its name and input become acts, and the rules judge these."""

from __future__ import annotations

from collections.abc import Callable

from liza.rules.guards.acts import FETCH, READ, SHELL, WRITE, Act, GuardFacts, join_path
from liza.rules.guards.judgment import GuardSet, Verdict
from liza.rules.guards.prepared_rules import PreparedRules
from liza.rules.guards.shell_programs import patched_paths, scan_code
from liza.rules.guards.shell_scope import Scope
from liza.rules.guards.shell_syntax import CannotJudge, ShellNode
from liza.rules.guards.shell_walk import ShellWalk
from liza.rules.guards.tool_vocabulary import TYPED, NamedTool, read_tool
from liza.rules.guards.word_matching import ANY, MARK

_CANNOT = "Liza cannot judge this command: {}. Write it in a simpler way"
TESTS_RULE = "tests"


class ToolJudge:
    """Judges the tools of one session. ``parse`` parses shell scripts."""

    def __init__(self, rules: PreparedRules, facts: GuardFacts, parse: Callable[[str], ShellNode]) -> None:
        self.rules, self.facts, self.parse = rules, facts, parse

    def judge(self, tool: str, given: object) -> Verdict:
        """Return the verdict on a tool call. Raises CannotJudge or ValueError if there can be none."""
        use = read_tool(tool, given, self.rules.tools)
        if use.directory:
            self.facts.directory = join_path(self.facts.directory, use.directory)
        if use.kind == SHELL and self.rules.tests and [text.strip() for text in use.texts] == [self.rules.tests]:
            return Verdict(True, None, TESTS_RULE)
        try:
            acts = self._acts(use)
        except CannotJudge as error:
            raise CannotJudge(_CANNOT.format(error)) from error
        guards = GuardSet(self.rules, self.facts)
        verdict = guards.judge(acts)
        if verdict.allowed or not self.rules.tests or use.kind != SHELL:
            return verdict
        return guards.judge(acts, self._test_acts())

    def _walk(self) -> ShellWalk:
        return ShellWalk(self.rules.table, self.facts, self.parse, self.rules.guarded_programs)

    def _acts(self, use: NamedTool) -> list[Act]:
        if use.kind == SHELL:
            walk = self._walk()
            return walk.walk_command(use.words) if use.words else walk.walk_script("\n".join(use.texts))
        if use.kind == TYPED:
            walk = self._walk()
            scan_code(walk, "\n".join(use.texts), Scope(self.facts))
            return walk.acts
        paths = [*use.texts, *patched_paths(use.patch)]
        if use.kind == FETCH:
            return [Act(FETCH, target=path) for path in use.texts] or [Act(FETCH, target="?")]
        if use.kind in (READ, WRITE):
            acts = [Act(use.kind, target=self._absolute(path), is_tree=use.is_tree) for path in paths]
            return acts or [Act(use.kind)]
        if use.git:
            area = self.facts.area_of(self.facts.directory)
            return [Act(use.kind), Act(SHELL, ["git", *(word.replace(MARK, ANY) for word in use.git)], area=area)]
        # A tool of its own: it may have a rule, and it writes what it names.
        return [Act(use.kind), *(Act(WRITE, target=self._absolute(path), is_tree=use.is_tree) for path in paths)]

    def _absolute(self, path: str) -> str:
        path = path.removeprefix("file://")
        if path.startswith("~/") and self.facts.home:
            path = self.facts.home + path[1:]
        return join_path(self.facts.directory, path)

    def _test_acts(self) -> list[Act]:
        try:
            return self._walk().walk_script(self.rules.tests)
        except CannotJudge:
            return []
