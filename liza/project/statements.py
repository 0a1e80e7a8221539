"""Split a shell command into the statements of its top level, for the proof of the tests."""

from __future__ import annotations

from collections.abc import Iterator

from liza.guards import shell_parser
from liza.guards.shell_parser import TreeNode
from liza.project.rules.command_parts import Connector, Statement

_SIMPLE = frozenset(
    (
        "command",
        "test_command",
        "declaration_command",
        "unset_command",
        "variable_assignment",
        "variable_assignments",
        "function_definition",
    )
)


def split_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements that ``&&``, ``;`` and newlines separate; ``||``, pipes and compound commands stay whole.

    A text with a syntax error is one statement.
    """
    source = text.encode("utf-8", "surrogateescape")
    root = shell_parser.parse(source).root_node
    if root.has_error:
        return (Statement(text, (text,), Connector.END),)
    statements: list[Statement] = []
    for child in root.children:
        if child.type == "&" and statements:
            _join_background(statements, source)
        elif child.is_named and child.type != "comment":
            if statements and statements[-1].connector is Connector.END:
                statements[-1] = statements[-1].followed_by(Connector.SEQUENCE)
            statements += _split(child, source, child.end_byte)
    return tuple(statements)


def _join_background(statements: list[Statement], source: bytes) -> None:
    """Make the last list of statements, all that ``&&`` joins, one background command."""
    start = len(statements) - 1
    while start and statements[start - 1].connector is Connector.AND:
        start -= 1
    joined = statements[start:]
    commands = tuple(command for statement in joined for command in statement.commands)
    text = " && ".join(statement.text for statement in joined)
    statements[start:] = [Statement(f"{text} &", commands, Connector.END, is_background=True)]


def _split(node: TreeNode, source: bytes, end: int) -> list[Statement]:
    """Split a node. ``end``: byte at which its last statement ends, with the redirections that follow it."""
    inner = node
    if node.type == "redirected_statement" and (body := node.child_by_field_name("body")) is not None:
        inner = body
    if inner.type == "list" and any(child.type == "&&" for child in inner.children):
        left, right = inner.named_children[0], inner.named_children[-1]
        before = _split(left, source, left.end_byte)
        return [*before[:-1], before[-1].followed_by(Connector.AND), *_split(right, source, end)]
    text = source[node.start_byte : end].decode("utf-8", "surrogateescape")
    return [Statement(text, tuple(_commands(node, source)), Connector.END)]


def _commands(node: TreeNode, source: bytes) -> Iterator[str]:
    """Yield the simple commands in a node, without those in substitutions."""
    if node.type in _SIMPLE:
        yield source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
        return
    for child in node.named_children:
        yield from _commands(child, source)
