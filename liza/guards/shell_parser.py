"""Parse a shell script into the commands of its lines, wherever in it they are: in lists, pipelines, loops, functions,
and substitutions. Nothing is expanded, and here-documents are not read.
"""

from __future__ import annotations

from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from liza.guards.rules.acts import CannotJudge, ShellCommand

MAX_SIZE = 1 << 19  # bytes of a script
_SUBSHELLS = ("subshell", "command_substitution", "process_substitution")
_ASSIGNMENT = "variable_assignment"
_COMMANDS = ("command", "declaration_command", _ASSIGNMENT, "variable_assignments")
_INPUTS = ("heredoc_redirect", "herestring_redirect")
_NO_WORDS = (_ASSIGNMENT, "file_redirect", "subshell", "comment", *_INPUTS)


def parse_script(text: str) -> list[ShellCommand]:
    """Return the commands. Raises CannotJudge if the script has a syntax error, or is too large."""
    source = text.encode("utf-8", "surrogatepass")
    if b"\0" in source:
        raise CannotJudge("it contains a NUL character")
    if len(source) > MAX_SIZE:
        raise CannotJudge(f"it has {len(source)} bytes, and at most {MAX_SIZE} are examined")
    root = parse(source).root_node
    if root.has_error:
        raise CannotJudge(_describe_error(root, source))
    commands: list[ShellCommand] = []
    _collect(root, source, (), False, commands)
    return commands


def _describe_error(root: TreeNode, source: bytes) -> str:
    """Say where the first syntax error is, without recursion: an erroneous tree may be deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            line = source.count(b"\n", 0, node.start_byte) + 1
            near = source[node.start_byte : node.start_byte + 40].split(b"\n")[0].decode(errors="replace")
            return f"it cannot be parsed as a shell script, near {near!r} in line {line}"
        waiting += [child for child in reversed(node.children) if child.has_error or child.is_missing]
    return "it cannot be parsed as a shell script"


def _collect(node: TreeNode, source: bytes, scope: tuple[int, ...], is_fed: bool, commands: list[ShellCommand]) -> None:
    """Add the commands in a node, in the order in which they run. ``is_fed``: they read a pipe or a here-document."""
    form, children = node.type, node.children
    inner = (*scope, node.start_byte) if form in _SUBSHELLS else scope
    is_fed = is_fed or any(child.type in _INPUTS for child in children)
    for number, child in enumerate(children):
        is_part = form in _COMMANDS and child.type == _ASSIGNMENT
        for part in child.children if is_part else [child]:
            if part.is_named:
                _collect(part, source, inner, is_fed or (form == "pipeline" and number > 0), commands)
    if form in _COMMANDS:
        commands.append(_read_command(node, source, scope, is_fed))
    elif form == "file_redirect" and any(">" in child.type for child in children):
        target = _text(children[-1], source)
        if children[-1].is_named and not target.isdecimal():
            commands.append(ShellCommand(outputs=(target,), scope=scope))


def _read_command(node: TreeNode, source: bytes, scope: tuple[int, ...], is_fed: bool) -> ShellCommand:
    parts = node.children if node.type != _ASSIGNMENT else [node]
    is_declaration = node.type == "declaration_command"
    words = [_text(child, source) for child in parts if is_declaration or child.type not in _NO_WORDS]
    assignments = [_text(child, source) for child in parts if child.type == _ASSIGNMENT]
    return ShellCommand(tuple(words), () if is_declaration else tuple(assignments), (), scope, is_fed)


def _text(node: TreeNode, source: bytes) -> str:
    """Return a word without quotes. Expansions stay as they are written."""
    text = source[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")
    match node.type:
        case "raw_string":
            return text[1:-1]
        case "string":
            return _unescape(text[1:-1], '$`"\\\n')
        case "word":
            return _unescape(text, "")
        case "concatenation" | "command_name" | "variable_assignment":
            return "".join(_text(child, source) for child in node.children)
    return text


def _unescape(text: str, escaped: str) -> str:
    """Remove the backslashes that quote a character; those before ``escaped`` ones only, if there are any."""
    pieces, position = [], 0
    while (mark := text.find("\\", position)) >= 0 and mark + 1 < len(text):
        keeps = escaped and text[mark + 1] not in escaped
        pieces += [text[position:mark], "\\" * bool(keeps), text[mark + 1].replace("\n", "")]
        position = mark + 2
    return "".join(pieces) + text[position:]


TreeNode = Node


@cache
def _bash_parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Tree:
    """Return the syntax tree of a script."""
    return _bash_parser().parse(source)
