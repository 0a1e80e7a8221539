"""Names and words: each has one meaning, and retired ones do not come back. Packages are as CONTRIBUTING.md says."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.unit.sources import module_nodes, nodes_of, parse_text

ROOT = Path(__file__).parents[3]
MODULES = sorted(path for path in (ROOT / "liza").rglob("*.py") if path.name != "__init__.py")
RETIRED = tomllib.loads((ROOT / "tests" / "data" / "retired_words.toml").read_text())


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _top_level_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, node.lineno
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


def _retired_names(text: str, stem: str) -> Iterator[str]:
    names = [(stem, 0), *_top_level_names(parse_text(text))]
    for name, line in names:
        for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
            if word.lower() in RETIRED["names"]:
                yield f"{line}: {name}: write {RETIRED['names'][word.lower()]}"


def _retired_variables(text: str) -> Iterator[str]:
    for node in nodes_of(parse_text(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in RETIRED["variables"]:
                yield f"{node.lineno}: {name}: write {RETIRED['variables'][name]}"


def _retired_points(text: str) -> Iterator[str]:
    """Retired words in the names of crash points and in the events of transactions: files on disk depend on neither."""
    for node in nodes_of(parse_text(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("point", "change", "transaction")
        ):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            for word in re.findall(r"\w+", " ".join(names)):
                if word in RETIRED["names"]:
                    yield f"{node.lineno}: {word}: write {RETIRED['names'][word]}"


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, each with the number of its first line."""
    for node in nodes_of(parse_text(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    if "#" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _retired_prose(text: str) -> Iterator[str]:
    for line, words in _prose(text):
        for pattern, instead in RETIRED["prose"].items():
            for match in re.finditer(pattern, words, re.IGNORECASE):
                yield f"{line}: {match.group()}: write {instead}"


def test_no_module_has_a_retired_word_in_names_or_prose() -> None:
    """One test, and not one for each module and check: 1,800 tests cost each worker more than what they check."""
    assert MODULES
    found = []
    for path in sorted((ROOT / "liza").rglob("*.py")):
        text = path.read_text()
        findings = [*_retired_prose(text)]
        if path.name != "__init__.py":
            findings += [*_retired_names(text, path.stem), *_retired_variables(text), *_retired_points(text)]
        found += [f"{_id(path)}:{finding}" for finding in findings]
    assert found == []


def test_the_check_finds_retired_words_in_names_docstrings_and_comments() -> None:
    text = '"""Whoever comes by."""\nSETTLED = 1  # nobody\n\n\ndef settle_it() -> None:\n    """Bears it."""\n'
    assert len(list(_retired_names(text, "tampering"))) == 3
    variables = "def f(one: int) -> None:\n    for place in g():\n        found = [known for known in h()]\n"
    assert len(list(_retired_variables(variables))) == 4
    assert len(list(_retired_prose(text))) == 4
    points = 'crash_points.point("settle", "told")\nwith crew.change(by, "settle"):\n    point("settle")\n'
    assert len(list(_retired_points(points))) == 3


def test_no_test_has_a_retired_word_in_its_name() -> None:
    tests = [
        (path, name)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"^ *def (test_\w+)\(", path.read_text(), re.M)  # To parse all tests takes 4 s.
    ]
    assert len(tests) > 1000
    found = [
        f"{_id(path)}: {name}: {word}: write {RETIRED['tests'][word]}"
        for path, name in tests
        for word in name.split("_")
        if word in RETIRED["tests"]
    ]
    assert found == []


def test_each_module_and_each_class_has_its_own_name() -> None:
    modules, classes = defaultdict(list), defaultdict(list)
    for path in MODULES:
        # The file of a command has the name of its verb.
        if path.stem != "__main__" and path.parent.name != "commands":
            modules[path.stem].append(_id(path))
        for node in module_nodes(path):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(_id(path))
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
    assert {name: paths for name, paths in classes.items() if len(paths) > 1} == {}


def test_contributing_lists_every_package_and_no_other() -> None:
    listed = re.findall(r"^\| `(liza[^`]*)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    packages = {_id(path.parent) for path in (ROOT / "liza").glob("*/__init__.py")}
    assert sorted(listed) == sorted(packages)


def test_each_package_names_the_file_to_read_first() -> None:
    packages = [init for init in sorted((ROOT / "liza").rglob("__init__.py")) if init.parent.name != "rules"]
    assert packages
    for init in packages:
        docstring = ast.get_docstring(ast.parse(init.read_text())) or ""
        read_first = re.search(r"Read (?:first: )?`([\w/]+\.py)`", docstring)
        assert read_first, f"{_id(init)}: Read `FILE.py` first"
        assert (init.parent / read_first.group(1)).is_file(), _id(init)


def test_files_that_docstrings_of_packages_name_are_there() -> None:
    missing = [
        f"{_id(init)}: {name}"
        for init in (ROOT / "liza").rglob("__init__.py")
        for name in re.findall(r"`([\w/]+\.(?:py|toml))`", ast.get_docstring(ast.parse(init.read_text())) or "")
        if not any((base / name).is_file() for base in (init.parent, init.parent.parent, ROOT / "liza", ROOT))
        and not list(init.parent.glob(f"*/{name}"))
    ]
    assert missing == []
