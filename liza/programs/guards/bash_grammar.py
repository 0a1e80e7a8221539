"""The parser of tree-sitter with the grammar of bash: the only module that knows these libraries.

Their ``__init__`` modules import typing and importlib.resources, 17 ms of CPU time at each tool call. Only their
compiled parts are loaded here: 1 ms. See specs/decisions/022-shell-commands-are-parsed-by-tree-sitter.md.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node, Tree

    TreeNode = Node

_parser: Any = None


def parse(source: bytes) -> Tree:
    """Return the syntax tree of a script. Raises ImportError if a library is not installed."""
    global _parser
    if _parser is None:
        binding = _load_binding("tree_sitter")
        _parser = binding.Parser(binding.Language(_load_binding("tree_sitter_bash").language()))
    tree: Tree = _parser.parse(source)
    return tree


def _load_binding(package: str) -> Any:
    name = f"{package}._binding"
    if name in sys.modules:
        return sys.modules[name]
    package_spec = PathFinder.find_spec(package)
    spec = PathFinder.find_spec(name, package_spec.submodule_search_locations) if package_spec else None
    if spec is None or spec.loader is None:
        raise ImportError(f"the package {package} is not installed")
    module = spec.loader.create_module(spec)
    if module is None:
        raise ImportError(f"{spec.origin} is no compiled module")
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
