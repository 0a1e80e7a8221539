"""The default guards never deny what agents do every day, and deny what they must not do."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guard_session import judge

CORPUS = tomllib.loads((Path(__file__).parents[2] / "data" / "guard_corpus.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("role", "lists"), [("coder", ("both", "coder")), ("code-reviewer", ("both", "reviewer")), ("planner", ("both",))]
)
def test_ordinary_commands_are_allowed(role: str, lists: tuple[str, ...]) -> None:
    commands = [command for name in lists for command in CORPUS["allowed"][name]]
    assert len(commands) >= 250
    wrong: list[Any] = []
    for command in commands:
        verdict = judge(command, role)
        if not verdict.allowed:
            wrong.append((command, verdict.rule, verdict.reason))
    assert wrong == []


def test_dangerous_commands_are_denied_by_the_rule_for_them() -> None:
    rows = [(rule, command) for rule, commands in CORPUS["denied"].items() for command in commands]
    assert len(rows) >= 150
    assert [(*row, rule) for row in rows if (rule := _denial(row[1], "coder")) != row[0]] == []


def test_what_no_rule_denies_any_more_is_named() -> None:
    rows = [(name, command) for name, commands in CORPUS["passed"].items() for command in commands]
    assert [(*row, rule) for row in rows if (rule := _denial(row[1], "coder")) is not None] == []


def test_reviewers_do_not_change_sources() -> None:
    commands = CORPUS["denied_to_reviewers"]["rules"]
    rules = {_denial(command, "code-reviewer") for command in commands}
    assert rules == {"readers-do-not-write", "no-write-for-readers"}


def _denial(command: str, role: str) -> str | None:
    """Return the rule that denies the command; None if it is allowed."""
    verdict = judge(command, role)
    return None if verdict.allowed else verdict.rule
