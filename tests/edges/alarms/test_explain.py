"""`liza explain`: the entries of the page in the package, for the alarms that a crew has now."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.model.errors import UnknownId
from liza.model.paths import Paths
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.view.explain import explain, read_entries
from tests.conftest import FakeClock


@pytest.fixture
def crew(repo: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Crew:
    init(repo, InitOptions(goal="x", test="true", no_proof=True, program="script:/bin/true"))
    monkeypatch.chdir(repo)
    return Crew(Paths(repo), clock)


def test_explain_without_a_name_lists_present_alarms_first(crew: Crew) -> None:
    quiet = explain(())
    assert (quiet.alarms, len(quiet.entries)) == ((), len(read_entries()))
    text = crew.paths.state.read_text()
    crew.paths.state.write_text(text.replace("config:", "config:\n  poll_intervall: 3", 1))
    shown = explain(())
    assert [(row.kind, row.next) for row in shown.alarms] == [("unknown_config", "liza edit")]
    assert [row.name for row in shown.entries] == ["unknown_config"]


def test_a_board_that_cannot_be_read_is_the_alarm(crew: Crew) -> None:
    crew.paths.state.write_text("tasks: [\n")
    shown = explain(())
    assert [row.kind for row in shown.alarms] == ["board-unreadable"]
    assert [row.name for row in shown.entries] == ["board-unreadable"]
    assert shown.alarms[0].next.startswith("liza ")


def test_outside_a_crew_explain_lists_and_finds_all_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = [row for entry in read_entries() for row in explain([entry.name]).entries]
    assert list(explain(()).entries) == entries
    with pytest.raises(UnknownId, match="did you mean expired_lease"):
        explain(["expired-leese"])
