"""A budget that is misspelt, and one that is used up: a person sees both, and is told what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.cli import render
from liza.rules.errors import BoardUnreadable
from liza.rules.paths import Paths
from liza.verbs.crew import Crew
from liza.verbs.edit import edit
from liza.verbs.status import status
from liza.verbs.validate import validate
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

MISSPELT = "config:\n  budget:\n    money_per_spirnt: 1.6\n    dollars: 3\n"
FIRST_OF_TWO = "config.budget.money_per_spirnt is no setting and limits nothing; did you mean money_per_sprint?"


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    made = Crew(Paths(tmp_path), clock)
    made.board.create(FIRST + "    runs: 1\n")
    return made


def typing(crew: Crew, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """What a person adds at the end of the board in an editor."""
    typed = crew.paths.root / "typed"
    typed.write_text(more)
    monkeypatch.setenv("VISUAL", f'sh -c \'cat "{typed}" >> "$1"\' typing')


def test_a_misspelt_limit_is_taken_by_edit_and_named_with_the_one_that_may_be_meant_and_all_there_are(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    typing(crew, monkeypatch, MISSPELT)
    said = edit(crew, "board")
    assert said.result == "changed"
    first, second = said.more["warnings"]
    assert first.startswith(FIRST_OF_TWO)
    assert second.startswith("config.budget.dollars is no setting and limits nothing")
    assert "(config.budget has money_per_task, money_per_sprint, tokens_per_task" in second
    assert said.told == f"changed\nwarning: {first}\nwarning: {second}"
    typing(crew, monkeypatch, "")
    assert (edit(crew, "board").result, edit(crew, "board").more["warnings"]) == ("unchanged", [first, second])


def test_a_misspelt_limit_is_a_warning_of_validate_and_stands_in_status_until_it_is_mended(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    typing(crew, monkeypatch, MISSPELT)
    edit(crew, "board")
    warnings = validate(crew.paths.root)["warnings"]
    assert [one.split(";")[0].split(" (")[0] for one in warnings] == [
        "config.budget.money_per_spirnt is no setting and limits nothing",
        "config.budget.dollars is no setting and limits nothing",
    ]
    assert f"! {FIRST_OF_TWO}" in render.status(status(crew), colour=False)


def test_a_number_in_place_of_the_limits_is_refused_with_the_names_that_limits_have(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    typing(crew, monkeypatch, "config:\n  budget: 1.0\n")
    with pytest.raises(BoardUnreadable, match="wanted a mapping with some of: money_per_task, money"):
        edit(crew, "board")
