"""Each command that a message names exists, with the options that are named with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import liza
from liza.cli.app import load_command
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


def page_commands() -> Iterator[tuple[str, str]]:
    """Page and text of each command in backticks or in a block of code; not the changelog, which is about the past."""
    root = ROOT.parent
    for pattern in ("*.md", "contracts/*.md", "specs/**/*.md", ".liza.example/*.md"):
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
