"""The quick parser and the option parser agree; whatever is not certain is left to the option parser."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import pytest

from liza.cli import app
from liza.cli.commands import fast_commands
from liza.cli.quick_words import QUICK_COMMANDS, parse_words
from liza.rules.errors import LizaError

USUAL_PARTS = ("a", "two words", "ä", "1", "--json")
ODD_PARTS = ("", "-", "--", "-x", "-h", "--help", "--unknown", "--json=1", "-1", "--ag")


def vocabulary(name: str) -> list[str]:
    command = QUICK_COMMANDS[name]
    options = [*command.values, *command.lists, *command.flags]
    return [*USUAL_PARTS * 4, *ODD_PARTS, *options * 4, *(f"{option}=x" for option in options)]


def bound(function: Callable[..., int], *given: Any, **named: Any) -> dict[str, Any]:
    """The parameters of a function as it sees them: an option that was not repeated may be None or empty."""
    arguments = inspect.signature(function).bind(*given, **named)
    arguments.apply_defaults()
    return {name: value or None if isinstance(value, list) else value for name, value in arguments.arguments.items()}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the option parser calls the functions of the commands with; they do nothing."""
    seen: list[dict[str, Any]] = []

    def recorder(function: Callable[..., int]) -> Callable[..., int]:
        def record(*given: Any, **named: Any) -> int:
            seen.append(bound(function, *given, **named))
            return 0

        return record

    for function in fast_commands.FAST_FUNCTIONS.values():
        monkeypatch.setattr(fast_commands, function.__name__, recorder(function))
    return seen


@pytest.mark.parametrize("name", sorted(QUICK_COMMANDS))
def test_both_parsers_read_the_same(name: str, calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    chance, quick = random.Random(name), 0
    words_of = vocabulary(name)
    for _ in range(500):
        words = [name, *chance.choices(words_of, k=chance.randrange(0, 6))]
        parsed = parse_words(words)
        if parsed is None:
            continue
        quick += 1
        calls.clear()
        assert app.run_liza(words) == 0, words
        assert calls == [bound(fast_commands.FAST_FUNCTIONS[name], **parsed)], words
    capsys.readouterr()
    assert quick > 3


USUAL = (
    ["claim", "t-1", "--agent", "coder-1"],
    ["claim", "--agent", "coder-1", "--json"],
    ["verdict", "approve", "ran it: 3 pass"],
    ["verdict", "reject", "src/a.py:3 is wrong", "--task", "t-1", "--commit", "abc", "--json"],
    ["block", "which?", "--ask", "a?", "--ask", "b?"],
    ["handoff", "done", "--next", "go on", "--step", "one", "--step", "two", "--file", "a", "--done"],
    ["note", "text", "--to", "coder-1", "--now"],
    ["merge"],
    ["merge", "t-1", "--for", "coder-1"],
    ["exit", "42"],
    ["ready", "--json"],
    ["status"],
)


@pytest.mark.parametrize("words", USUAL, ids=" ".join)
def test_usual_words_need_no_option_parser(words: list[str], calls: list[dict[str, Any]]) -> None:
    parsed = parse_words(words)
    assert parsed is not None
    assert app.run_liza(words) == 0
    assert calls == [bound(fast_commands.FAST_FUNCTIONS[words[0]], **parsed)]


UNUSUAL = (
    ["claim"],
    ["claim", "--agent"],
    ["claim", "a", "b", "--agent", "coder-1"],
    ["claim", "--agent", "coder-1", "--agent", "coder-2"],
    ["submit", "now"],
    ["status", "--watch"],
    ["heartbeat", "--extend", "15m"],
    ["verdict", "approve"],
    ["verdict", "approve", "-1"],
    ["exit"],
    ["note", "text", "--to=all"],
    ["ready", "--json", "--json"],
    ["task", "list"],
    ["--version"],
    [],
)


@pytest.mark.parametrize("words", UNUSUAL, ids=" ".join)
def test_other_words_are_left_to_the_option_parser(words: list[str]) -> None:
    assert parse_words(words) is None


def test_an_error_of_usage_is_that_of_the_option_parser(calls: list[dict[str, Any]]) -> None:
    with pytest.raises(LizaError, match="missing option '--agent'"):
        app.run_liza(["claim"])
    assert calls == []
