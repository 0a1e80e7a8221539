"""Each command that a message names exists, with the options that are named with it."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import liza
from liza.cli.app import load_command
from liza.crew.result import Result, make_result
from liza.model.alarm_table import Alarm
from liza.model.errors import Finding, LizaError
from liza.tasks.next_steps import NextStep
from tests.unit.sources import nodes_of, parse_module

ROOT = Path(liza.__file__).parent
VALUE = "VALUE"
"""Stands for a part of the text that is known only while Liza runs."""
BEFORE = r"(?:^|[`;:(] ?|&& |: )"
COMMAND = re.compile(BEFORE + r"(liza [a-z][^`;()\n]*)")
SENTENCE_WORDS = frozenset({"does", "needs", "trusts", "verbs"})
"""Words that follow the name Liza in sentences."""


@cache
def named_command(name: str) -> Any:
    return load_command(name)


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every string that is no docstring; each formatted part is VALUE."""
    nodes = nodes_of(tree)
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in joined for part in ast.walk(node)} - {id(node) for node in joined}
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner | docs:
            yield node.lineno, node.value


@cache
def named_commands() -> list[tuple[str, str]]:
    """``module:line`` and text of all commands of Liza that messages name."""
    commands = []
    for path in sorted(ROOT.rglob("*.py")):
        for line, text in texts(parse_module(path)):
            for command in COMMAND.findall(text):
                commands.append(
                    (f"{path.relative_to(ROOT.parent)}:{line}", re.split(r",? or: |, then: | && |, ", command)[0])
                )
    return commands


def complaint(command: str) -> str | None:
    """What of a command does not exist; None if all does."""
    words = [word.rstrip(":.") for word in re.sub(r"""(["']).*?\1""", VALUE, command).split()[1:]]
    found = named_command(words[0])
    if found is None:
        return None if words[0] in SENTENCE_WORDS else f"no command {words[0]}"
    if hasattr(found, "commands") and len(words) > 1 and not words[1].startswith("-"):
        found = found.get_command(None, words[1])
        if found is None:
            return f"no command {words[0]} {words[1]}"
    words = words[: words.index("--")] if "--" in words else words  # the others are another program's
    options = {name for parameter in found.params for name in parameter.opts} | {"--help"}
    unknown = [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options]
    return f"{words[0]} has no option {unknown[0]}" if unknown else None


def test_a_command_that_does_not_exist_is_found() -> None:
    assert complaint('liza answer t1 "--no-such"') is None
    assert complaint("liza anwser t1") == "no command anwser"
    assert complaint("liza task spend t1") == "no command task spend"
    assert complaint("liza init VALUE --tests true") == "init has no option --tests"
    assert len(named_commands()) > 200


def test_every_command_that_a_message_names_exists_with_its_options() -> None:
    complaints = [(where, command, text) for where, command in named_commands() if (text := complaint(command))]
    assert complaints == []


HINT_NAMES = frozenset({"hint", "step", "next_step", "command"})
"""Variables that have hints. Functions whose name ends with the last three return hints."""
HINT_PARAMETERS: dict[Callable[..., object], str] = {
    Alarm: "next",
    Result: "next",
    make_result: "next_step",
    Finding: "hint",
    NextStep: "command",
    LizaError: "hint",
}
"""What takes a hint, and by which parameter."""
HINT_POSITIONS = {
    function.__name__: [*inspect.signature(function).parameters].index(name)
    for function, name in HINT_PARAMETERS.items()
}
TOOLS = frozenset({
    "apt", "cat", "cd", "chmod", "command", "createdb", "createuser", "date", "df", "diff", "echo", "eval", "export",
    "file", "fuser", "getent", "gh", "git", "glab", "id", "kill", "less", "liza", "liza-agent", "locale", "ls", "mkdir",
    "mv", "npm", "openssl", "pg_isready", "pre-commit", "ps", "psql", "python3", "rm",
    "sed", "sudo", "tmux", "unset", "${EDITOR:-vi}",
})  # fmt: skip
AGENT_STEPS = re.compile(r"(stop|end|go|do|continue)\b[^…A-Z]*")
"""What a session does next is no command."""


def hints() -> Iterator[tuple[str, str]]:
    """``module:line`` and text of each hint of an error, an alarm, a finding or a result that the source spells out."""
    errors = error_classes()
    for path in sorted(ROOT.rglob("*.py")):
        for node in nodes_of(parse_module(path)):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            position = HINT_POSITIONS.get(LizaError.__name__ if name in errors else name)
            if isinstance(node, ast.Call) and position is not None:
                named = [keyword.value for keyword in node.keywords if keyword.arg in HINT_PARAMETERS.values()]
                for value in [*node.args[position : position + 1], *named]:
                    where = f"{path.relative_to(ROOT.parent)}:{node.lineno}"
                    yield from ((where, text) for text in spelled_texts(value) if text)
            yield from ((f"{path.relative_to(ROOT.parent)}:{node.lineno}", text) for text in named_hints(node))


def named_hints(node: ast.AST) -> Iterator[str]:
    """The hints that a variable gets, or that a function returns, by the name of the variable or of the function."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in HINT_NAMES:
            yield from filter(COMMAND.search, spelled_texts(value))
        case ast.FunctionDef(name=name) if name.rpartition("_")[2] in HINT_NAMES - {"hint"}:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield from filter(COMMAND.search, spelled_texts(inner.value))


@cache
def error_classes() -> frozenset[str]:
    bases: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for node in nodes_of(parse_module(path)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def is_error(name: str) -> bool:
        return name == LizaError.__name__ or any(map(is_error, bases.get(name, ())))

    return frozenset(filter(is_error, bases))


@cache
def constants() -> dict[str, ast.expr]:
    """The constants of all modules by name, without names that several modules use."""
    named: dict[str, ast.expr] = {}
    taken: Counter[str] = Counter()
    for path in sorted(ROOT.rglob("*.py")):
        for node in parse_module(path).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id.isupper() and isinstance(node, ast.Assign | ast.AnnAssign):
                named |= {target.id: node.value} if node.value is not None else {}
                taken[target.id] += 1
    return {name: value for name, value in named.items() if taken[name] == 1}


def spelled_texts(value: ast.expr) -> list[str]:
    """The texts that an expression can have; VALUE stands for what is known only while Liza runs."""
    match value:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            joined = [""]
            for part in parts:
                inner = part.value if isinstance(part, ast.FormattedValue) else part
                joined = [begin + end for begin in joined for end in spelled_texts(inner) or [VALUE]]
            return joined
        case ast.IfExp(body=body, orelse=other):
            return [*spelled_texts(body), *spelled_texts(other)]
        case ast.BoolOp(values=parts):
            return [text for part in parts for text in spelled_texts(part)]
        case ast.Name(id=name) if name in constants():
            return spelled_texts(constants()[name])
        case ast.Attribute(attr=name) if name in constants():
            return spelled_texts(constants()[name])
    return []


def hint_complaint(hint: str) -> str | None:
    """Why a hint cannot be typed in a shell as it is; None if it can."""
    if AGENT_STEPS.fullmatch(hint):
        return None
    bare = re.sub(r"""\$?(["']).*?\1""", VALUE, hint)
    if placeholder := re.search(r"…|(?<![\w$-])(?!VALUE|LIZA_|FETCH_HEAD|HEAD|EDITOR)[A-Z]{2,}\b", bare):
        return f"a placeholder: {placeholder[0]}"
    for step in re.split(r"; | && ", bare):
        try:
            words = [word for word in shlex.split(step) if not re.match(r"[A-Z_]+=", word)]
        except ValueError as error:
            return f"no line of a shell: {error}"
        if words[0] not in TOOLS and not words[0].startswith(VALUE):
            return f"no command: {step}"
        if words[0] == "liza" and words[1] not in (VALUE, "--help") and (problem := complaint(shlex.join(words))):
            return problem
    return None


def test_a_hint_that_cannot_be_typed_is_found() -> None:
    assert hint_complaint('git add -A && git commit -m "…"') is None
    assert hint_complaint('cd VALUE; liza answer t1 "WHAT NOW"') is None
    assert hint_complaint("liza task supersede t --file - --because …") == "a placeholder: …"
    assert hint_complaint("liza claim ID --agent coder-1") == "a placeholder: ID"
    assert hint_complaint("liza edit, or: liza restore") == "no command edit,"
    assert hint_complaint("a coder continues it; liza status") == "no command: a coder continues it"
    assert hint_complaint("liza note 'x") == "no line of a shell: No closing quotation"


def test_every_hint_can_be_typed_as_it_is() -> None:
    found = list(hints())
    assert len(found) > 450
    assert [(where, hint, text) for where, hint in found if (text := hint_complaint(hint))] == []


def page_commands() -> Iterator[tuple[str, str]]:
    """Page and text of each command in backticks or in a block of code; not the changelog, which is about the past."""
    root = ROOT.parent
    for pattern in ("*.md", "contracts/*.md", "docs/**/*.md", "specs/**/*.md", ".liza.example/*.md"):
        for page in sorted(root.glob(pattern)):
            if page.name != "CHANGELOG.md":
                text = page.read_text(encoding="utf-8")
                commands = re.findall(r"`(liza [a-z][^`\n]*)`", text)
                for block in re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S):
                    commands += re.findall(r"^\s*(?:\$ )?(liza [a-z].*?)(?:\s+#.*)?$", block, re.M)
                yield from (
                    (str(page.relative_to(root)), re.split(r" && |; | \| ", command)[0]) for command in commands
                )


def test_every_command_that_a_page_names_exists_with_its_options() -> None:
    commands = list(page_commands())
    assert len(commands) > 500
    assert [(page, command, text) for page, command in commands if (text := complaint(command))] == []
