"""The page about troubleshooting has an entry for all that users meet, and names commands that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from liza.alarms.rules import troubleshooting
from liza.alarms.rules.troubleshooting import Explanation, find_entries, normalize_name, select_entries
from liza.commands.explain import format_explanations, format_names
from liza.model.alarm_table import AlarmKind
from liza.model.errors import UnknownId
from liza.model.statuses import Pattern
from liza.view.explain import AlarmText, read_entries
from tests.unit.house.test_typed_commands import complaint
from tests.unit.sources import module_nodes

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "specs" / troubleshooting.PAGE
ENTRY = Explanation("expired_lease", "Claiming", "It ran out", "Nothing", "`liza logs coder-1`")
OTHER = Explanation("no-crew", "Starting", "No crew", "Nothing", "`liza init`")


@cache
def entries() -> dict[str, Explanation]:
    return {normalize_name(entry.name): entry for entry in read_entries()}


@cache
def error_names() -> tuple[str, ...]:
    """The code of each class of errors; the name of the class for those that have the code of another one."""
    classes: dict[str, ast.ClassDef] = {}
    for path in sorted((ROOT / "liza").rglob("*.py")):
        classes |= {node.name: node for node in module_nodes(path) if isinstance(node, ast.ClassDef)}
    found = [name for name in classes if _is_error(name, classes) and not name.startswith("_")]
    return tuple(_own_code(classes[name]) or re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in found)


def _is_error(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)] if name in classes else []
    return name == "LizaError" or any(_is_error(base, classes) for base in bases)


def _own_code(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and target.id == "code":
            return str(ast.literal_eval(statement.value))  # type: ignore[union-attr]
    return None


@cache
def finding_names() -> frozenset[str]:
    """What the findings of `liza doctor` are about, as far as that is a word of the code."""
    calls = [
        node
        for path in (ROOT / "liza").rglob("*.py")
        for node in module_nodes(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding" and node.args
    ]
    abouts = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    checks = (ROOT / "liza" / "recovery" / "findings.py").read_text().partition("_CHECKS: ")[2]
    return frozenset(abouts | set(re.findall(r'\("(\w+)", _check', checks)))


def test_every_alarm_pattern_error_and_finding_has_an_entry() -> None:
    assert len(error_names()) >= 30
    assert len(finding_names()) > 25
    wanted = [*AlarmKind, *Pattern, *error_names(), *(f"doctor {name}" for name in finding_names())]
    assert [name for name in wanted if normalize_name(name) not in entries()] == []


def test_every_entry_of_a_group_is_something_that_users_meet() -> None:
    """No entry of an alarm, an error or a finding that was renamed or removed."""
    real = {normalize_name(name) for name in (*AlarmKind, *Pattern, *error_names())}
    real |= {normalize_name(f"doctor {name}") for name in finding_names()}
    groups = {entry.group for entry in entries().values()} - {"Violations that liza validate prints"}
    assert [entry.name for name, entry in entries().items() if entry.group in groups and name not in real] == []


def test_every_row_of_the_page_is_read_and_unique() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(read_entries()) == len(entries())


def test_every_command_of_the_page_exists_with_its_options() -> None:
    commands = re.findall(r"`(liza [^`]+)`", PAGE.read_text())
    assert len(commands) > 100
    assert [(command, text) for command in commands if (text := complaint(command))] == []


def test_every_answer_has_a_command_or_its_place() -> None:
    vague = [
        entry.name
        for entry in entries().values()
        if not re.search(
            r"`|command of the (message|finding)|^nothing|^wait|message (has|names)|move it away", entry.answer
        )
    ]
    assert vague == ["future-time"]


@pytest.mark.parametrize("typed", ["expired_lease", "expired-lease", "Expired Lease", "ran out", "logs"])
def test_an_entry_is_found_by_its_name_and_by_words(typed: str) -> None:
    assert find_entries((ENTRY, OTHER), typed.split()) == (ENTRY,)


def test_a_word_is_searched_from_the_beginning_of_words() -> None:
    held = Explanation("merge_lock_held", "Merging", "A lock is not free", "It waits", "end that program")
    blocked = Explanation("blocked", "Questions", "The clock runs", "Nothing", "`liza answer`")
    assert find_entries((held, blocked), ["lock"]) == (held,)
    assert find_entries((held, blocked), ["block"]) == (blocked,)


def test_an_unknown_name_is_refused_with_the_closest_one() -> None:
    with pytest.raises(UnknownId, match="did you mean no-crew"):
        find_entries((ENTRY, OTHER), ["no-crow"])
    with pytest.raises(UnknownId):
        find_entries((ENTRY, OTHER), [""])


def test_entries_about_alarms_occur_once_and_in_alarm_order() -> None:
    assert select_entries((ENTRY, OTHER), ["no_crew", "expired_lease", "no_crew", "new_kind"]) == (OTHER, ENTRY)


def test_alarms_are_shown_above_their_entry_or_alone() -> None:
    alarms = [
        AlarmText("no_crew", "x", "gone", "liza init"),
        AlarmText("new_kind", "y", "odd", ""),
    ]
    text = format_explanations(alarms, [OTHER], colour=False)
    assert text == (
        "! odd\n\n! gone\n    liza init\nno-crew  Starting\n  means  No crew\n  Liza   Nothing\n  you    `liza init`"
    )
    assert "`" not in format_explanations((), [OTHER], colour=True)
    assert format_names([ENTRY, OTHER], colour=False) == ("Claiming\n  expired_lease\nStarting\n  no-crew")
