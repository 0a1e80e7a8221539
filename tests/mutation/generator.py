"""The mutants of a module, made by the operators of mutmut. The only module that imports mutmut and libcst.

Not mutated, because no rule depends on it: texts for people and docstrings, annotations, decorators, the headers of
classes, imports, and what only the type checker sees. See CONTRIBUTING.md.
"""

from __future__ import annotations

import itertools

import libcst
from libcst import matchers
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider, WhitespaceInclusivePositionProvider
from mutmut.mutation.mutators import mutation_operators

from tests.mutation.mutants import Mutant, changed_lines, is_prose

_UNCHANGED = (
    libcst.Annotation
    | libcst.Decorator
    | libcst.Import
    | libcst.ImportFrom
)  # fmt: skip
_TYPE_CHECKING = matchers.If(test=matchers.Name("TYPE_CHECKING"))
_CAST = matchers.Call(func=matchers.Name("cast"))
_ARGUMENTS_UNCHANGED = matchers.Call(func=matchers.Name("len") | matchers.Name("isinstance"))
"""Calls that fail with any other arguments: every test that executes the line would kill the mutant."""


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return the mutants of a module in the order of its code. Some may be no Python: see ``compiles``."""
    visitor = _Changes(text)
    MetadataWrapper(libcst.parse_module(text), unsafe_skip_copy=True).visit(visitor)
    mutants: dict[tuple[int, int, str], Mutant] = {}
    for function, line, start, end, replacement in visitor.changes:
        if text[start:end] != replacement:
            before, after = changed_lines(text, start, end, replacement)
            mutants[start, end, replacement] = Mutant(path, line, function, start, end, replacement, before, after)
    return [mutants[key] for key in sorted(mutants)]


class _Changes(libcst.CSTVisitor):
    """Collects the changes of a module: function, line, start, end, replacement."""

    METADATA_DEPENDENCIES = (PositionProvider, WhitespaceInclusivePositionProvider)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.changes: list[tuple[str, int, int, int, str]] = []
        self._offsets = [0, *itertools.accumulate(len(line) for line in text.splitlines(keepends=True))]
        self._module = libcst.Module(body=[])
        self._names: list[str] = []
        self._bodies: list[str] = []
        """Qualified names of the functions around the node, the outermost first."""
        self._headers: set[libcst.CSTNode] = set()

    def on_visit(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, _UNCHANGED) or node in self._headers or _is_for_types(node) or _is_docstring(node):
            return False
        if isinstance(node, libcst.ClassDef):
            self._headers.update((*node.bases, *node.keywords))
        if isinstance(node, libcst.ClassDef | libcst.FunctionDef):
            self._names.append(node.name.value)
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and not _is_excluded(node):
                # The further changes of a string are its cases: a test that notices one notices the other.
                for changed in itertools.islice(operator(node), 1 if isinstance(node, libcst.SimpleString) else None):
                    self._add(node, changed)
        return True

    def on_leave(self, original_node: libcst.CSTNode) -> None:
        if isinstance(original_node, libcst.ClassDef | libcst.FunctionDef):
            self._names.pop()

    def on_visit_attribute(self, node: libcst.CSTNode, attribute: str) -> None:
        if isinstance(node, libcst.FunctionDef) and attribute == "body":
            self._bodies.append(".".join(self._names))

    def on_leave_attribute(self, original_node: libcst.CSTNode, attribute: str) -> None:
        if isinstance(original_node, libcst.FunctionDef) and attribute == "body":
            self._bodies.pop()

    def _add(self, node: libcst.CSTNode, changed: libcst.CSTNode) -> None:
        span = self.get_metadata(WhitespaceInclusivePositionProvider, node)
        line = self.get_metadata(PositionProvider, node).start.line
        start, end = self._offset_range(span)
        code = self._module.code_for_node(changed)
        self.changes.append((self._bodies[0] if self._bodies else "", line, start, end, code))

    def _offset_range(self, span: CodeRange) -> tuple[int, int]:
        return (
            self._offsets[span.start.line - 1] + span.start.column,
            self._offsets[span.end.line - 1] + span.end.column,
        )


def _is_for_types(node: libcst.CSTNode) -> bool:
    return matchers.matches(node, _TYPE_CHECKING) or matchers.matches(node, _CAST)


def _is_docstring(node: libcst.CSTNode) -> bool:
    return isinstance(node, libcst.Expr) and isinstance(node.value, libcst.SimpleString | libcst.ConcatenatedString)


def _is_excluded(node: libcst.CSTNode) -> bool:
    """Whether the node itself is not changed, only the nodes in it."""
    if isinstance(node, libcst.SimpleString):
        value = node.evaluated_value
        return is_prose(value if isinstance(value, str) else "")
    if isinstance(node, libcst.Assign) and matchers.matches(node.targets[0].target, matchers.Name("__slots__")):
        return True
    # A compound statement would lose its indentation in the text; its cases are changed one by one.
    return isinstance(node, libcst.Match) or matchers.matches(node, _ARGUMENTS_UNCHANGED)
