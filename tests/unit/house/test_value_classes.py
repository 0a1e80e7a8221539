"""Objects with typed fields: what their base classes promise, and how the modules of Liza use them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from liza.model.value_classes import Mutable, Value, asdict, field, replace
from tests.unit.sources import nodes_of, parse_module

ROOT = Path(__file__).parents[3]
MODULES = sorted((ROOT / "liza").rglob("*.py"))
REASON = (
    "@dataclass compiles source text for each class at the start of every command: write `class Name(Value)` instead"
)


class Point(Value):
    x: int
    names: dict[str, int] = field(default_factory=dict)


class Square(Point, dict=True):
    side: int = 1

    @cached_property
    def area(self) -> int:
        return self.side * self.side


class Counter(Mutable):
    count: int = 0


class Slice(Mutable, eq=False):
    text: str


def test_a_value_is_immutable_and_compared_by_class_and_fields() -> None:
    point = Point(1, {"a": 2})
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    assert point == Point(x=1, names={"a": 2}) != Point(1)
    assert point != Square(1, {"a": 2})
    assert repr(point) == "Point(x=1, names={'a': 2})"


def test_a_value_is_hashable_if_its_fields_are() -> None:
    assert {Counted(1, ("a",)): "x"}[Counted(1, ("a",))] == "x"
    with pytest.raises(TypeError):
        hash(Point(1))


class Counted(Value):
    count: int
    names: tuple[str, ...] = ()


def test_a_copy_with_other_fields_computes_its_cached_properties_again() -> None:
    square = Square(1, side=3)
    assert square.area == 9
    assert replace(square, side=4).area == 16
    assert square == Square(1, side=3), "what was computed is no field"
    assert asdict(square) == {"x": 1, "names": {}, "side": 3}


def test_a_mutable_object_compares_by_fields_or_is_hashable() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    with pytest.raises(TypeError):
        hash(counter)
    assert Slice("a") != Slice("a")
    assert len({Slice("a"), Slice("a")}) == 2


def _imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _dataclass_imports(tree: ast.AST) -> Iterator[int]:
    """Lines that import dataclasses at run time: those below ``if TYPE_CHECKING`` are for mypy."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.orelse:
                yield from _dataclass_imports(ast.Module([statement], []))
        elif "dataclasses" in _imported_modules(node):
            yield node.lineno
        else:
            yield from _dataclass_imports(node)


def _structs_without_dict(tree: ast.Module) -> Iterator[str]:
    """Names of classes with a cached property whose objects have no ``__dict__`` for it."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & {"Value", "Mutable"}:
            decorators = [
                ast.unparse(decorator)
                for item in node.body
                if isinstance(item, ast.FunctionDef)
                for decorator in item.decorator_list
            ]
            if "cached_property" in decorators and "dict" not in [keyword.arg for keyword in node.keywords]:
                yield node.name


def _reads_of_defaults(tree: ast.Module, fields: dict[str, set[str]]) -> Iterator[str]:
    """Reads of a field through its class: they give msgspec's descriptor, not the default."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", None)
            if node.attr in fields.get(str(owner), ()):
                yield f"{node.lineno}: {ast.unparse(node)}"


def _unguarded_types(tree: ast.Module) -> Iterator[str]:
    """Calls of msgspec that decode a type without ``decodable``."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        kinds = [keyword.value for keyword in node.keywords if keyword.arg == "type"]
        match ast.unparse(node.func).removeprefix("msgspec."):
            case "convert":
                kinds += node.args[1:]
            case "json.Decoder":
                kinds += node.args
            case "json.decode":
                pass
            case _:
                continue
        yield from (f"{node.lineno}: {kind}" for kind in map(ast.unparse, kinds) if not kind.startswith("decodable("))


def _fields(tree: ast.Module) -> dict[str, set[str]]:
    return {
        node.name: {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and not any(isinstance(part, ast.Name) and part.id == "ClassVar" for part in ast.walk(item.annotation))
        }
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    }


def test_no_module_imports_dataclasses() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in MODULES
        for line in (_dataclass_imports(parse_module(path)) if "dataclasses" in path.read_text() else ())
    ]
    assert lines == [], REASON


def test_a_class_with_a_cached_property_has_a_dict() -> None:
    assert [name for path in MODULES for name in _structs_without_dict(parse_module(path))] == [], "add `dict=True`"


def test_no_default_of_a_field_is_read_through_the_class() -> None:
    fields = {name: names for path in MODULES for name, names in _fields(parse_module(path)).items() if names}
    reads = {path.name: list(_reads_of_defaults(parse_module(path), fields)) for path in MODULES}
    assert {name: found for name, found in reads.items() if found} == {}


def test_each_type_is_made_decodable_before_it_is_decoded() -> None:
    makes_it = ROOT / "liza" / "model" / "value_classes.py"
    found = {str(path): list(_unguarded_types(parse_module(path))) for path in MODULES if path != makes_it}
    assert {path: calls for path, calls in found.items() if calls} == {}, "write `decodable(kind)`"


def test_the_checks_find_what_they_are_for() -> None:
    text = (
        "import dataclasses\nfrom dataclasses import dataclass\n"
        "def f():\n    from dataclasses import replace\n"
        "if TYPE_CHECKING:\n    from dataclasses import field\nelse:\n    import dataclasses\n"
        "class A(Value):\n    a: int = 1\n    @cached_property\n    def b(self): ...\n"
        "class B(Value, dict=True):\n    @cached_property\n    def b(self): ...\n"
        "print(A.a, A.b, A().a, x.A.a)\n"
        "msgspec.json.decode(b, type=A); json.decode(b, type=decodable(A)); msgspec.json.decode(b)\n"
        "convert(b, A); msgspec.convert(b, type=A); msgspec.json.Decoder(A); msgspec.json.Decoder(decodable(A))\n"
    )
    tree = ast.parse(text)
    assert list(_dataclass_imports(tree)) == [1, 2, 4, 8]
    assert list(_structs_without_dict(tree)) == ["A"]
    assert list(_reads_of_defaults(tree, _fields(tree))) == ["16: A.a", "16: x.A.a"]
    assert list(_unguarded_types(tree)) == ["17: A", "18: A", "18: A", "18: A"]
