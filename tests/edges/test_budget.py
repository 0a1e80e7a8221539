"""A budget that is misspelt, and one that is used up: a person sees both, and is told what to do about it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.cli import render
from liza.programs import ledger
from liza.programs.preset import Preset, Usage
from liza.programs.rundir import Record
from liza.rules.errors import BoardUnreadable
from liza.rules.model import Budget, Status
from liza.rules.paths import Paths
from liza.rules.spending import Spent, Used
from liza.supervisor.memory import Memory, SessionMemory
from liza.supervisor.situation import Spending, spending_now
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


def allow(crew: Crew, budget: Budget) -> None:
    with crew.change("human:ann", "edit") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, budget=budget))


def hold(crew: Crew) -> None:
    """coder-1 holds t1, as coder-1.1."""
    lease = crew.clock.now() + timedelta(minutes=5)
    with crew.change("coder-1", "claim", "t1") as tx:
        held = {"status": Status.CLAIMED, "assigned_to": "coder-1", "run": "coder-1.1", "worktree": "s1"}
        held |= {"base_commit": "a" * 40, "lease_expires": lease}
        tx.state = tx.state.with_task(replace(tx.state.tasks[0], **held))


def note(crew: Crew, seconds: float, used: Used | None = None, run: str = "coder-1.1") -> None:
    """A session of t1 is over, and stands in the ledger."""
    spent = Spent(
        run=run, time=crew.clock.now(), kind="work", program="x", outcome="over", seconds=seconds, task="t1", used=used
    )
    ledger.note(crew.paths, spent)


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


def test_a_session_is_over_its_time_at_that_second_though_its_output_is_read_for_tokens_again_only_later(
    crew: Crew, clock: FakeClock
) -> None:
    hold(crew)
    allow(crew, Budget(seconds_per_task=8, tokens_per_task=100))
    directory = crew.run_dir("coder-1.1")
    directory.create(Record(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1"))
    began = clock.monotonic()
    memory = Memory(wall=clock.now(), steady=began)
    memory.session = SessionMemory("coder-1.1", started=began, moved=began, beat=began, looked=began)
    told = Preset(name="x", usage=Usage(input=("tokens",)))

    def now() -> Spending:
        return spending_now(crew, crew.board.read(), "coder-1", memory, told, clock.monotonic())

    clock.advance(7)
    assert now() == Spending(None, 1.0)
    directory.output.write_text('{"tokens": 200}\n')
    clock.advance(0.9)
    assert now().overspent is None
    clock.advance(0.1)
    assert now() == Spending("t1 has used 8 of 8 seconds")
    memory.session.looked = clock.monotonic()
    assert now() == Spending("t1 has used 200 of 100 tokens")
    note(crew, 3, run="coder-1.0")
    memory.session = None
    assert now() == Spending()
    note(crew, 5, run="coder-1.1")
    assert now() == Spending("t1 has used 8 of 8 seconds")
