"""What is typed by mistake, or as other tools call it, is answered with the command that is meant."""

from __future__ import annotations

import pytest

from liza.cli.app import list_headings, load_command, run_liza
from liza.commands import _slips
from liza.model.errors import UsageError
from tests.unit.house.test_typed_commands import complaint


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("list", "liza task list"),
        ("ls", "liza task list"),
        ("LS", "liza task list"),
        ("tasks", "liza task list"),
        ("ps", "liza agents"),
        ("agent coder-1", "liza agents coder-1"),
        ("stop", "liza down"),
        ("kill coder-1", "liza down coder-1"),
        ("plan", "liza edit goal"),
        ("add", "liza task add"),
        ("add --id a", "liza task add --id a"),
        ("add the invoice has a date", "liza start 'the invoice has a date'"),
        ("cancel a", 'liza task drop a "…"'),
        ("show a", "liza task show a"),
        ("show coder-1", "liza agents coder-1"),
        ("log coder-1 -f", "liza logs coder-1 -f"),
        ("approve a", 'liza verdict approve "…" --task a'),
        ("set queue.batch 3", "liza config set queue.batch 3"),
        ("task rm a", 'liza task drop a "…"'),
        ("task invoice-model", "liza task show invoice-model"),
        ("config queue.batch", "liza config get queue.batch"),
        ("queue list", "liza queue"),
        ("start", "liza up"),
        ("status coder-1", "liza agents coder-1"),
        ("status invoice-model", "liza task show invoice-model"),
        ("task edit a --status DONE", "liza merge a"),
        ("task edit a --status=cancelled", 'liza task drop a "…"'),
        ("task edit a --status whatever", "liza task show a"),
        ("up 3", "liza up --coders 3"),
        ("up coder-1 --coders 2", "liza up coder-1"),
        ("down coder-1 --purge", "liza down coder-1"),
        ("revert a", 'liza undo a --because "…"'),
        ("frobnicate", "liza help --all"),
        ("statsu", "liza status --help"),
    ],
)
def test_a_slip_is_refused_with_the_command_that_is_meant(words: str, command: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_liza(words.split())
    assert refused.value.hint == command


def test_each_command_that_a_slip_names_exists() -> None:
    slips = [*_slips._AT_TOP, *(slip for group in _slips._IN_GROUPS.values() for slip in group)]
    named = {part for slip in slips for part in "; ".join((slip.command, slip.alone)).split("; ") if part}
    named |= set(_slips._NAMES_A_PART.values()) | {step for _, step in _slips._BY_STATUS}
    assert len(named) > 50
    assert {
        command: text
        for command in named
        if "liza --" not in command and (text := complaint(command.replace("{}", "x")))
    } == {}
    words = [word for slip in _slips._AT_TOP for word in slip.words.split()]
    assert len(words) == len(set(words))


def test_every_command_but_the_pictures_takes_json() -> None:
    commands = {path: load_command(path.split()[0]) for _, paths in list_headings() for path in paths}
    commands |= {path: group.commands[path.split()[1]] for path, group in commands.items() if " " in path}
    lacking = [path for path, found in commands.items() if "--json" not in {o for p in found.params for o in p.opts}]
    assert lacking == ["mcp", "ui", "web"], "what the pictures show, status has as JSON; mcp speaks nothing else"
