"""What is typed and cannot be meant is refused before anything is done."""

from __future__ import annotations

import pytest

from liza.cli.app import run_liza
from liza.rules.errors import UsageError


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("config set lease_duration -3", "liza config set lease_duration -- -3"),
        ("config set lease_duration -30 --json", "liza config set lease_duration --json -- -30"),
        ("config set --json lease_duration -.5", "liza config set --json lease_duration -- -.5"),
        ("config set integration_command -x", "liza config set integration_command -- -x"),
    ],
)
def test_a_value_that_begins_with_a_hyphen_is_refused_with_the_command_that_marks_it(words: str, command: str) -> None:
    with pytest.raises(UsageError, match="type -- before it") as refused:
        run_liza(words.split())
    assert refused.value.hint == command


@pytest.mark.parametrize("words", ["config set lease_duration --defaut", "status -3", "status -x"])
def test_an_option_that_does_not_exist_is_named(words: str) -> None:
    with pytest.raises(UsageError, match="no such option"):
        run_liza(words.split())
