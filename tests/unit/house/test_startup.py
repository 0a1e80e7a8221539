"""The start path: one, without a wait, and documented by tests that exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import liza
from liza.programs.presets import command_line
from liza.programs.presets.command_line import TextCarrier
from liza.programs.presets.preset import HookSettings, LaunchMode, Preset
from liza.programs.session import session_process
from liza.programs.terminal import tmux
from tests.unit.sources import module_nodes

LIZA = Path(liza.__file__).parent
HERE = Path(__file__).parents[3]
PATH = (
    "supervisor/launch.py",
    "supervisor/session_files.py",
    "programs/presets/command_line.py",
    "supervisor/observe.py",
    "supervisor/observe.py",
    "supervisor/rules/decide.py",
)


def calls(module: Path) -> set[str]:
    found = (node.func for node in module_nodes(module) if isinstance(node, ast.Call))
    return {ast.unparse(function) for function in found}


def name_of(function: Callable[..., object]) -> str:
    """Return the name by which other modules call a function. A rename of it fails where it is imported."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def test_sessions_are_started_in_one_place() -> None:
    starters = {name_of(start) for start in (session_process.start, session_process.start_with, tmux.start)}
    callers = defaultdict(set)
    for module in LIZA.rglob("*.py"):
        for starter in calls(module) & starters if ".start" in module.read_text() else ():
            callers[starter].add(module.name)
    assert callers == {
        name_of(session_process.start): {"launch.py"},
        name_of(session_process.start_with): {"tmux.py"},
        name_of(tmux.start): {"launch.py"},
    }


def test_the_start_path_waits_for_nothing() -> None:
    for name in PATH:
        assert calls(LIZA / name), name
        assert not {call for call in calls(LIZA / name) if call.endswith(("sleep", ".wait", "wait_for"))}, name


def test_an_unprompted_program_at_a_terminal_is_started_by_typing() -> None:
    for provider in ("", next(iter(sorted(command_line.list_providers())))):
        row = Preset(
            name="x",
            interactive=LaunchMode(prompt="none"),
            headless=LaunchMode(prompt="none"),
            hooks=HookSettings(provider=provider),
        )
        assert command_line.choose_carriers(row, interactive=True).work is TextCarrier.TERMINAL
        assert command_line.choose_carriers(row, interactive=False).work is not TextCarrier.TERMINAL
        told = Preset(name="x", interactive=LaunchMode(prompt="arg"), hooks=HookSettings(provider=provider))
        assert command_line.choose_carriers(told, interactive=True).work is TextCarrier.PROMPT


def test_informational_hooks_count_as_none() -> None:
    provider = next(iter(sorted(command_line.list_providers())))
    assert command_line.has_hooks(Preset(name="x", hooks=HookSettings(provider=provider)))
    assert not command_line.has_hooks(Preset(name="x", hooks=HookSettings(provider=provider, informational=True)))


def test_every_test_that_the_page_about_starting_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (HERE / "specs" / "startup.md").read_text()))
    there = {
        name
        for module in (HERE / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", module.read_text(), re.MULTILINE)
    }
    assert len(named) > 10
    assert named <= there, named - there
