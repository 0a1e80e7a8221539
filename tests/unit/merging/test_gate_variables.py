"""Variables of gates: which entries are accepted."""

from __future__ import annotations

import pytest

from liza.model import gates
from liza.model.configuration import Config
from liza.project.rules import project_kinds


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ("CI=true", None),
        ("CI=", None),
        ("NODE_OPTIONS=--max-old-space-size=4096 --x", None),
        ("LIZARD=1", None),
        ("CI", "'CI'"),
        ("", "''"),
        ("=x", "''"),
        ("A B=1", "'A B'"),
        ("1A=x", "'1A'"),
        ("A=x\ny", "'A'"),
        ("LIZA_RUN=coder-1.1", "'LIZA_RUN'"),
        ("GIT_DIR=/x", "'GIT_DIR'"),
        ("PATH=/x", "'PATH'"),
        ("HOME=/x", "'HOME'"),
        ("PYTHONPATH=/x", "'PYTHONPATH'"),
    ],
)
def test_only_unused_names_with_a_value_are_accepted_for_gates(entry: str, refused: str | None) -> None:
    assert gates.find_refused(("CI=true", entry)) == (() if refused is None else (refused,))


def test_the_default_is_accepted() -> None:
    assert gates.find_refused(Config().gate_environment) == ()


@pytest.mark.parametrize(
    ("tracked", "caches"),
    [
        (("Cargo.toml", "src/main.rs"), ("target/",)),
        (("app/build.gradle.kts", "web/package.json"), (".gradle/", "build/", "**/node_modules/.cache/")),
        (("packages/a/package.json",), ("**/node_modules/.cache/",)),
        (("tests/data/example/Cargo.toml", "pyproject.toml", "pom.xml"), ()),
        (("mix.exs", "mix.exs.lock"), ("_build/",)),
        (("docs/Cargo.toml.md",), ()),
    ],
)
def test_caches_of_the_build_tools_of_a_project_are_known(tracked: tuple[str, ...], caches: tuple[str, ...]) -> None:
    assert project_kinds.find_caches(tracked) == caches
