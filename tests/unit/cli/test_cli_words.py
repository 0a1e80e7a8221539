"""What is typed and cannot be meant is refused before anything is done."""

from __future__ import annotations

import pytest

from liza.cli.app import command_names, load_command, refuse_in_sessions, run_liza
from liza.model.errors import Refused, UsageError


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("config set lease_duration -3", "liza config set lease_duration -- -3"),
        ("config set lease_duration -30 --json", "liza config set lease_duration --json -- -30"),
        ("config set --json lease_duration -.5", "liza config set --json lease_duration -- -.5"),
        ("config set integration_command -x", "liza config set integration_command -- -x"),
    ],
)
def test_a_value_beginning_with_a_hyphen_is_refused_with_hint(words: str, command: str) -> None:
    with pytest.raises(UsageError, match="type -- before it") as refused:
        run_liza(words.split())
    assert refused.value.hint == command


@pytest.mark.parametrize("words", ["config set lease_duration --defaut", "status -3", "status -x"])
def test_an_option_that_does_not_exist_is_named(words: str) -> None:
    with pytest.raises(UsageError, match="no such option"):
        run_liza(words.split())


@pytest.mark.parametrize(
    "words",
    ["--help", "-h", "--version", "up --help", "nonsense", "queue --json", "task show release", "task --help"],
)
def test_a_box_calls_commands_of_sessions_and_asks_for_help(words: str) -> None:
    refuse_in_sessions(words.split())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("", "liza"),
        ("up", "liza up"),
        ("-- up", "liza --"),
        ("--json up", "liza --json"),
        ("slots", "liza slots"),
        ("lock -- task show", "liza lock"),
        ("task release show", "liza task release"),
        ("queue --json move one", "liza queue move"),
        ("queue -- hold one", "liza queue hold"),
        ("task release --help", "liza task release"),
    ],
)
def test_a_box_calls_no_other_command(words: str, name: str) -> None:
    with pytest.raises(Refused, match=f"^{name} is for a person"):
        refuse_in_sessions(words.split())


def test_no_option_of_a_group_has_a_value() -> None:
    groups = [load_command(name) for name in command_names()]
    options = [option for group in groups if hasattr(group, "commands") for option in group.params]
    assert options
    assert all(option.is_flag for option in options)
