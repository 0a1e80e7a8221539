"""The parser of tree-sitter with the grammar of bash: the only module that imports these libraries.

See specs/decisions/022-shell-commands-are-parsed-by-tree-sitter.md.
"""

from __future__ import annotations

from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

TreeNode = Node


@cache
def _bash_parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Tree:
    """Return the syntax tree of a script."""
    return _bash_parser().parse(source)
