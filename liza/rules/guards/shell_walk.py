"""Walk through a shell script and list what it does: the commands that it runs, the paths that it writes and reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product

from liza.rules.guards.acts import READ, SHELL, WRITE, Act, GuardFacts
from liza.rules.guards.normal_commands import EXPORTS, locate_git_path
from liza.rules.guards.shell_programs import FROM_FILE, is_set_up, run_program, runs_others
from liza.rules.guards.shell_scope import MAX_COMBINATIONS, Scope, expand
from liza.rules.guards.shell_syntax import CannotJudge, Redirect, ShellNode, WordPart
from liza.rules.guards.shell_table import ShellTable, positionals, program_name
from liza.rules.guards.word_matching import ANY, MANY, MARK, is_known, is_unknown

MAX_COMMANDS = 5_000
MAX_STEPS = 50_000  # parts of scripts that are walked through, each as often as it runs
MAX_LEVELS = 12  # of scripts within scripts
UNKNOWN_SCRIPT = (
    "a shell would run text that is not known before it runs. Put the text into a file, read it, and run the file: "
    "bash FILE"
)
_EDITORS = ("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL", "GIT_PAGER", "PAGER", "GIT_SSH_COMMAND")
_PREFIXES = ("!", "coproc", "{")  # the grammar takes ``{`` behind time for an argument


class ShellWalk:
    """Lists the acts of scripts in ``acts``. ``parse`` parses a script, and raises CannotJudge.

    ``guarded_programs`` are the programs that rules name: these are looked for in programs of other languages.
    """

    def __init__(
        self,
        table: ShellTable,
        facts: GuardFacts,
        parse: Callable[[str], ShellNode],
        guarded_programs: Collection[str] = (),
    ) -> None:
        self.table, self.facts, self.parse = table, facts, parse
        self.guarded_programs = guarded_programs
        self.acts: list[Act] = []
        self.commands = self.steps = 0
        self.levels = 0
        self.called: set[str] = set()

    def walk_script(self, text: str) -> list[Act]:
        """Return the acts of a script. Raises CannotJudge."""
        scope = Scope(self.facts)
        self.script(text, scope)
        return self.acts

    def walk_command(self, words: Sequence[str]) -> list[Act]:
        """Return the acts of one command that is given as words. Raises CannotJudge."""
        self.invoke(list(words), Scope(self.facts), "")
        return self.acts

    def script(self, text: str, scope: Scope) -> None:
        """Walk through a script in this scope, and then through functions that nothing calls.

        A part of it may be unknown, as in ``bash -c "cd $x && make"``: it is then an unknown part of a word.
        """
        if is_unknown(text.strip()):
            self.unjudged(scope, UNKNOWN_SCRIPT)
            return
        self.levels += 1
        if self.levels > MAX_LEVELS:
            raise CannotJudge(f"it has more than {MAX_LEVELS} scripts within scripts")
        before = set(scope.functions)
        self.walk(self.parse(text), scope, "")
        for name, function in list(scope.functions.items()):
            if name not in self.called and name not in before:
                self._function(function, scope.copy(), None, "")
        self.levels -= 1

    def unjudged(self, scope: Scope, reason: str) -> None:
        self.acts.append(Act(SHELL, ["?"], area=scope.facts.area_of(scope.directory), unjudged=reason))

    def walk(self, node: ShellNode, scope: Scope, stdin: str) -> None:
        """Walk through one part of a script. Raises CannotJudge."""
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise CannotJudge("it is too long; put it into a script file")
        if node.form == "command":
            self._command(node, scope, stdin)
        elif node.form == "redirected":
            given = self._redirects(node.redirects, scope, stdin)
            for child in node.children:
                self.walk(child, scope, given)
        elif node.form == "pipeline":
            for child in node.children:
                inner = scope.copy()
                self.walk(child, inner, stdin)
                stdin = self.output(child, inner)
        elif node.form == "function":
            scope.functions[node.name] = node
        elif node.form == "loop":
            for name, words in node.assignments:
                values = [field for word in words for fields in self._expand(word, scope) for field in fields]
                scope.assign(name, values or [MANY])
            # Twice: what a round assigns is known to the next one.
            for child in (*node.children, *node.children):
                self.walk(child, scope, stdin)
        else:
            inner = scope.copy() if node.form == "subshell" else scope
            for child in node.children:
                self.walk(child, inner, stdin)

    def _command(self, node: ShellNode, scope: Scope, stdin: str) -> None:
        for child in node.children:
            self.walk(child, scope, "")
        for name, words in node.assignments:
            values = [" ".join(fields) for word in words for fields in self._expand(word, scope)]
            scope.assign(name, values)
            if name in _EDITORS:
                for value in values:
                    self._editor(value, scope)
        given = self._redirects(node.redirects, scope, stdin)
        choices = [self._expand(word, scope) for word in node.words]
        combinations = 1
        for choice in choices:
            combinations *= max(1, len(choice))
        if combinations > MAX_COMBINATIONS:
            choices = [choice if len(choice) == 1 else [[MANY]] for choice in choices]
        for combination in product(*choices):
            self.invoke([field for fields in combination for field in fields], scope, given)
        if node.words and _literal(node)[0] not in EXPORTS:
            # ``HUSKY=0 npm ci`` sets it for this command alone.
            for name, _ in node.assignments:
                if any(skip.startswith(f"{name}=") for skip in self.table.hook_skips):
                    scope.variables.pop(name, None)

    def _editor(self, value: str, scope: Scope) -> None:
        if value.strip() and is_known(value):
            self.script(value, scope.copy())

    def _expand(self, word: tuple[WordPart, ...], scope: Scope) -> list[list[str]]:
        for part in word:
            if part.form != "output":
                for script in part.scripts:
                    self.walk(script, scope.copy(), "")
        return expand(word, scope, self._substituted)

    def _substituted(self, part: WordPart, scope: Scope) -> str:
        """Walk through a command substitution, and return its output if it is known."""
        inner = scope.copy()
        for script in part.scripts:
            self.walk(script, inner, "")
        output = self.output(part.scripts[0], scope.copy()) if len(part.scripts) == 1 else MANY
        return output.rstrip("\n")

    def output(self, node: ShellNode, scope: Scope) -> str:
        """Return what a command prints, if that is known; MANY otherwise."""
        if node.form in ("sequence", "redirected") and len(node.children) == 1:
            texts = [redirect for redirect in node.redirects if redirect.is_text]
            child = node.children[0]
            if texts and child.form == "command" and _literal(child) in (["cat"], ["cat", "-"]):
                return self._text_of(texts[-1], scope)
            return self.output(child, scope)
        if node.form != "command" or node.assignments:
            return MANY
        words = []
        for word in node.words:
            if any(part.scripts and part.form != "output" for part in word):
                return MANY
            expanded = expand(word, scope, self._nested_output)
            words += expanded[0] if len(expanded) == 1 else [MANY]
        return self._known_output(words, scope)

    def _known_output(self, words: list[str], scope: Scope) -> str:
        line = " ".join(words)
        if is_set_up(self.table, words):
            return ""
        if words[:1] == ["echo"]:
            return _echo(words[1:])
        if words[:1] == ["printf"] and len(words) > 1:
            return _printf(words[1], words[2:])
        if line == "pwd":
            return scope.directory
        if words[:1] == ["git"] and "rev-parse" in words and all(map(is_known, words)):
            path = locate_git_path(self.table, words, scope)
            if path is not None:
                return path
        if words[:1] in (["dirname"], ["realpath"], ["readlink"]):
            return _path_output(words, scope)
        if words[:1] == ["mktemp"]:
            return "/tmp/mktemp"
        if line in ("git branch --show-current", "git rev-parse --abbrev-ref HEAD"):
            return self.facts.branch or MANY
        return MANY

    def _nested_output(self, part: WordPart, scope: Scope) -> str:
        return self.output(part.scripts[0], scope.copy()).rstrip("\n") if len(part.scripts) == 1 else MANY

    def _text_of(self, redirect: Redirect, scope: Scope) -> str:
        expanded = self._expand(redirect.word, scope)
        return " ".join(expanded[0]) if len(expanded) == 1 else MANY

    def _redirects(self, redirects: Sequence[Redirect], scope: Scope, stdin: str) -> str:
        """Note the files of redirections, and return what the command reads from stdin."""
        for redirect in redirects:
            if redirect.is_text:
                stdin = self._text_of(redirect, scope)
                continue
            process = next((part for part in redirect.word if part.form == "process"), None)
            for fields in self._expand(redirect.word, scope):
                target = " ".join(fields)
                if redirect.operator.startswith("<") and redirect.operator != "<>":
                    stdin = self.output(process.scripts[0], scope) if process and process.scripts else FROM_FILE
                    self.path(READ, target, scope)
                elif not (redirect.operator == ">&" and (target.isdecimal() or target == "-")):
                    self.path(WRITE, target, scope)
        return stdin

    def path(self, tool: str, target: str, scope: Scope, is_tree: bool = False) -> None:
        if target and target != "-" and not target.startswith("/dev/"):
            self.acts.append(Act(tool, target=scope.resolve(target), is_tree=is_tree))

    def invoke(self, words: list[str], scope: Scope, stdin: str) -> None:
        """Run one command."""
        self.commands += 1
        if self.commands > MAX_COMMANDS:
            raise CannotJudge(f"it runs more than {MAX_COMMANDS} commands; put it into a script file")
        words = [word.replace(MARK, ANY) for word in words]
        while words and words[0] in _PREFIXES:
            words = words[1:]
        if not words:
            return
        if words[0] in scope.aliases and self.levels < MAX_LEVELS:
            alias = scope.aliases[words[0]]
            inner = scope.copy()
            del inner.aliases[words[0]]
            self._with_arguments(alias, words[1:], inner, stdin)
        elif words[0] in scope.functions:
            self.called.add(words[0])
            self._function(scope.functions[words[0]], scope, tuple(words[1:]), stdin)
        else:
            run_program(self, words, scope, stdin)
            split = self._split_program(words)
            if split:
                self.invoke(split, scope.copy(), stdin)

    def _split_program(self, words: Sequence[str]) -> list[str]:
        """Return the words that ``git${X}push`` may become; empty if no unquoted expansion may end a program's name."""
        start, many, rest = words[0].partition(MANY)
        name = program_name(start)
        runs_more = name in self.guarded_programs or runs_others(self, name)
        if not many or not (name == "git" or (rest and runs_more)):
            return []
        return [start, MANY, *filter(None, rest.split(MANY)), *words[1:]]

    def _with_arguments(self, script: str, arguments: Sequence[str], scope: Scope, stdin: str) -> None:
        """Run the last command of a script, such as an alias, with more arguments."""
        words = script.split()
        if any(character in script for character in "|&;<>$`'\"\\\n(){}"):
            self.script(script, scope)
        else:
            self.invoke([*words, *arguments], scope, stdin)

    def _function(self, node: ShellNode, scope: Scope, arguments: tuple[str, ...] | None, stdin: str) -> None:
        self.levels += 1
        if self.levels <= MAX_LEVELS:
            outer, scope.arguments = scope.arguments, arguments
            for child in node.children:
                self.walk(child, scope, stdin)
            scope.arguments = outer
        else:
            raise CannotJudge("its functions call each other too deeply")
        self.levels -= 1


def _literal(node: ShellNode) -> list[str]:
    return ["".join(part.value if part.form == "text" else ANY for part in word) for word in node.words]


def _echo(words: Sequence[str]) -> str:
    decode = False
    while words and words[0] in ("-n", "-e", "-E", "-ne", "-en"):
        decode = decode or "e" in words[0]
        words = words[1:]
    text = " ".join(words)
    return _decoded(text) if decode else text


def _printf(form: str, words: Sequence[str]) -> str:
    pieces = _decoded(form).split("%s")
    if any("%" in piece for piece in pieces) or not is_known(form):
        return MANY
    if len(pieces) == 1:
        return pieces[0]
    given = list(words) or [""]
    text = ""
    # The form is used again until all words are printed.
    while given:
        for piece in pieces[:-1]:
            text += piece + (given.pop(0) if given else "")
        text += pieces[-1]
    return text


def _path_output(words: Sequence[str], scope: Scope) -> str:
    """Return what ``dirname``, ``realpath`` or ``readlink`` prints for one path."""
    paths = positionals(words[1:])
    if len(paths) != 1 or not is_known(paths[0]):
        return MANY
    return scope.resolve(paths[0] if words[0] != "dirname" else paths[0].rstrip("/").rpartition("/")[0] or ".")


def _decoded(text: str) -> str:
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    return MANY if "\\" in text else text
